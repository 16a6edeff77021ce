"""Partials of reduce: their layout, how two combine, how samples are ordered.

A partial is one int64 array with fixed offsets:

    dtype code, requested parts, number of samples, of NaN, of +inf, of -inf,
    position of the first NaN, of the minimum, of the maximum; key of the minimum, of the maximum,
    the sum, the sum of squares.

A position is twice the index, plus one if the sample is -0.0; NOWHERE if there is none. Keys are integers in the
order of the samples. The sums cover the finite samples, as fixed-point numbers in two's complement
(`kernels.reduce.exact_sum`). Every number has one representation, so equal partials have equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import exact_sum
from kernels.reduce.exact_sum import SQUARE_WORDS, SUM_WORDS

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")

# What to compute, as bits. Only a norm needs squares without the sum; it gets the sum as well.
SUM, SQUARES, EXTREMES = 1, 2, 4
PARTS = (SUM, SUM | SQUARES, EXTREMES, SUM | EXTREMES, SUM | SQUARES | EXTREMES)

CODE, ASKED, SAMPLES, NAN, POSITIVE, NEGATIVE = range(6)
FIRST_NAN, MIN_AT, MAX_AT, MIN_KEY, MAX_KEY = range(6, 11)
COUNTS = slice(SAMPLES, FIRST_NAN)
POSITIONS, SUM_AT = slice(FIRST_NAN, MIN_KEY), slice(11, 11 + SUM_WORDS)
SQUARES_AT = slice(SUM_AT.stop, SUM_AT.stop + SQUARE_WORDS)
SIZE = SQUARES_AT.stop
NAMES = ("dtype", "parts", "samples", "NaN", "+inf", "-inf",
         "first NaN", "place of the minimum", "place of the maximum", "minimum", "maximum")  # fmt: skip
NOWHERE, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min

Partial = NDArray[np.int64]
_NOTHING = np.zeros(SIZE, np.int64)
_NOTHING[POSITIONS] = _NOTHING[MIN_KEY] = NOWHERE
_NOTHING[MAX_KEY] = LEAST


def empty(dtype: np.dtype[Any], parts: int, samples: int) -> Partial:
    """Initial partial for `samples` samples, none of them reduced yet."""
    partial: Partial = _NOTHING.copy()
    partial[:3] = code_of(dtype), parts, samples
    return partial


@cache
def code_of(dtype: np.dtype[Any]) -> int:
    """The code of a dtype, which NumPy takes long to name."""
    return DTYPES.index(dtype.name)


def combine(a: Partial, b: Partial) -> Partial:
    """Partial of two arrays together, from the partial of each; commutative and associative."""
    total: Partial = a.copy()
    total[COUNTS] += b[COUNTS]
    total[FIRST_NAN] = min(a[FIRST_NAN], b[FIRST_NAN])
    total[[MIN_KEY, MIN_AT]] = min((a[MIN_KEY], a[MIN_AT]), (b[MIN_KEY], b[MIN_AT]))
    # Among equal keys the lowest position wins, for a maximum too: ~ reverses the order of keys only.
    key, total[MAX_AT] = min((~a[MAX_KEY], a[MAX_AT]), (~b[MAX_KEY], b[MAX_AT]))
    total[MAX_KEY] = ~key
    for at, words in ((SUM_AT, SUM_WORDS), (SQUARES_AT, SQUARE_WORDS)):
        total[at] = exact_sum.to_words(exact_sum.from_words(a[at]) + exact_sum.from_words(b[at]), words)
    return total


def place(partial: Partial, start: int) -> Partial:
    """Add `start` to the indices in all positions, in place."""
    positions = partial[POSITIONS]
    positions += (positions != NOWHERE) * np.int64(2 * start)
    return partial


def relocate(partial: Partial, index: Callable[[int], int]) -> Partial:
    """A partial with other indices in all positions, which keep their order."""
    moved: Partial = partial.copy()
    for at in range(FIRST_NAN, MIN_KEY):
        position = int(partial[at])
        if position != NOWHERE:
            moved[at] = 2 * index(position // 2) + position % 2
    return moved


def to_key(value: Any, dtype: np.dtype[Any]) -> int:
    """An integer in the order of the samples; both zeros have the same."""
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
