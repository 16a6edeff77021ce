"""Sums and maxima by every variant: exact for integers and maxima, within their bound for floats, and labelled."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common.dtypes import COURSE_TYPES
from kernels.study.reduce import VARIANTS
from pipeline.errors import PipelineError
from workflows.reduce import ReduceOptions
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
