"""The check of a matrix product finds wrong elements above its bound, at least as often as it promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.matmul import freivalds, reference
from kernels.matmul.formats import FORMATS, INTEGERS
from kernels.matmul.freivalds import FloatCheck
from pipeline.cluster.placement import Placement
from pipeline.engine.array import run_array
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.matmul import FLOATS, KINDS, Array, factors, generator, on_cpu, strange
from workflows.array_job import Checked
from workflows.matmul import MATMUL, MatmulOptions
from workflows.regions import Bounds, Spec

TRIALS = 250
HIDDEN_TRIALS = 1000  # of a rate


def checked(a: Array, b: Array, product: Array, seed: int) -> Checked:
    """The check's verdict on a product."""

    def read(number: int, bounds: Bounds) -> Array:
        return (a, b)[number][tuple(slice(*ends) for ends in bounds)]

    specs = [Spec(array.shape, array.dtype) for array in (a, b)]
    region = tuple((0, length) for length in product.shape)
    return MATMUL.check(read, product, region, specs, MatmulOptions(), np.random.default_rng(seed))


def noticed(a: Array, b: Array, product: Array) -> Array:
    """The least error at which a single wrong element is certainly caught: twice the bound of its row, in its scale."""
    format = FORMATS[product.dtype.name]
    check = FloatCheck(lambda: iter([(a, b)]), product, format, np.random.default_rng(0))
    scales = np.ldexp(1.0, check.scales[0]) * np.ldexp(1.0, check.scales[1])
    # Adding up rounds the error a little.
    return 2 * check.compare()[1] * scales / (1 - 2.0**-40)


def planted(product: Array, place: tuple[int, ...], error: float) -> Array:
    """A copy in which one element is off by at least this."""
    wrong = product.copy()
    value = np.array(float(product[place]) + error).astype(product.dtype)
    while abs(float(value) - float(product[place])) < abs(error):
        value = np.nextafter(value, np.array(np.copysign(np.inf, error), product.dtype))
    wrong[place] = value
    return wrong


