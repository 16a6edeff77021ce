"""Lines of many rows against the partials, the references and the results of each row by itself."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.reduce import cpu_rows, lines, powers
from kernels.reduce import partial as layout
from kernels.reduce.check_rows import reduce_rows_check
from kernels.reduce.cpu_rows import reduce_rows_cpu
from kernels.reduce.exact_sum import to_words
from kernels.reduce.finish import OPERATIONS, finished, first_apart
from kernels.reduce.lines import alike, combine, relocate, to_lines, to_partials
from kernels.reduce.partial import EXTREMES, SQUARES, SUM
from kernels.reduce.powers import POWERS
from kernels.reduce.reference_powers import reduce_reference_with_powers
from tests.cases.reduce import DTYPES, SPECIAL, any_bits, cancelling, extreme, generator, ordinary, subnormal
from workflows.moments import Moments

pytestmark = pytest.mark.usefixtures("compiled")

SOURCE = cpu_rows.SOURCE
ALL = SUM | SQUARES | EXTREMES
LENGTHS = (0, 1, 2, 3, 10, 63, 64, 65, 300)  # around those from which on floats are summed in lanes


def special(dtype: str, size: int) -> NDArray[Any]:
    """NaN, infinities, zeros of both signs; or integers around those that a float64 holds, and the ends."""
    if np.dtype(dtype).kind == "f":
        with np.errstate(over="ignore"):
            return generator("special", dtype).choice(np.array(SPECIAL), size).astype(dtype)
    ends = np.iinfo(dtype)
    values = [
        value for value in (2**53 - 1, 2**53, 2**53 + 1, 2**63 + 1, ends.min, ends.max, 0, 1) if value <= ends.max
    ]
    return generator("special", dtype).choice(np.array(values, dtype), size)


def equal(dtype: str, size: int) -> NDArray[Any]:
    return np.repeat(any_bits(dtype, -(-size // 64)), 64)[:size]


KINDS = (any_bits, ordinary, extreme, subnormal, cancelling, special, equal)


def rows_of(samples: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Begins and ends of rows of all lengths, in no order; some overlap, and some are empty."""
    begins = generator("rows").integers(0, len(samples) - max(LENGTHS), 4 * len(LENGTHS))
    return begins, begins + np.tile(LENGTHS, 4)


