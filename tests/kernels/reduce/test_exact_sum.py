"""Exact sums against rational arithmetic, and rounding once against decimal arithmetic of many digits."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from kernels.reduce import exact_sum
from kernels.reduce.exact_sum import SQUARE_BITS, STEP, SUM_BITS
from tests.cases.reduce import FINITE as FINITE_CASES
from tests.cases.reduce import FLOATS, case

FINITE = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def check_floats(values: NDArray[np.float64], narrow: bool = False) -> None:
    exact = [Fraction(value) for value in values.tolist()]
    assert Fraction(exact_sum.sum_floats(values), 2**SUM_BITS) == sum(exact)
    squares = exact_sum.sum_squares_of_floats(values, narrow)
    assert Fraction(squares, 2**SQUARE_BITS) == sum(value * value for value in exact)


@settings(max_examples=120, deadline=None)
@given(arrays("float64", st.integers(0, 40), elements=FINITE))
@example(np.array([1.7976931348623157e308] * 9 + [-1.7976931348623157e308] * 9 + [5e-324]))
@example(np.array([2.0**1000, 2.0**999, 2.0**900, -(2.0**899), 2.0**500, 2.0**-400, 2.0**-401, 2.0**-1022, 5e-324]))
def test_float_sums_are_exact(values: NDArray[np.float64]) -> None:
    check_floats(values)


@settings(max_examples=40, deadline=None)
@given(arrays("float32", st.integers(0, 40), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_squares_of_narrow_floats_are_exact(values: NDArray[np.float32]) -> None:
    check_floats(values.astype(np.float64), narrow=True)


@pytest.mark.parametrize("name", FINITE_CASES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_many_are_exact(dtype: str, name: str) -> None:
    check_floats(case(name, dtype, 5000).astype(np.float64), dtype != "float64")


@pytest.mark.parametrize("value", [2.0 - 2**-52, 1.9 * 2.0**1023, -1.3 * 2.0**900, 1.7 * 2.0**-1022])
def test_as_many_as_are_taken_at_a_time_do_not_overflow(value: float) -> None:
    total = exact_sum.sum_floats(np.full(2**17, value))
    assert Fraction(total, 2**SUM_BITS) == Fraction(value) * 2**17
    squares = exact_sum.sum_squares_of_floats(np.full(2**17, value), narrow=False)
    assert Fraction(squares, 2**SQUARE_BITS) == Fraction(value) ** 2 * 2**17


@pytest.mark.parametrize("dtype", INTEGERS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_integer_sums_are_exact(dtype: str, data: st.DataObject) -> None:
    values = data.draw(arrays(dtype, st.integers(0, 40)))
    assert exact_sum.sum_integers(values) == sum(values.tolist())
    assert exact_sum.sum_squares_of_integers(values) == sum(value * value for value in values.tolist())


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_sums_do_not_wrap(dtype: str) -> None:
    assert STEP <= 2**15
    for value in (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)):
        values: NDArray[Any] = np.full(2**15, value, dtype)
        assert exact_sum.sum_integers(values) == value * 2**15
        assert exact_sum.sum_squares_of_integers(values) == value**2 * 2**15


@given(st.integers(-(2**319), 2**319 - 1))
def test_words_are_two_s_complement(value: int) -> None:
    words = exact_sum.to_words(value, 5)
    assert words.shape == (5,) and words.dtype == np.int64
    assert sum((int(word) % 2**64) << 64 * i for i, word in enumerate(words)) == value % 2**320
    assert exact_sum.from_words(words) == value


def test_words_hold_the_sums_of_2_63_samples() -> None:
    largest = int(np.finfo(np.float64).max)
    for value in (largest, -largest):
        total = value * 2**63 << SUM_BITS
        assert exact_sum.from_words(exact_sum.to_words(total, exact_sum.SUM_WORDS)) == total
    squares = largest**2 * 2**63 << SQUARE_BITS
    assert exact_sum.from_words(exact_sum.to_words(squares, exact_sum.SQUARE_WORDS)) == squares
    assert exact_sum.whole(5e-324, SUM_BITS) == 2 ** (SUM_BITS - 1074)


@given(st.integers(-(10**40), 10**40), st.integers(1, 10**40), st.integers(-1100, 1100))
def test_quotient_is_rounded_to_nearest(numerator: int, denominator: int, exponent: int) -> None:
    value = Fraction(numerator, denominator) * Fraction(2) ** exponent
    got = exact_sum.quotient(value)
    if math.isinf(got):
        assert abs(value) >= Fraction(2) ** 1024 - Fraction(2) ** 970
        return
    for neighbour in (math.nextafter(got, math.inf), math.nextafter(got, -math.inf)):
        assert math.isinf(neighbour) or abs(value - Fraction(got)) <= abs(value - Fraction(neighbour))


def test_quotient_of_ties_is_even_and_of_too_much_infinite() -> None:
    assert exact_sum.quotient(Fraction(2**53 + 1)) == 2.0**53
    assert exact_sum.quotient(Fraction(2**53 + 3)) == 2.0**53 + 4
    assert exact_sum.quotient(Fraction(1, 2**1075)) == 0
    assert exact_sum.quotient(Fraction(3, 2**1075)) == 1e-323
    assert exact_sum.quotient(Fraction(-(2**1024))) == -math.inf
    assert exact_sum.quotient(Fraction(2**1024 - 2**970)) == math.inf


@given(st.integers(0, 10**60), st.integers(1, 10**40), st.integers(-2100, 1900))
@example(2**106 - 2**54 + 1, 1, 0)
@example((2**53 + 1) ** 2, 4, 0)
@example((2**53 + 1) ** 2 + 1, 4, 0)
@example((2**53 + 1) ** 2 - 1, 4, 0)
def test_square_root_is_rounded_to_nearest(numerator: int, denominator: int, exponent: int) -> None:
    value = Fraction(numerator, denominator) * Fraction(2) ** exponent
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 2000, 10**6, -(10**6)
        root = (Decimal(value.numerator) / Decimal(value.denominator)).sqrt()
        expected = exact_sum.quotient(Fraction(root))
    assert exact_sum.square_root(value) == expected


def test_square_root_of_squares_and_of_the_smallest() -> None:
    for value in (0.0, 1.0, 3.0, 0.1, 1e150, 5e-324 * 7, 1.7e308):
        assert exact_sum.square_root(Fraction(value) ** 2) == value
    assert exact_sum.square_root(Fraction(2)) == math.sqrt(2)
    assert exact_sum.square_root(Fraction(1, 2**2149)) == 5e-324  # above the tie with zero
    assert exact_sum.square_root(Fraction(1, 2**2150)) == 0  # the tie goes to even
