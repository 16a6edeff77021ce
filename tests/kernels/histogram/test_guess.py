"""Positions of keys against exact arithmetic: every rounding that guess.cuh makes, done with fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.guess import KEYS, MOST, Guess, key_of, make_guess, steps_of
from kernels.histogram.launch import C_TYPES
from tests.cases.histogram import EDGES, beside, nasty

WIDE = [dtype for dtype in C_TYPES if np.dtype(dtype).itemsize > 1]
KEY_DTYPES = ("int32", "uint32", "int64", "uint64", "float32", "float64")


def nearest(number: Fraction, real: Any) -> Fraction | float:
    """The float next to a number, ties to even; infinity beyond the largest."""
    bits, least = (24, -149) if real is np.float32 else (53, -1074)
    if not number:
        return number
    magnitude = abs(number)
    exponent = math.floor(math.log2(magnitude.numerator) - math.log2(magnitude.denominator))
    while Fraction(2) ** exponent > magnitude:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    rounded = round(number / unit) * unit  # Python rounds halves to even
    return rounded if abs(rounded) <= Fraction(float(np.finfo(real).max)) else math.inf if number > 0 else -math.inf


def rounded_down(number: Fraction) -> Fraction | float:
    """The largest float32 that is no larger."""
    near = nearest(number, np.float32)
    if near in (math.inf, -math.inf):
        return -math.inf if number < 0 else Fraction(float(np.finfo(np.float32).max))
    if near <= number:
        return near
    return Fraction(float(np.nextafter(np.float32(float(near)), np.float32(-np.inf))))


def position(key: Any, guess: Guess) -> int:
    """Position of a key as guess.cuh computes it: each operation exactly, then rounded as the kernel's is."""
    real = type(guess.scale)
    if isinstance(key, np.integer):
        far = nearest(Fraction(max(int(key), int(guess.start)) - int(guess.start)), real)
    elif np.isinf(key):
        return MOST if key > 0 else -1
    else:
        far = nearest(Fraction(float(key)) - Fraction(float(guess.start)), real)
    if far in (math.inf, -math.inf):
        return MOST if far > 0 else -1
    place: Fraction | float = far * Fraction(float(guess.scale))
    if real is np.float64:
        place = nearest(Fraction(place), np.float64)
        if place not in (math.inf, -math.inf):
            place = rounded_down(Fraction(place))
    if place in (math.inf, -math.inf):
        return MOST if place > 0 else -1
    return min(max(math.floor(place), -1), MOST)


def assert_exact(guess: Guess, keys: NDArray[Any]) -> None:
    """Compare positions one by one, and verify that they never decrease."""
    got = guess.positions(keys)
    assert got.tolist() == [position(key, guess) for key in keys]
    assert (np.diff(guess.positions(np.sort(keys))) >= 0).all()


@pytest.mark.parametrize("dtype", KEY_DTYPES)
def test_positions_are_those_of_exact_arithmetic(dtype: str) -> None:
    key = np.dtype(dtype)
    for name, (numbers, _) in EDGES.items():
        edges = np.asarray(numbers, np.float64)
        with np.errstate(invalid="ignore"):
            keys = np.concatenate((nasty(dtype, 150, edges), beside(Binning(key, edges, False))[:200]))
            keys = keys[keys == keys]
        span = Fraction(float(edges[-1])) - Fraction(float(edges[0]))
        guess = make_guess(Fraction(float(edges[0])), (len(edges) - 1) / span, key)
        if guess:
            assert guess.start.dtype == key, name
            assert_exact(guess, keys)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_positions_of_any_keys_and_maps(data: st.DataObject) -> None:
    key = np.dtype(data.draw(st.sampled_from(KEY_DTYPES)))
    if key.kind == "f":
        some: Any = st.floats(allow_nan=False, allow_infinity=False, width=8 * key.itemsize)  # type: ignore[call-overload]
    else:
        some = st.integers(int(np.iinfo(key).min), int(np.iinfo(key).max))
    real = np.float64 if key.itemsize == 8 else np.float32
    scale = real(data.draw(st.floats(2.0**-60, 2.0**60, width=32)))
    keys = np.array(data.draw(st.lists(some, min_size=1, max_size=20)), key)
    guess = Guess(key.type(data.draw(some)), scale)
    # Where a position becomes the next one, too.
    with np.errstate(all="ignore"):
        steps = np.arange(1, 20) / float(scale)
        if key.kind == "f":
            steps = (steps + float(guess.start)).astype(key)
            keys = np.concatenate(
                (keys, steps, np.nextafter(steps, key.type(-np.inf)), np.array([np.inf, -np.inf], key))
            )
        else:
            most = int(np.iinfo(key).max)
            near = [int(guess.start) + math.ceil(step) + by for step in steps if step < most for by in (-1, 0)]
            keys = np.append(keys, np.array([min(number, most) for number in near], key)).astype(key)
    assert_exact(guess, keys)


def test_no_map_where_a_number_has_no_place() -> None:
    for start, scale, dtype in (
        (Fraction(0), Fraction(0), "int32"),
        (Fraction(0), Fraction(10) ** 39, "float32"),
        (Fraction(10) ** 39, Fraction(1), "float32"),
        (Fraction(10) ** 308, Fraction(1), "float64"),
        (Fraction(0), Fraction(-1), "float64"),
    ):
        assert make_guess(start, scale, np.dtype(dtype)) is None
    low = make_guess(Fraction(-5), Fraction(1), np.dtype("uint32"))
    assert low is not None and low.start == 0  # the first key there is


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("name", EDGES)
def test_steps_are_the_samples_before_thresholds(dtype: str, name: str) -> None:
    """A sample has passed a threshold exactly if it is greater than its step, and never the step after the last."""
    binning = Binning(np.dtype(dtype), np.asarray(EDGES[name][0], np.float64), False)
    steps, least = steps_of(binning.thresholds)
    assert steps.dtype == key_of(binning.dtype) == np.dtype(KEYS.get(dtype, dtype))
    assert len(steps) == len(binning.thresholds) + 1
    with np.errstate(invalid="ignore"):
        samples = np.concatenate((beside(binning), nasty(dtype, 300, binning.edges)))
    keys = samples[samples == samples]
    assert not (keys.astype(steps.dtype) > steps[-1]).any()
    for step, threshold in zip(steps[least:-1], binning.thresholds[least:], strict=True):
        np.testing.assert_array_equal(keys.astype(steps.dtype) > step, keys >= threshold)
    assert (binning.find(keys) >= least).all()
    assert least == (0 if np.dtype(dtype).kind == "f" else int((binning.thresholds == np.iinfo(dtype).min).sum()))