@pytest.fixture
def nothing_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave all errors to the sums with random vectors."""
    monkeypatch.setattr(reference.Sample, "wrong", lambda *_: [])


@pytest.mark.usefixtures("nothing_recomputed")
@pytest.mark.parametrize("kind", ["ordinary", "subnormal", "mixed", "blocks", "huge"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_one_wrong_element_above_the_bound_is_always_found(dtype: str, kind: str) -> None:
    a, b = factors(kind, dtype, 12, 40, 15)
    if kind in ("mixed", "blocks"):
        a, b = (np.ldexp(factor, -FORMATS[dtype].top // 2 - 4) for factor in (a, b))  # no sum overflows
    product = on_cpu(a, b)
    assert np.isfinite(product).all() and not checked(a, b, product, 0).details
    least, random = noticed(a, b, product), generator("planted", dtype, kind)
    for trial in range(TRIALS):
        place = tuple(int(random.integers(length)) for length in product.shape)
        size = float(least[place]) * 2.0 ** random.choice([0, 0, 0.001, 1, 5, 20])
        size = max(size, float(np.finfo(dtype).smallest_subnormal))
        with np.errstate(over="ignore"):
            wrong = planted(product, place, size * random.choice([-1, 1]))
        result = checked(a, b, wrong, trial)
        assert result.details and result.elements == product.size, (place, size)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bound_is_twice_gamma_times_what_the_terms_amount_to(dtype: str) -> None:
    """The bound is rounded up, but only a little: it is between exact sums for each row and slightly more."""
    for kind in ("ordinary", "mixed", "blocks"):
        a, b = factors(kind, dtype, 5, 40, 7)
        if kind != "ordinary":
            a, b = (np.ldexp(factor, -FORMATS[dtype].top // 2 - 4) for factor in (a, b))
        check = FloatCheck(lambda a=a, b=b: iter([(a, b)]), on_cpu(a, b), FORMATS[dtype], np.random.default_rng(0))
        bounds = check.compare()[1]
        sums = [Fraction(0)] * 5
        for i, j in np.ndindex(5, 7):
            scale = Fraction(2) ** -int(check.scales[0][i, 0] + check.scales[1][0, j])
            terms = zip(a[i].tolist(), b[:, j].tolist(), strict=True)
            sums[i] += scale * sum(abs(Fraction(x) * Fraction(y)) for x, y in terms)
        unit = Fraction(1, 2 ** FORMATS[dtype].precision)
        lower, upper = 40 * unit + 40 * Fraction(1, 2**53), 2 * (40 + 7 + 1) * unit / (1 - (40 + 7 + 1) * unit)
        for total, bound in zip(sums, bounds[:, 0].tolist(), strict=True):
            assert lower * total <= Fraction(bound)
            if kind == "ordinary":  # nothing underflows
                assert Fraction(bound) <= upper * total * Fraction(10001, 10000)


@pytest.mark.parametrize("dtype", FLOATS)
def test_right_products_of_any_kinds_pass(dtype: str) -> None:
    """Rows of one kind, columns of another: some magnitudes fit the format only in the product."""
    for seed, (rows, columns) in enumerate(product(KINDS, KINDS)):
        a, b = factors(rows, dtype, 9, 30, 5)[0], factors(columns, dtype, 9, 30, 5)[1]
        assert checked(a, b, on_cpu(a, b), seed).details == (), (rows, columns)


@pytest.mark.usefixtures("nothing_recomputed")
@pytest.mark.parametrize("vectors", [1, 3])
def test_errors_that_hide_one_another_escape_no_more_often_than_stated(
    monkeypatch: pytest.MonkeyPatch, vectors: int
) -> None:
    """Two equal errors in a row: half of the random signs cancel them."""
    monkeypatch.setattr(freivalds, "VECTORS", vectors)
    monkeypatch.setattr(FloatCheck, "escape", 2.0**-vectors)
    a, b = factors("ordinary", "float64", 5, 30, 9)
    product = on_cpu(a, b)
    scale = np.ldexp(1.0, np.frexp(np.abs(b).max(0))[1])
    escaped = 0
    for trial in range(HIDDEN_TRIALS):
        wrong = product.copy()
        wrong[trial % 5, 2] += scale[2]
        wrong[trial % 5, 7] -= scale[7]
        result = checked(a, b, wrong, trial)
        assert result.escape == 2.0**-vectors
        escaped += not result.details
    expected = HIDDEN_TRIALS * 2.0**-vectors
    assert abs(escaped - expected) < 5 * np.sqrt(expected)


@pytest.mark.usefixtures("nothing_recomputed")
@pytest.mark.parametrize("dtype", INTEGERS)
def test_one_wrong_integer_is_found(dtype: str) -> None:
    a, b = factors("mixed", dtype, 6, 33, 7)
    product, random = on_cpu(a, b), generator("integers", dtype)
    assert not checked(a, b, product, 0).details
    for trial in range(TRIALS):
        wrong = product.copy()
        place = tuple(int(random.integers(length)) for length in product.shape)
        bit = np.int64(1) << random.integers(0, 64)
        wrong[place] = (wrong[place] ^ bit) if trial % 2 else random.integers(-(2**63), 2**63 - 1)
        assert checked(a, b, wrong, trial).details, (place, wrong[place], product[place])


@pytest.mark.usefixtures("nothing_recomputed")
def test_sums_that_wrapped_are_found() -> None:
    a = np.full((2, 8), 2**62, np.int64)
    b = np.full((8, 2), 3, np.int64)
    with np.errstate(over="ignore"):
        wrapped = a @ b
    assert all(checked(a, b, wrapped, seed).details for seed in range(100))


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_not_finite_is_looked_at_one_by_one(dtype: str) -> None:
    a, b = strange(dtype, 8, 9, 8)
    a[:3], b[:, :3] = np.finfo(dtype).max, np.finfo(dtype).max  # sums that are too large
    a[3], a[4, 4], b[5, 6] = 1, np.inf, np.nan
    product = on_cpu(a, b)
    assert not checked(a, b, product, 0).details and not np.isfinite(product).all() and np.isinf(product[0, 0])
    nonfinite = np.argwhere(~np.isfinite(product))
    for seed, place in enumerate(nonfinite.tolist()):
        for value in (0.0, np.finfo(dtype).max / 4, np.inf, -np.inf, np.nan):
            wrong = product.copy()
            wrong[*place] = value
            if repr(wrong[*place]) != repr(product[*place]):
                assert checked(a, b, wrong, seed).details, (place, value, product[*place])
    for place in np.argwhere(np.isfinite(product)).tolist():
        for value in (np.inf, -np.inf, np.nan):
            wrong = product.copy()
            wrong[*place] = value
            assert checked(a, b, wrong, 1).details, (place, value)


def test_recomputed_elements_have_to_be_right_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = factors("ordinary", "float64", 2, 30, 2)
    product = on_cpu(a, b)
    product[1, 1] = np.nextafter(product[1, 1], 9)
    details = [checked(a, b, product, seed).details for seed in range(20)]
    assert any(details) and all("element [1, 1] of the region: expected" in lines[0] for lines in details if lines)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_stacks_are_checked_matrix_by_matrix(dtype: str) -> None:
    random = generator("stacks", dtype)
    a = (9 * random.standard_normal((3, 1, 4, 5))).astype(dtype)
    b = (9 * random.standard_normal((2, 5, 6))).astype(dtype)
    if dtype == "float32":
        a[1, 0, 2, 2] = np.inf
    product = on_cpu(a, b)
    assert not checked(a, b, product, 0).details
    for seed, place in enumerate(np.ndindex(product.shape)):
        wrong = product.copy()
        wrong[place] = -wrong[place] if product[place] else 1
        assert checked(a, b, wrong, seed).details or np.isnan(product[place])


@pytest.mark.parametrize("verify", ["full", "sample"])
@pytest.mark.parametrize("change", [lambda c: c[::-1], lambda c: c + (c == c.max()), lambda c: c * np.nan])
def test_a_wrong_product_is_not_kept(tmp_path: Path, verify: str, change: Callable[[Array], Array]) -> None:
    """Even if only a sample is requested: the check is cheap and always covers whole regions."""
    a, b = factors("ordinary", "float64", 30, 20, 30)
    sources = []
    for name, array in (("a", a), ("b", b)):
        np.save(tmp_path / f"{name}.npy", array)
        sources.append(open_source((str(tmp_path / f"{name}.npy"),), samples=False))

    def compute(*arguments: Any) -> Any:
        return np.ascontiguousarray(change(MATMUL.compute(*arguments).elements))

    wrong = replace(MATMUL, compute=compute)
    with pytest.raises(VerificationError, match=r"matmul: a number is wrong in region \[.*\] on worker"):
        run_array(
            wrong,
            MatmulOptions(),
            sources,
            str(tmp_path / "c.npy"),
            Settings(placement=Placement(device="cpu"), verify=verify),
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "b.npy"]
