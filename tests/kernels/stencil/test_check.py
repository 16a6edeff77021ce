"""check.cpp against the reference by NumPy and against exact sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.stencil import check
from kernels.stencil.check import right_sums
from kernels.stencil.cpu import box_cpu
from kernels.stencil.reference import wrong_sums
from tests.cases import cpp as cpp_cases
from tests.cases.stencil import exact

SOURCE = check.SOURCE
pytestmark = pytest.mark.usefixtures("compiled")


def right(x: NDArray[Any], sums: Any, width: int) -> list[bool]:
    answers = right_sums(np.atleast_2d(x), np.atleast_2d(np.asarray(sums)), width)
    assert answers is not None
    return [bool(answer) for answer in answers[0]]


def test_accepts_what_the_reference_accepts() -> None:
    """Every dtype; right sums, the next floats and other numbers; samples of all exponents."""
    assert cpp_cases.check_stencil() > 2000


@settings(max_examples=160, deadline=None)
@given(data=st.data())
def test_right_is_the_exact_sum_rounded(data: st.DataObject) -> None:
    """Sums of about 64 and 128 bits and wider ones, in all parts of the range, with many ties."""
    spread = data.draw(st.sampled_from([0, 1, 4, 10, 40, 60, 64, 68, 400, 2000]))
    bits = data.draw(st.sampled_from([1, 2, 30, 53]))
    first = data.draw(st.sampled_from([-1074, -1060, -1022, -500, -1, 0, 400, 800, 900]))
    integers = data.draw(st.lists(st.integers(1 - 2**bits, 2**bits - 1), min_size=1, max_size=12))
    places = data.draw(st.lists(st.integers(0, spread), min_size=len(integers), max_size=len(integers)))
    x = np.array([np.ldexp(float(n), min(first + place, 970)) for n, place in zip(integers, places, strict=True)])
    width = data.draw(st.integers(1, len(x)))
    sums = np.array([exact(x[i : i + width]) for i in range(len(x) - width + 1)])
    with np.errstate(all="ignore"):
        for other in (
            sums,
            np.nextafter(sums, np.inf),
            np.nextafter(sums, -np.inf),
            -sums,
            sums * 2,
            sums / 2,
            sums * 2.0**9,
        ):
            assert right(x, other, width) == (other.view(np.int64) == sums.view(np.int64)).tolist()


def test_ties_are_even_and_steps_below_a_power_of_two_are_smaller() -> None:
    below, odd = np.nextafter(1.0, 0), 1 + 2.0**-52
    for terms, total, wrong in [
        ([1.0, 2.0**-53], 1.0, odd), ([odd, 2.0**-53], 1 + 2.0**-51, odd), ([1.0, -(2.0**-54)], 1.0, below),
        ([1.0, -(2.0**-55)], 1.0, below), ([1.0, -3 * 2.0**-55], below, 1.0), ([2.0**53, 1.0], 2.0**53, 2.0**53 + 2),
        ([2.0**53, -1.0], 2.0**53 - 1, 2.0**53), ([2.0**54, -1.0], 2.0**54, 2.0**54 - 2),
        ([2.0**-1022, -(2.0**-1074)], 2.0**-1022 - 2.0**-1074, 2.0**-1022), ([3.0, -3.0], 0.0, -0.0),
    ]:  # fmt: skip
        for sign in (1.0, -1.0):
            assert right(sign * np.array(terms), [sign * total if total else 0.0], 2) == [True]
            assert right(sign * np.array(terms), [sign * wrong if wrong else -0.0], 2) == [False]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_infinities_and_nan_of_the_samples(dtype: str) -> None:
    x = np.array([1, np.inf, 2, 3, -np.inf, np.nan, 4, 5, -np.inf, 6, 7], dtype)
    sums = [np.inf, np.inf, -np.inf, np.nan, np.nan, np.nan, -np.inf, -np.inf, -np.inf]
    assert all(right(x, sums, 3))
    for wrong in (1.0, -np.array(sums)):
        answers = right(x, np.where(np.isnan(sums), 1.0, wrong), 3)
        assert not any(answers)
    assert not any(right(x, np.where(np.isnan(sums), -np.nan, -np.array(sums)), 3))  # there is one NaN


def test_rows_longer_than_a_block() -> None:
    """One wrong sum, wherever it is, is the only one reported; windows may be longer than a block."""
    random = np.random.default_rng(0)
    for radius in (3, 20_000):
        x = random.standard_normal((2, 60_000 + 2 * radius)).astype(np.float32)
        sums = box_cpu(x, radius)
        assert sums.shape == (2, 60_000) and not wrong_sums(x, sums, radius).any()
        for place in (0, 16_383, 16_384, 40_000, 40_002, 59_999):
            wrong = sums.copy()
            wrong[1, place] = np.nextafter(wrong[1, place], 0)
            assert np.argwhere(wrong_sums(x, wrong, radius)).tolist() == [[1, place]]


def test_one_number_far_from_the_others_is_in_a_block_of_its_own() -> None:
    """Every wrong sum is found beside it, in its block and in the next ones."""
    x = np.ones((2, 20_000))
    x[1, 10_000] = 2.0**500
    for radius in (1, 200):
        sums = box_cpu(x, radius)
        assert not wrong_sums(x, sums, radius).any()
        for place in (0, 9_000, 9_999, 10_000 - radius, 10_300, len(sums[0]) - 1):
            wrong = sums.copy()
            wrong[1, place] = np.nextafter(wrong[1, place], np.inf)
            assert np.argwhere(wrong_sums(x, wrong, radius)).tolist() == [[1, place]]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_infinite_sums_of_finite_samples(sign: float) -> None:
    """From half a step above the greatest number on."""
    most = float(np.finfo(np.float64).max)
    for terms, total in [([most, most], np.inf), ([most, 2.0**970], np.inf), ([most, 2.0**969], most),
                         ([most, np.nextafter(2.0**970, 0)], most)]:  # fmt: skip
        x = sign * np.array(terms)
        assert right(x, [sign * total], 2) == [True]
        assert not any(right(x, [other], 2)[0] for other in (-sign * total, sign * (most if total > most else np.inf)))
        assert right(x, [np.nan], 2) == [False]
