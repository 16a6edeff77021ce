"""Sums and maxima by every variant: exact for integers and maxima, within their bound for floats, and labelled."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common.dtypes import COURSE_TYPES
from kernels.reduce import exact_sum
from kernels.reduce.partial import NAN, POSITIVE, SAMPLES, SUM, SUM_AT
from kernels.reduce.reference import reduce_reference
from kernels.study.reduce import VARIANTS
from pipeline.errors import PipelineError, VerificationError
from workflows.reduce import ReduceOptions
from workflows.study.jobs import reduce as by_variant
from workflows.study.jobs.reduce import roundings

RIGHT = [name for name, variant in VARIANTS.items() if not (variant.broken or variant.unfit) and name != "production"]
SUMS = [name for name in RIGHT if name != "atomic_max"]


def samples_of(dtype: str, n: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(n)
    if dtype == "int32":
        return random.integers(-(2**31), 2**31, n).astype(dtype)
    return (random.standard_normal(n) * 10.0 ** random.integers(-8, 9, n)).astype(dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", SUMS)
@pytest.mark.parametrize("dtype", COURSE_TYPES)
def test_sums(tmp_path: Path, run_by: Any, kernel: str, dtype: str) -> None:
    """Compared here with rational numbers."""
    samples = samples_of(dtype, 2503)
    np.save(tmp_path / "a.npy", samples)
    outcome = run_by("reduce", ReduceOptions(op="sum,mean,count"), [tmp_path / "a.npy"], kernel, chunk_bytes=4600)
    assert outcome.verdict.checked == len(samples) and outcome.verdict.chunks > 2
    values = outcome.result.values
    exact = sum(map(Fraction, samples.tolist()))
    assert values["count"] == len(samples)
    if dtype == "int32":
        assert values["sum"] == exact and not outcome.verdict.rounding
        return
    k, sizes = roundings(len(samples)), sum(map(Fraction, np.abs(samples).tolist()))
    bound = Fraction(k, 2**53 - k) * sizes
    assert abs(Fraction(values["sum"]) - exact) <= bound
    assert abs(Fraction(values["mean"]) - exact / len(samples)) <= bound / len(samples)
    assert f"within γ({k:,}) Σ|x|, rounded by study/{kernel}" in str(outcome.verdict)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", RIGHT)
@pytest.mark.parametrize("dtype", COURSE_TYPES)
def test_maxima(tmp_path: Path, run_by: Any, kernel: str, dtype: str) -> None:
    samples = samples_of(dtype, 1501)
    np.save(tmp_path / "a.npy", samples)
    outcome = run_by("reduce", ReduceOptions(op="max"), [tmp_path / "a.npy"], kernel, chunk_bytes=4600)
    assert outcome.result.values["max"] == samples.max() and not outcome.verdict.rounding


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("given", "op", "expected"),
    [
        ([1, math.nan, 2], "sum", math.nan), ([1, math.nan, 2], "max", math.nan), ([1, math.inf], "sum", math.inf),
        ([-math.inf, 5], "mean", -math.inf), ([-math.inf, math.inf], "sum", math.nan), ([-0.0, 0.0], "max", 0.0),
        ([-0.0, -0.0], "max", -0.0), ([-math.inf, -5], "max", -5.0), ([-math.inf] * 2, "max", -math.inf),
    ],
)  # fmt: skip
def test_what_is_no_ordinary_number(tmp_path: Path, run_by: Any, given: list[float], op: str, expected: float) -> None:
    np.save(tmp_path / "a.npy", np.repeat(np.array(given, np.float32), 400))
    outcome = run_by("reduce", ReduceOptions(op=op), [tmp_path / "a.npy"], "sequential", chunk_bytes=1000)
    got = outcome.result.values[op]
    assert repr(got) == repr(expected) and outcome.result.nan == 400 * sum(map(math.isnan, given))


@pytest.mark.gpu
def test_sums_beyond_float64_are_told(tmp_path: Path, run_by: Any) -> None:
    np.save(tmp_path / "a.npy", np.full(10, 1e308))
    with pytest.raises(PipelineError, match=r"expected sums of 10 samples within float64, got inf; run without"):
        run_by("reduce", ReduceOptions(op="sum"), [tmp_path / "a.npy"], "sequential")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", COURSE_TYPES)
def test_a_lost_sample_fails_the_run(tmp_path: Path, run_by: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand."""
    np.save(tmp_path / "a.npy", np.arange(1, 1001).astype(dtype))
    right = VARIANTS["sequential"].run

    def wrong(samples: Any, **given: Any) -> Any:
        return right(samples[1:].copy(), **given)

    variants = {**VARIANTS, "sequential": replace(VARIANTS["sequential"], run=wrong)}
    monkeypatch.setattr(by_variant, "VARIANTS", variants)
    with pytest.raises(VerificationError, match=r"a number is wrong in chunk 0 .*sum: expected 500500"):
        run_by("reduce", ReduceOptions(op="sum"), [tmp_path / "a.npy"], "sequential")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bound_is_kept_to_a_unit(dtype: str) -> None:
    """In units of the sums, far below the spacing of float64."""
    samples = samples_of(dtype, 3000)
    expected = by_variant._reference("sum", samples, ReduceOptions())
    got = reduce_reference(samples, SUM)
    k, total = roundings(3000), exact_sum.from_words(got[SUM_AT])
    sizes = sum(exact_sum.whole(abs(float(x)), exact_sum.SUM_BITS) for x in samples)
    most = k * sizes // (2**53 - k)
    for error, allowed in ((0, True), (most, True), (-most, True), (most + 1, False), (-most - 1, False)):
        got[SUM_AT] = exact_sum.to_words(total + error, exact_sum.SUM_WORDS)
        assert (by_variant.within(got, expected) is None) == allowed
    for at in (NAN, POSITIVE, SAMPLES):
        other = expected.copy()
        other[at] += 1
        assert by_variant.within(other, expected)


def test_the_compiled_check_is_the_reference() -> None:
    """Also of magnitudes."""
    samples = samples_of("float32", 3000)
    check = by_variant._check("sum", ReduceOptions(), samples.dtype)
    if check is None:
        pytest.skip("no C++ compiler")
    for first, last in ((0, 1), (1000, 3000), (1, 1000)):
        check.add(samples[first:last], first)
    np.testing.assert_array_equal(check.partial(), by_variant._reference("sum", samples, ReduceOptions()))
