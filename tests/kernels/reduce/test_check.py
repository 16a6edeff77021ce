"""The check of reduce against fsum, fractions, Python's integers and the reference."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.reduce import check
from kernels.reduce import partial as layout
from kernels.reduce.check import reduce_check
from kernels.reduce.exact_sum import SQUARE_BITS, SUM_BITS, from_words
from kernels.reduce.partial import EXTREMES, PARTS, SQUARES, SUM
from kernels.reduce.reference import reduce_reference
from tests.cases import cpp as cpp_cases
from tests.cases.reduce import CASES, DTYPES, FINITE, FLOATS, case, spread, two_sizes
from workflows.reduce import REDUCE, ReduceOptions

pytestmark = pytest.mark.usefixtures("compiled")

SOURCE = check.SOURCE
ALL = SUM | SQUARES | EXTREMES
BLOCK = 2048  # as of check_buckets.hpp


def agree(samples: NDArray[Any], parts: int = ALL) -> NDArray[np.int64]:
    found = reduce_check(samples, parts)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, reduce_reference(samples, parts))
    return found


def sums(partial: NDArray[np.int64]) -> tuple[Fraction, Fraction]:
    return (Fraction(from_words(partial[layout.SUM_AT]), 2**SUM_BITS),
            Fraction(from_words(partial[layout.SQUARES_AT]), 2**SQUARE_BITS))  # fmt: skip


def test_what_the_reference_finds() -> None:
    """Of every dtype and kind of samples, in arrays of all sizes, that begin anywhere and have gaps."""
    assert cpp_cases.check_moments() > 4000


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FINITE)
def test_sums_are_those_of_fractions(dtype: str, name: str) -> None:
    """And extremes and their places those of Python."""
    for size in (1, 63, BLOCK - 1, BLOCK + 1):
        samples = case(name, dtype, size)
        values = [Fraction(value) for value in samples.tolist()]
        found = reduce_check(samples, ALL)
        assert sums(found) == (sum(values), sum(value * value for value in values))
        for value, at, key in (
            (min(values), layout.MIN_AT, layout.MIN_KEY),
            (max(values), layout.MAX_AT, layout.MAX_KEY),
        ):
            place = values.index(value)
            assert found[at] // 2 == place
            assert found[key] == layout.to_key(samples[place], samples.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 69_999])
def test_sizes_byte_orders_and_addresses(dtype: str, size: int) -> None:
    samples = case("specials", dtype, size)
    unaligned = np.frombuffer(b"x" + samples.tobytes(), samples.dtype, offset=1)
    for array in (samples, samples.astype(samples.dtype.newbyteorder()), unaligned, samples[::-1]):
        for parts in PARTS:
            agree(array, parts)


@pytest.mark.parametrize("dtype", FLOATS)
def test_full_blocks(dtype: str) -> None:
    """Numbers with as many digits as there are, at both ends of what is shifted together, at many exponents."""
    compared = 0
    for samples in cpp_cases.limits(dtype, BLOCK):
        agree(samples)
        agree(samples, SUM)
        compared += 1
    assert compared > 200
    info = np.finfo(dtype)
    for width in range(8, 34):
        for exponent in (info.minexp + 3, 0, info.maxexp - 1):
            with np.errstate(under="ignore"):
                agree(cpp_cases.full(dtype, exponent, width, 3 * BLOCK + 7))
                agree(cpp_cases.full(dtype, exponent, width, BLOCK, -1), SUM)


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_anything_among_ordinary_numbers(dtype: str, data: st.DataObject) -> None:
    """Numbers of two sizes, and anywhere among them what has to be treated on its own."""
    agree(two_sizes(data, dtype, BLOCK), data.draw(st.sampled_from(PARTS)))


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_bits(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    content = data.draw(st.binary(min_size=1, max_size=400))
    agree(np.frombuffer(content * dtype.itemsize, dtype), data.draw(st.sampled_from(PARTS)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("apart", [10, 60, 2000])
def test_sum_is_fsum(dtype: str, apart: int) -> None:
    numbers = spread(dtype, apart)
    total, _ = sums(reduce_check(numbers, ALL))
    assert total.numerator / total.denominator == math.fsum(numbers)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if "int" in name])
def test_integers_at_their_limits(dtype: str) -> None:
    """Nothing overflows in a block."""
    bounds = np.iinfo(dtype)
    for low, high in ((bounds.min, bounds.min), (bounds.max, bounds.max), (bounds.min, bounds.max)):
        samples = np.full(3 * BLOCK + 5, low, dtype)
        samples[1::2] = high
        total, squares = sums(agree(samples))
        values = samples.tolist()
        assert (total, squares) == (sum(values), sum(value * value for value in values))


@pytest.mark.parametrize("dtype", FLOATS)
def test_first_of_both_zeros(dtype: str) -> None:
    """Which are equal: the first one is the extreme, and its place says which it is."""
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        for others in ([], [1.0], [-1.0], [np.nan]):
            found = agree(np.array([*others, *zeros], dtype))
            if others == [1.0]:
                assert found[layout.MIN_AT] == 2 + (str(zeros[0]) == "-0.0")


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_of_every_kind(dtype: str) -> None:
    """Quiet and signalling, of both signs; alone, and before and after numbers."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    infinite = np.array(np.inf, dtype).view(unsigned)
    bits = infinite + np.arange(1, 1000).astype(unsigned)
    bits[::2] |= unsigned.type(1) << unsigned.type(8 * unsigned.itemsize - 1)
    nan = bits.view(dtype)
    for samples in (nan, np.append(nan, np.ones(BLOCK, dtype)), np.append(np.full(BLOCK + 9, -np.inf, dtype), nan)):
        found = agree(samples)
        assert found[layout.NAN] == len(nan)
        assert found[layout.FIRST_NAN] == 2 * int(np.isnan(samples).argmax())


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_a_long_array(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST", "COPIED"):
        monkeypatch.setattr(check, name, 999)
        agree(case("any", dtype, 10_001))
        agree(case("late", dtype, 10_001)[::3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_partial_differs(dtype: str, name: str) -> None:
    """As the job declares it: of the right partial nothing differs, of a wrong one that entry does."""
    options = ReduceOptions(op="sum,std,argmin,argmax")
    samples = case(name, dtype, 3001)
    assert REDUCE.check is not None
    partial, expected = REDUCE.compute(samples, options), REDUCE.check(samples, options)
    np.testing.assert_array_equal(partial, expected)
    for place in (layout.SAMPLES, layout.MIN_KEY, layout.SUM_AT.start, layout.SQUARES_AT.start + 3):
        wrong = partial.copy()
        wrong[place] ^= 1
        assert np.flatnonzero(wrong != expected).tolist() == [place]


def test_without_a_compiler_the_reference_reduces(monkeypatch: pytest.MonkeyPatch, count_calls: Any) -> None:
    samples = case("specials", "float32", 5000)
    asked = count_calls(check, "reduce_reference")
    expected = reduce_check(samples, ALL)
    assert not asked
    monkeypatch.setattr(cxx, "library", lambda source: None)
    np.testing.assert_array_equal(reduce_check(samples, ALL), expected)
    assert len(asked) == 1
