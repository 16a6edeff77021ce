"""Stencils region by region against the definition: every boundary, dtype, axis and cut; planted errors are named."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.engine.array_plan import SAMPLED_SHARE, part_of
from tests.cases.stencil import (
    ADVERSARIAL,
    FLOATS,
    INTEGERS,
    adversarial,
    around,
    expected,
    expected_weighted,
    in_regions,
    numbers,
    same,
    windows,
    wrong,
)
from workflows.regions import Spec, all_of
from workflows.stencil import BOUNDARIES, STENCIL, StencilOptions


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dtype", (*INTEGERS, *FLOATS))
def test_sums_are_exact(dtype: str, boundary: str) -> None:
    x = numbers(dtype, 201)
    for radius in (0, 1, 3, 60, 100, *((201,) if boundary != "valid" else ())):
        right = expected(x, radius, boundary)
        for elements in (1, 50, 1000):
            same(in_regions(x, elements, radius=radius, boundary=boundary), right)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("axis", (0, 1, 2, -2))
def test_axes(axis: int, boundary: str) -> None:
    for dtype in ("int16", "float64"):
        x = numbers(dtype, (12, 13, 11))
        weights = numbers("float32", 11)
        for radius, elements in ((2, 30), (5, 5), (5, 400), (4, 2000)):
            right = expected(x, radius, boundary, axis)
            same(in_regions(x, elements, radius=radius, boundary=boundary, axis=axis), right)
        right = expected_weighted(x, weights, boundary, axis)
        same(in_regions(x, 60, radius=5, boundary=boundary, axis=axis, weights=weights), right)


@pytest.mark.parametrize("radius", (0, 1, 3, 1000, 4096, 9999, 10000))
def test_radii_up_to_the_array(radius: int) -> None:
    x = numbers("int32", 10000)
    for boundary in ("zero", "nearest", "reflect", "wrap"):
        sums = np.append(0, around(x.astype(np.int64), radius, boundary, 0).cumsum())
        same(in_regions(x, 3000, radius=radius, boundary=boundary), sums[2 * radius + 1 :] - sums[: len(x)])
    floats = x.astype(np.float32)  # whose sums are exact in float64
    same(in_regions(floats, 3000, radius=radius, boundary="wrap"),
         expected_by_integers(floats, radius, "wrap"))  # fmt: skip


def expected_by_integers(x: NDArray[Any], radius: int, boundary: str) -> NDArray[np.float64]:
    sums = np.append(0, around(x.astype(np.int64), radius, boundary, 0).cumsum())
    return (sums[2 * radius + 1 :] - sums[: len(x)]).astype(np.float64)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_floats_any_cut(data: Any) -> None:
    """Subnormal numbers, near the largest, of all exponents; infinities and NaN in half of the examples."""
    dtype = data.draw(st.sampled_from(FLOATS))
    special = data.draw(st.booleans())
    floats = st.floats(width=int(dtype[5:]), allow_nan=special, allow_infinity=special)
    values = data.draw(st.lists(floats | st.sampled_from([0.0, -0.0, 1.0, -1.0]), min_size=1, max_size=60))
    x = np.array(values, dtype)
    radius = data.draw(st.integers(0, len(x)))
    boundary = data.draw(st.sampled_from(["zero", "nearest", "reflect", "wrap"]))
    elements = data.draw(st.integers(1, 80))
    same(in_regions(x, elements, radius=radius, boundary=boundary), expected(x, radius, boundary))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_integers_any_cut(data: Any) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS[:6]))
    limits = np.iinfo(dtype)
    x = np.array(data.draw(st.lists(st.integers(limits.min, limits.max), min_size=1, max_size=60)), dtype)
    boundary = data.draw(st.sampled_from(list(BOUNDARIES)))
    radius = data.draw(st.integers(0, (len(x) - 1) // 2 if boundary == "valid" else len(x)))
    elements = data.draw(st.integers(1, 80))
    same(in_regions(x, elements, radius=radius, boundary=boundary), expected(x, radius, boundary))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", ADVERSARIAL)
def test_adversarial_floats(case: str, dtype: str) -> None:
    x = adversarial(case, 300, dtype)
    for radius in (1, 40, 150):
        same(in_regions(x, 90, radius=radius), expected(x, radius))


def test_a_sum_of_negative_zeros_is_zero() -> None:
    same(in_regions(np.full(9, -0.0), 4, radius=2, boundary="nearest"), np.zeros(9))


# --- with weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dtype", (*INTEGERS, *FLOATS))
def test_weighted_sums_in_the_order_of_the_weights(dtype: str, boundary: str) -> None:
    x = numbers(dtype, 101)
    for kind in ("float32", "float64", "int64"):
        for radius in (0, 1, 3, 50):
            weights = numbers(kind, 2 * radius + 1, 3)
            right = expected_weighted(x, weights, boundary)
            same(in_regions(x, 37, radius=radius, boundary=boundary, weights=weights), right)


def test_weighted_specials_and_zeros() -> None:
    x = numbers("float64", (9, 20))
    x[3, 2], x[2, 5], x[3, 5], x[5], x[6] = np.nan, np.inf, -np.inf, -0.0, 1e-310
    weights = np.array([0.0, -0.0, 1e-20, -1.0, np.inf, 3.0, 1.0])
    for axis in (0, 1):
        right = expected_weighted(x, weights, "wrap", axis)
        same(in_regions(x, 30, boundary="wrap", axis=axis, weights=weights), right)


def test_largest_weighted_radius() -> None:
    x, weights = numbers("float32", 9001), numbers("float32", 8193)
    right = np.add.accumulate(windows(x, 4096, "valid").T * weights[:, None], axis=0)[-1]
    same(in_regions(x, 300, radius=4096, boundary="valid", weights=weights), right)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), radius=st.integers(0, 20), dtype=st.sampled_from(["float32", "float64"]))
def test_weighted_sums_are_within_their_bound(seed: int, radius: int, dtype: str) -> None:
    """Each of w products is rounded once and then in at most w - 1 sums: gamma_w * sum|w x|, barring underflow."""
    x, weights = numbers(dtype, 50, seed), numbers(dtype, 2 * radius + 1, seed + 1)
    got = in_regions(x, 20, radius=radius, weights=weights)
    unit = Fraction(1, 2 ** (24 if dtype == "float32" else 53)) * len(weights)
    for total, window in zip(got.tolist(), windows(x, radius), strict=True):
        terms = [Fraction(a) * Fraction(b) for a, b in zip(window.tolist(), weights.tolist(), strict=True)]
        assert abs(Fraction(total) - sum(terms)) <= unit / (1 - unit) * sum(map(abs, terms))


# --- errors that the check reports ------------------------------------------------------------------------------------


def planted(value: Any, random: np.random.Generator) -> Any:
    """A wrong value: the next float, or one further off."""
    if value.dtype.kind != "f":
        return value.dtype.type(int(value) + int(random.choice([1, -1, 2**20, -(2**20)])))
    nearest = np.nextafter(value, value.dtype.type(random.choice([np.inf, -np.inf])))
    return random.choice([nearest, -value if value else -0.0, value * 2 + 1, np.nan, np.inf])


@pytest.mark.parametrize("case", ("int32", "uint64", "float32", "float64", "wide", "weighted"))
def test_every_planted_error_is_found(case: str) -> None:
    random = np.random.default_rng(7)
    options: dict[str, Any] = {"radius": 5, "axis": 0, "boundary": "reflect"}
    if case == "weighted":
        options["weights"] = numbers("float64", 11)
    if case == "wide":
        x = adversarial("all exponents", (40, 1))
    else:
        x = numbers("float32" if case == "weighted" else case, (40, 7))
    right = in_regions(x, 60, **options)
    region = all_of(Spec(right.shape, right.dtype))
    sums = right.copy()
    for _ in range(400):
        place = tuple(random.integers(sums.shape).tolist())
        sums[place] = planted(right[place], random)
        details = wrong(x, sums, region, **options)
        assert len(details) == 1
        assert f"element {place}: expected {right[place]}, got {sums[place]}" == details[0]
        sums[place] = right[place]


def test_a_sample_finds_an_error_as_often_as_it_covers_it() -> None:
    """Of 1000 errors, each in a region of 512, the share that is checked, within four standard deviations."""
    random, share = np.random.default_rng(8), SAMPLED_SHARE["sample"]
    x = numbers("float32", 512)
    right = in_regions(x, 512, radius=3)
    region, caught = ((0, 512),), 0
    for _ in range(1000):
        sums = right.copy()
        place = int(random.integers(512))
        sums[place] = np.nextafter(sums[place], np.inf)
        checked = part_of(region, random, share)
        details = wrong(x, sums, checked, radius=3)
        caught += bool(details)
        assert bool(details) == (checked[0][0] <= place < checked[0][1])
    assert abs(caught - 1000 / share) <= 4 * math.sqrt(1000 / share)


def test_many_errors_are_counted() -> None:
    x = np.arange(20)
    sums = in_regions(x, 20, radius=1)
    sums[4:9] += 1
    assert wrong(x, sums, ((0, 20),), radius=1) == (
        "element (4,): expected 12, got 13", "element (5,): expected 15, got 16", "element (6,): expected 18, got 19",
        "2 more",
    )  # fmt: skip


# --- invalid options --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((10,), {"radius": 11}, "radius: expected at most 10, the length of axis 0 of int32 10, got 11"),
        ((4, 9), {"radius": 5, "axis": 0}, "at most 4, the length of axis 0 of int32 4×9, got 5"),
        ((10,), {"radius": 5, "boundary": "valid"}, "at most 4 with --boundary valid, .* axis 0 of int32 10, got 5"),
        ((0,), {"radius": 1}, "radius: expected at most 0"),
        ((10,), {"axis": 1}, "axis: expected one of the 1 axes of int32 10, got 1"),
        ((), {}, "axis: expected one of the 0 axes"),
        ((2**33,), {"radius": 2**31}, "at most 2147483647, so that sums of int32 fit into int64, got 2147483648"),
    ],
)
def test_what_does_not_fit_the_array(shape: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        STENCIL.outline([Spec(shape, np.dtype(np.int32))], StencilOptions(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": -1}, "radius: expected 0 or more, got -1"),
        ({"boundary": "mirror"}, "boundary: expected one of zero, nearest, reflect, wrap, valid, got 'mirror'"),
        ({"weights": np.ones(6)}, "weights: expected 7 of them for radius 3, got 6"),
        ({"weights": np.ones((7, 1))}, "weights: expected a row of integers or floats, got float64 of shape"),
        ({"weights": np.ones(7, complex)}, "weights: expected a row of integers or floats, got complex128"),
        ({"weights": [1, 1, 1]}, "weights: expected a NumPy array, got list"),
        ({"radius": 4097, "weights": np.ones(8195)}, "radius: expected at most 4096 with weights, got 4097"),
    ],
)
def test_options_that_cannot_be(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StencilOptions(**options)


@pytest.mark.parametrize("dtype", ("complex64", "bool", "longdouble"))
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="expected an array of integers or floats of at most 64 bits, got"):
        STENCIL.outline([Spec((9,), np.dtype(dtype))], StencilOptions())