def references(samples: NDArray[Any], begins: Any, ends: Any, parts: int) -> NDArray[np.int64]:
    return np.array([
        reduce_reference_with_powers(samples[begin:end], parts) if begin < end else powers.empty(samples.dtype, parts)
        for begin, end in zip(begins, ends, strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [SUM, SUM | SQUARES, EXTREMES, SUM | EXTREMES, ALL, ALL | POWERS])
def test_lines_are_those_of_each_row(dtype: str, kind: Any, parts: int) -> None:
    """Computed and checked; both in the same bits, and as what the reference finds."""
    samples = kind(dtype, 1000)
    begins, ends = rows_of(samples)
    expected = references(samples, begins, ends, parts)
    found = reduce_rows_cpu(samples, begins, ends, parts)
    assert found is not None and found.flags.c_contiguous
    np.testing.assert_array_equal(to_partials(found), expected)
    np.testing.assert_array_equal(found, to_lines(expected))
    swapped = samples.astype(samples.dtype.newbyteorder(">"))
    np.testing.assert_array_equal(reduce_rows_check(swapped, begins, ends, parts), found)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize("kind", [any_bits, ordinary, cancelling, special])
def test_lines_combine_as_partials_do(dtype: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the words that each has; and what is left of them does not depend on how lines were put together."""
    monkeypatch.setattr(lines, "CHUNK", 7)
    samples = kind(dtype, 1000)
    begins, ends = rows_of(samples)
    partials = references(samples, begins, ends, ALL | POWERS)
    expected = np.array([powers.combine(a, layout.place(b.copy(), 300))
                         for a, b in pairwise(partials)])  # fmt: skip
    later = relocate(to_lines(partials[1:]), lambda indices: indices + 300)
    found = combine(to_lines(partials[:-1]), later)
    np.testing.assert_array_equal(found, to_lines(expected))
    np.testing.assert_array_equal(to_partials(found), expected)
    whole = to_lines(partials)
    for cut in (1, 5, 20):
        parts = alike([to_lines(partials[:cut]), to_lines(partials[cut:])])
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        np.testing.assert_array_equal(np.concatenate(alike([whole[:cut]])), to_lines(partials[:cut]))


def test_lines_of_floats_are_short() -> None:
    """Some words for ordinary numbers; of sums that are zero none."""
    samples = ordinary("float64", 1000)
    begins = np.arange(0, 1000, 10)
    found = reduce_rows_cpu(samples, begins, begins + 10, ALL)
    assert found is not None and found.shape[1] < 25
    none = reduce_rows_cpu(np.zeros(1000), begins, begins + 10, ALL)
    assert none is not None and none.shape[1] == lines.WORDS


def bits(number: float) -> bytes:
    return struct.pack("d", number)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("omit", [False, True])
def test_results_are_those_of_each_row(dtype: str, kind: Any, omit: bool) -> None:
    """Bit by bit, as Python's integers and fractions give them."""
    samples = kind(dtype, 1000)
    partials = references(samples, *rows_of(samples), ALL | POWERS)
    assert first_apart(to_lines(partials)) == len(partials)
    for ddof in (0, 1, 10):
        found = finished(to_lines(partials), OPERATIONS, omit, ddof)
        assert found is not None
        each = [Moments(partial, "omit" if omit else "propagate", ddof) for partial in partials]
        for name, column in zip(OPERATIONS, found, strict=True):
            for moments, number in zip(each, column.tolist(), strict=True):
                expected = moments.value(name)
                assert expected is not None and bits(float(expected)) == bits(number), (name, moments)


def test_ties_round_to_even() -> None:
    """Sums and means halfway between two float64 numbers, variances that are squares, the least and the greatest."""
    one, ulp = 2.0**53, 2.0
    least, most = 5e-324, 1.7976931348623157e308
    rows = [(one, 1.0), (one + ulp, 1.0), (least, 0.0), (least, least), (3 * least, 0.0), (most, most), (-most, -most),
            (1.0, 1.0 + 2**-52), (1.0 + 2**-52, 1.0 + 2**-51), (0.1, 0.1), (-least, 0.0), (3.0, 7.0)]  # fmt: skip
    samples = np.array(rows).ravel()
    begins = np.arange(0, len(samples), 2)
    found = finished(to_lines(references(samples, begins, begins + 2, ALL)), ("sum", "mean", "var", "std"), False, 0)
    assert found is not None
    for number, (a, b) in enumerate(rows):
        assert bits(found[0][number]) == bits(
            math.fsum((a, b)) if max(abs(a), abs(b)) < most else math.copysign(math.inf, a)
        )
        mean = (Fraction(a) + Fraction(b)) / 2
        assert bits(found[1][number]) == bits(mean.numerator / mean.denominator)
        variance = (Fraction(a) - Fraction(b)) ** 2 / 4
        assert found[2][number] == variance.numerator / variance.denominator
        assert found[3][number] == float(abs(Fraction(a) - Fraction(b)) / 2)


@pytest.mark.parametrize("dtype", ["int16", "uint64", "float32"])
@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        (layout.SUM_AT, 2**70 << 1088),
        (layout.SQUARES_AT, 0),
        (powers.CUBES_AT, -(2**70) << 3264),
        (powers.FOURTHS_AT, 0),
    ],
)
def test_sums_that_cannot_be_are_found(dtype: str, what: slice, wrong: int) -> None:
    """Of one row among others; the sums contradict each other, whatever the samples."""
    samples = ordinary(dtype, 1000)
    begins = np.arange(0, 1000, 10)
    partials = references(samples, begins, begins + 10, ALL | POWERS)
    partials[70, what] = to_words(wrong, what.stop - what.start)
    assert first_apart(to_lines(partials)) == 70


@pytest.mark.parametrize("dtype", ["int16", "uint64", "float32"])
@pytest.mark.parametrize("key", [layout.MIN_KEY, layout.MAX_KEY])
def test_extremes_that_cannot_be_are_found(dtype: str, key: int) -> None:
    """The mean is not between them."""
    samples = ordinary(dtype, 1000)
    begins = np.arange(0, 1000, 10)
    partials = references(samples, begins, begins + 10, SUM | EXTREMES)
    partials[7, key] = partials[7, layout.MAX_KEY + layout.MIN_KEY - key] + (1 if key == layout.MIN_KEY else -1)
    assert first_apart(to_lines(partials)) == 7
