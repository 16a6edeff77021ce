"""What is said to be right for sure is right; and nearly all that is right is said to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.stencil.reference import box_wrong
from kernels.stencil.rounding import surely_right
from kernels.stencil.windows import box_cpu
from tests.cases.stencil import ADVERSARIAL, FLOATS, adversarial, exact, numbers


def sums(x: NDArray[Any], width: int) -> NDArray[np.float64]:
    return np.array([exact(x[i : i + width]) for i in range(len(x) - width + 1)])


def same_bits(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(a.view(np.int64) == b.view(np.int64))


@st.composite
def samples(draw: st.DrawFn) -> NDArray[Any]:
    """Of few or of many exponents, in any place of the range; of so few bits that many sums are ties, or of all."""
    dtype = draw(st.sampled_from(FLOATS))
    limits = np.finfo(dtype)
    low, high = int(limits.minexp - limits.nmant), int(limits.maxexp)
    bits = draw(st.sampled_from([1, 2, int(limits.nmant) + 1]))
    spread = draw(st.sampled_from([0, 1, 30, 60, 110, 200, 2000]))
    first = draw(st.integers(low, high))
    integers = draw(st.lists(st.integers(1 - 2**bits, 2**bits - 1), min_size=1, max_size=30))
    places = draw(st.lists(st.integers(0, spread), min_size=len(integers), max_size=len(integers)))
    with np.errstate(all="ignore"):
        x = np.ldexp(np.array(integers, float), first - np.array(places) - bits).astype(dtype)
    return np.where(np.isfinite(x), x, x.dtype.type(1))


@settings(max_examples=150, deadline=None)
@given(x=samples(), data=st.data())
def test_nothing_wrong_is_right_for_sure(x: NDArray[Any], data: st.DataObject) -> None:
    width = data.draw(st.integers(1, len(x)))
    right = sums(x, width)
    with np.errstate(all="ignore"):
        others = [right, np.nextafter(right, np.inf), np.nextafter(right, -np.inf), -right, 0.0 * right, right / 2]
        others += [right + data.draw(st.floats()), np.full(len(right), data.draw(st.floats()))]
    for found in others:
        sure = surely_right(x, found, width)
        assert not (sure & ~same_bits(found, right)).any()
        if width % 2:
            assert (box_wrong(x[None], found[None], width // 2)[0] == ~same_bits(found, right)).all()


@pytest.mark.parametrize("radius", [0, 3, 100])
@pytest.mark.parametrize("scale", [0, 900, -950, -1010])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "integers", "zeros", "uniform", "two bits"])
def test_what_is_usual_is_sure(kind: str, scale: int, radius: int) -> None:
    """Ties and powers of two, too: the slow way is for what is rare."""
    random = np.random.default_rng(3)
    other = {
        "integers": lambda: random.integers(-512, 512, 3000) * 1.0,
        "zeros": lambda: np.zeros(3000),
        "uniform": lambda: random.random(3000),  # multiples of 2**-53: three digits more than a sum has
        "two bits": lambda: random.choice([1.0, -1.0, 2.0**-53, -(2.0**-53), 0.0], 3000).astype(np.float32),
    }
    x = other[kind]() if kind in other else numbers(kind, 3000)
    if x.dtype == np.float64:
        x = np.ldexp(x, scale)
    found = box_cpu(x[None], radius)[0]
    assert surely_right(x, found, 2 * radius + 1).all()


@pytest.mark.parametrize("case", [case for case in ADVERSARIAL if case not in ("specials", "bits", "ties")])
def test_numbers_far_apart_are_sure_or_left_to_others(case: str) -> None:
    x = adversarial(case, 400, "float32")
    found = box_cpu(x[None], 20)[0]
    assert surely_right(x, found, 41).mean() > 0.99


def test_samples_beyond_all_digits_are_never_sure() -> None:
    x = np.array([2.0**500, 2.0**-500])
    assert surely_right(x, x, 1).tolist() == [False, False]
    assert not box_wrong(x[None], x[None], 0).any()


def test_ties_are_even() -> None:
    odd = 1 + 2.0**-52
    for first, even in ((1.0, 1.0), (odd, 1 + 2.0**-51)):
        for sign in (1, -1):
            x = sign * np.array([first, 2.0**-53])
            assert surely_right(x, np.array([sign * even]), 2).all()
            assert not surely_right(x, np.array([sign * odd]), 2).any()


def test_below_a_power_of_two_steps_are_smaller() -> None:
    below = np.nextafter(1.0, 0)
    x = np.array([1.0, -(2.0**-54)])  # halfway between the power and what is next below it
    assert surely_right(x, np.array([1.0]), 2).all()
    assert not surely_right(x, np.array([below]), 2).any()
    x = np.array([1.0, 3 * 2.0**-55])  # above it they are as large as they seem
    assert surely_right(x, np.array([1.0]), 2).all()
    assert not surely_right(-x, np.array([1.0]), 2).any()
    x = np.array([1.0, -(2.0**-54), -(2.0**-60)])
    assert surely_right(x, np.array([below]), 3).all()
    assert not surely_right(x, np.array([1.0]), 3).any()


def test_numbers_that_vanish_in_the_unit() -> None:
    """Samples are so large that what was found is zero next to them, or no multiple of their unit."""
    x = np.array([2.0**900, -(2.0**900), 2.0**900])
    for wrong in (5e-324, -5e-324, 1.0, 2.0**800, -0.0):
        assert not surely_right(x, np.array([wrong, wrong]), 2).any()
    assert surely_right(x, np.zeros(2), 2).all()
    x = np.array([2.0**60, 2.0**60 - 2.0**8, -(2.0**61) + 2.0**9, 1.0])  # cancels in the high digits
    right = sums(x, 4)
    assert surely_right(x, right, 4).all()
    for off in (2.0**-44, 2.0**-30, 0.5, 1.0):
        assert not surely_right(x, right + off, 4).any()
