"""Moments and extremes of samples, exactly: what a partial holds, how two combine, the CPU counterpart of the kernels.

A partial is one int64 array with a fixed place for everything:

    code of the dtype, parts that were asked for, samples, NaN among them, +inf, -inf,
    position of the first NaN, of the minimum, of the maximum; key of the minimum, of the maximum,
    the sum, the sum of squares.

A position is twice the index, plus one where the sample is -0.0; NOWHERE if there is none. Keys are integers in the
order of the samples. The sums are those of the finite samples, as fixed-point numbers in two's complement
(`kernels.reduce.exact_sum`): there is one way only to write a number, so partials are equal where they say the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module
from kernels.reduce import exact_sum
from kernels.reduce.compiled import MOST, fill_natively
from kernels.reduce.exact_sum import SQUARE_WORDS, STEP, SUM_WORDS
from kernels.reduce.narrow_sum import BLOCK, Sums, sums_of_narrow

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")

# What can be asked for, as bits. Squares are of no use without the sum but for a norm, which gets it along.
SUM, SQUARES, EXTREMES = 1, 2, 4
PARTS = (SUM, SUM | SQUARES, EXTREMES, SUM | EXTREMES, SUM | SQUARES | EXTREMES)

CODE, ASKED, SAMPLES, NAN, POSITIVE, NEGATIVE = range(6)
FIRST_NAN, MIN_AT, MAX_AT, MIN_KEY, MAX_KEY = range(6, 11)
POSITIONS, SUM_AT = slice(FIRST_NAN, MIN_KEY), slice(11, 11 + SUM_WORDS)
SQUARES_AT = slice(SUM_AT.stop, SUM_AT.stop + SQUARE_WORDS)
SIZE = SQUARES_AT.stop
NAMES = ("dtype", "parts", "samples", "NaN", "+inf", "-inf",
         "first NaN", "place of the minimum", "place of the maximum", "minimum", "maximum")  # fmt: skip
NOWHERE, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min

Partial = NDArray[np.int64]


def empty(dtype: np.dtype[Any], parts: int, samples: int) -> Partial:
    """The partial of so many samples of which nothing is known yet."""
    partial = np.zeros(SIZE, np.int64)
    partial[:3] = DTYPES.index(dtype.name), parts, samples
    partial[POSITIONS] = NOWHERE
    partial[[MIN_KEY, MAX_KEY]] = NOWHERE, LEAST
    return partial


def combine(a: Any, b: Any) -> Any:
    """Partial of two arrays together, from the partial of each; in any order."""
    if array_module(a).__name__ == "cupy":
        from kernels.reduce.gpu import combine_on_device

        return combine_on_device(a, b)
    total: Partial = a.copy()
    total[SAMPLES:FIRST_NAN] += b[SAMPLES:FIRST_NAN]
    total[FIRST_NAN] = min(a[FIRST_NAN], b[FIRST_NAN])
    total[[MIN_KEY, MIN_AT]] = min((a[MIN_KEY], a[MIN_AT]), (b[MIN_KEY], b[MIN_AT]))
    # Of equal keys the lower position comes first, whether it is a minimum or a maximum; ~ turns the order round.
    key, total[MAX_AT] = min((~a[MAX_KEY], a[MAX_AT]), (~b[MAX_KEY], b[MAX_AT]))
    total[MAX_KEY] = ~key
    for at, words in ((SUM_AT, SUM_WORDS), (SQUARES_AT, SQUARE_WORDS)):
        total[at] = exact_sum.to_words(exact_sum.from_words(a[at]) + exact_sum.from_words(b[at]), words)
    return total


def place(partial: Any, start: int) -> Any:
    """A partial whose positions count from index `start` of the samples before it: changed in place, and returned."""
    if array_module(partial).__name__ == "cupy":
        from kernels.reduce.gpu import place_on_device

        return place_on_device(partial, start)
    positions = partial[POSITIONS]
    positions += (positions != NOWHERE) * np.int64(2 * start)
    return partial


def to_key(value: Any, dtype: np.dtype[Any]) -> int:
    """An integer that is smaller where a sample is; the same for both zeros."""
    if dtype.kind != "f":
        return int(value) - (2**63 if dtype == np.uint64 else 0)
    bits = int((np.float64(value) + 0.0).view(np.int64))
    return bits if bits >= 0 else bits ^ NOWHERE


def from_key(key: int, dtype: np.dtype[Any], negative_zero: bool) -> int | float:
    """The sample of a key."""
    if dtype.kind != "f":
        return key + (2**63 if dtype == np.uint64 else 0)
    value = float(np.int64(key if key >= 0 else key ^ NOWHERE).view(np.float64))
    return -0.0 if negative_zero else value


def reduce_cpu(samples: NDArray[Any], parts: int) -> Partial:
    """Partial of samples on the CPU: by a compiled function, or by NumPy where there is no compiler.

    Parameters
    ----------
    samples : array of any integer or float dtype, native byte order, shape (n,), n >= 1
    parts
        One of PARTS: what to compute; the rest stays empty.
    """
    total: Partial | None = None
    for start in range(0, len(samples), MOST):
        part = samples[start : start + MOST]
        partial = empty(samples.dtype, parts, len(part))
        if not fill_natively(partial, part, DTYPES, parts):
            return reduce_numpy(samples, parts)
        total = partial if total is None else combine(total, place(partial, start))
    assert total is not None
    return total


def reduce_numpy(samples: NDArray[Any], parts: int) -> Partial:
    """Partial of samples as of `reduce_cpu`, by NumPy, a cache-sized step at a time."""
    partial = empty(samples.dtype, parts, len(samples))
    total = squares = 0
    narrow = samples.dtype == np.float32 and parts & SUM
    sums = sums_of_narrow(samples, bool(parts & SQUARES)) if narrow else None
    if sums:
        total, squares = sums.total, sums.squares
    for start in range(0, 0 if sums else len(samples), STEP):
        values = samples[start : start + STEP]
        if values.dtype.kind == "f":
            # One number that is not finite makes the sum one; a sum may overflow without, and then nothing is found.
            with np.errstate(over="ignore", invalid="ignore"):
                wide = values.astype(np.float64)
                regular = np.isfinite(wide.sum())
            if not regular:
                _count_special(partial, wide, start, parts)
                finite = np.isfinite(wide)
            if parts & SUM:
                wide = wide if regular else wide[finite]
                total += exact_sum.sum_floats(wide)
                if parts & SQUARES:
                    squares += exact_sum.sum_squares_of_floats(wide, values.itemsize < 8)
        elif parts & SUM:
            total += exact_sum.sum_integers(values) << exact_sum.SUM_BITS
            if parts & SQUARES:
                squares += exact_sum.sum_squares_of_integers(values) << exact_sum.SQUARE_BITS
    if parts & EXTREMES:
        _find_extremes(partial, samples, sums)
    partial[SUM_AT] = exact_sum.to_words(total, SUM_WORDS)
    partial[SQUARES_AT] = exact_sum.to_words(squares, SQUARE_WORDS)
    return partial


def _count_special(partial: Partial, values: NDArray[np.float64], start: int, parts: int) -> None:
    nan = np.isnan(values)
    partial[[NAN, POSITIVE, NEGATIVE]] += [np.count_nonzero(x) for x in (nan, values == np.inf, values == -np.inf)]
    if parts & EXTREMES and partial[FIRST_NAN] == NOWHERE and nan.any():
        partial[FIRST_NAN] = 2 * (start + int(nan.argmax()))


def _find_extremes(partial: Partial, samples: NDArray[Any], sums: Sums | None) -> None:
    """The first of the least and of the greatest samples; NaN is neither. Sums may know in which blocks they are."""
    numbers: NDArray[Any] | None = None
    if partial[NAN]:
        numbers = np.flatnonzero(~np.isnan(samples))
        if not len(numbers):
            return
        samples = samples[numbers]
    if samples.dtype == np.float16:
        samples = samples.astype(np.float32)  # which NumPy compares ten times as fast
    for find, start, at, key in (
        (np.argmin, sums.least if sums else 0, MIN_AT, MIN_KEY),
        (np.argmax, sums.greatest if sums else 0, MAX_AT, MAX_KEY),
    ):
        found = start + int(find(samples[start : start + BLOCK] if sums else samples))
        value = samples[found]
        partial[key] = to_key(value, samples.dtype)
        index = int(found if numbers is None else numbers[found])
        partial[at] = 2 * index + bool(samples.dtype.kind == "f" and value == 0 and np.signbit(value))
