"""Partials by the compiled function: against NumPy, the reference and fsum; the fallback to NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.reduce import cpu
from kernels.reduce import partial as layout
from kernels.reduce.cpu import _fill_compiled, reduce_cpu
from kernels.reduce.exact_sum import SQUARE_BITS, SUM_BITS, from_words, quotient, whole
from kernels.reduce.partial import EXTREMES, SQUARES, SUM
from kernels.reduce.reference import reduce_reference
from tests.cases import cpp as native_cases
from tests.cases.reduce import DTYPES, case, spread, two_sizes

pytestmark = pytest.mark.usefixtures("compiled")

ALL = SUM | SQUARES | EXTREMES
BLOCK = 4096  # as of reduce/cpu.cpp

SOURCE = cpu.SOURCE


def filled(samples: NDArray[Any], parts: int = ALL) -> NDArray[np.int64]:
    partial = layout.empty(samples.dtype, parts, len(samples))
    assert _fill_compiled(partial, samples, parts)
    return partial


def test_what_numpy_finds() -> None:
    """Every dtype and kind of samples; arrays of all sizes, unaligned and strided."""
    assert native_cases.check_reduce() > 15_000


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_anything_among_ordinary_numbers(dtype: str, data: st.DataObject) -> None:
    """Numbers of two magnitudes, with special values anywhere among them."""
    numbers = two_sizes(data, dtype, BLOCK)
    np.testing.assert_array_equal(filled(numbers), reduce_reference(numbers, ALL))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("apart", [10, 60, 2000])
def test_sum_is_fsum(dtype: str, apart: int) -> None:
    numbers = spread(dtype, apart)
    assert quotient(exact(filled(numbers)[layout.SUM_AT], SUM_BITS)) == math.fsum(numbers)


def exact(words: NDArray[np.int64], bits: int) -> Any:
    from fractions import Fraction

    return Fraction(from_words(words), 2**bits)


@pytest.mark.parametrize(
    "value", [1.0, 2.0**1023 * 1.9, -(2.0**-1074), 2.0**-1022 * 1.7, -1.1, 2.0**-537, 2.0**511 * 1.3]
)
def test_equal_numbers(value: float) -> None:
    """Sums of squares of all exponents: some overflow float64, some underflow."""
    partial = filled(np.full(BLOCK + 3, value))
    assert from_words(partial[layout.SUM_AT]) == whole(value, SUM_BITS) * (BLOCK + 3)
    assert from_words(partial[layout.SQUARES_AT]) == whole(value, SQUARE_BITS // 2) ** 2 * (BLOCK + 3)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if "int" in name])
def test_integers_at_their_limits(dtype: str) -> None:
    """No block overflows, and extremes span all blocks."""
    bounds = np.iinfo(dtype)
    for low, high in ((bounds.min, bounds.min), (bounds.max, bounds.max), (bounds.min, bounds.max)):
        samples = np.full(3 * BLOCK + 5, low, dtype)
        samples[BLOCK + 7 :: 2] = high
        partial = filled(samples)
        numbers = samples.tolist()
        assert from_words(partial[layout.SUM_AT]) == sum(numbers) << SUM_BITS
        assert from_words(partial[layout.SQUARES_AT]) == sum(n * n for n in numbers) << SQUARE_BITS
        assert partial[layout.MIN_AT] == 0 and partial[layout.MAX_AT] == 2 * (BLOCK + 7) * (low < high)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("first", [0, 1, 63, 64, 4095, 4096, 4100, 9000])
def test_of_equal_extremes_the_first_counts(dtype: str, first: int) -> None:
    samples = np.full(10_000, 5, dtype)
    samples[[first, 9500]] = 3
    samples[[first + 1, 9600]] = 7
    samples[9700] = 6
    partial = filled(samples)
    assert (partial[layout.MIN_AT], partial[layout.MAX_AT]) == (2 * first, 2 * first + 2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_zeros_are_equal_and_the_first_keeps_its_sign(dtype: str) -> None:
    for signs in ([1, -1], [-1, 1]):
        samples = np.repeat(np.array(signs, dtype) * np.dtype(dtype).type(0), 5000)
        partial = filled(samples)
        negative = int(signs[0] < 0)
        assert (partial[layout.MIN_AT], partial[layout.MAX_AT]) == (negative, negative)
        np.testing.assert_array_equal(partial, reduce_reference(samples, ALL))


@pytest.mark.parametrize("dtype", DTYPES)
def test_more_samples_than_digits_hold(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = case("any", dtype, 10_001)
    monkeypatch.setattr(cpu, "MOST", 1000)
    np.testing.assert_array_equal(reduce_cpu(samples, ALL), reduce_reference(samples, ALL))


def test_without_a_compiler_numpy_reduces(monkeypatch: pytest.MonkeyPatch, count_calls: Any) -> None:
    samples = case("specials", "float32", 5000)
    asked = count_calls(cpu, "reduce_numpy")
    expected = reduce_cpu(samples, ALL)
    assert not asked
    monkeypatch.setattr(cxx, "library", lambda stem: None)
    np.testing.assert_array_equal(reduce_cpu(samples, ALL), expected)
    assert len(asked) == 1
