"""The reference that checks window sums, without compiled code: right sums pass, every other float is rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.stencil.cpu import box_cpu
from kernels.stencil.reference import wrong_sums
from tests.cases.stencil import ADVERSARIAL, FLOATS, adversarial, exact, numbers


@pytest.fixture(autouse=True, scope="module")
def without_compiler() -> Any:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(cxx, "library", lambda source: None)
        yield


def right(x: NDArray[Any], sums: NDArray[np.float64] | list[float], width: int) -> NDArray[np.bool_]:
    """Which window sums of one row the reference accepts; windows of even width get an extra zero."""
    x, sums = np.asarray(x), np.asarray(sums)
    if width % 2:
        return np.asarray(~wrong_sums(x[None], sums[None], width // 2)[0])
    rows = np.array([np.append(x[i : i + width], 0) for i in range(len(sums))], x.dtype)
    return np.asarray(~wrong_sums(rows, sums[:, None], width // 2)[:, 0])


def sums_of(x: NDArray[Any], width: int) -> NDArray[np.float64]:
    return np.array([exact(x[i : i + width]) for i in range(len(x) - width + 1)])


def same_bits(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(a.view(np.int64) == b.view(np.int64))


@st.composite
def samples(draw: st.DrawFn) -> NDArray[Any]:
    """Few or many exponents, in any part of the range; so few bits that many sums are ties, or all bits."""
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
def test_only_the_exact_sum_rounded_is_right(x: NDArray[Any], data: st.DataObject) -> None:
    width = data.draw(st.integers(1, len(x)))
    sums = sums_of(x, width)
    with np.errstate(all="ignore"):
        others = [sums, np.nextafter(sums, np.inf), np.nextafter(sums, -np.inf), -sums, 0.0 * sums, sums / 2]
        others += [sums + data.draw(st.floats()), np.full(len(sums), data.draw(st.floats()))]
    for other in others:
        assert (right(x, other, width) == same_bits(other, sums)).all()


@pytest.mark.parametrize("radius", [0, 3, 100])
@pytest.mark.parametrize("scale", [0, 900, -950, -1010])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "integers", "zeros", "uniform", "two bits"])
def test_ordinary_sums_are_right_and_their_neighbours_wrong(kind: str, scale: int, radius: int) -> None:
    random = np.random.default_rng(3)
    other = {
        "integers": lambda: random.integers(-512, 512, 3000) * 1.0,
        "zeros": lambda: np.zeros(3000),
        "uniform": lambda: random.random(3000),  # multiples of 2**-53: a sum has fewer bits
        "two bits": lambda: random.choice([1.0, -1.0, 2.0**-53, -(2.0**-53), 0.0], 3000).astype(np.float32),
    }
    x = other[kind]() if kind in other else numbers(kind, 3000)
    if x.dtype == np.float64:
        x = np.ldexp(x, scale)
    sums = box_cpu(x[None], radius)[0]
    assert right(x, sums, 2 * radius + 1).all()
    for towards in (np.inf, -np.inf):
        assert not right(x, np.nextafter(sums, towards), 2 * radius + 1).any()


@pytest.mark.parametrize("case", [case for case in ADVERSARIAL if case not in ("specials", "bits")])
def test_sums_of_numbers_far_apart_are_right(case: str) -> None:
    x = adversarial(case, 400, "float32")
    assert right(x, box_cpu(x[None], 20)[0], 41).all()


def test_ties_go_to_even() -> None:
    odd = 1 + 2.0**-52
    for first, even in ((1.0, 1.0), (odd, 1 + 2.0**-51)):
        for sign in (1, -1):
            x = sign * np.array([first, 2.0**-53])
            assert right(x, [sign * even], 2).all()
            assert not right(x, [sign * odd], 2).any()


def test_steps_below_a_power_of_two_are_smaller() -> None:
    below = np.nextafter(1.0, 0)
    x = np.array([1.0, -(2.0**-54)])  # halfway between the power of two and the number below it
    assert right(x, [1.0], 2).all()
    assert not right(x, [below], 2).any()
    x = np.array([1.0, 3 * 2.0**-55])  # above the power of two, steps have their full size
    assert right(x, [1.0], 2).all()
    assert not right(-x, [1.0], 2).any()
    x = np.array([1.0, -(2.0**-54), -(2.0**-60)])
    assert right(x, [below], 3).all()
    assert not right(x, [1.0], 3).any()


def test_sums_that_cancel() -> None:
    """Large samples whose sum is zero, or has only low digits."""
    x = np.array([2.0**900, -(2.0**900), 2.0**900])
    for wrong in (5e-324, -5e-324, 1.0, 2.0**800, -0.0):
        assert not right(x, [wrong, wrong], 2).any()
    assert right(x, [0.0, 0.0], 2).all()
    x = np.array([2.0**60, 2.0**60 - 2.0**8, -(2.0**61) + 2.0**9, 1.0])
    sums = sums_of(x, 4)
    assert right(x, sums, 4).all()
    for off in (2.0**-44, 2.0**-30, 0.5, 1.0):
        assert not right(x, sums + off, 4).any()


def test_windows_of_zeros_have_no_other_sum_than_zero() -> None:
    """Next to samples of any magnitude: zero is a multiple of every unit."""
    for beside in (0.0, 1.0, 2.0**-1074, 2.0**900):
        x = np.array([0.0, -0.0, 0.0, 0.0, beside])
        assert right(x, [0.0, 0.0, beside], 3).all()
        for wrong in (-0.0, 5e-324, -5e-324, 2.0**-1000, 1.0, -(2.0**800), np.inf, np.nan):
            assert right(x, [wrong, 0.0, beside], 3).tolist() == [False, True, True]
