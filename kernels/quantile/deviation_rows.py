"""The median of the distances to the median, of many short rows at once, from their lines (`kernels.quantile.rows`).

The k + 1 samples that are nearest to m follow each other in ascending order. So the distance of rank k, counted from 0,
is the least of max(m - x[i], x[i + k] - m) over i. As i grows the first term falls and the second rises; bisection
finds where they cross. m is half of a sum of two samples, so that exact comparisons of such sums decide.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.rounded import interpolated_difference
from kernels.quantile.keys import to_samples
from kernels.quantile.rows import Ordered

HALF = Fraction(1, 2)
Sum = tuple[NDArray[Any], ...]  # of two samples: sums are ordered as these numbers are, the first one before the others


def median_deviations(ordered: Ordered) -> NDArray[np.float64]:
    """The median of the distances to the median of each row, rounded once.

    Returns
    -------
    float64 array, shape (rows,)
        NaN where there are no numbers, and where the median is infinite or none.
    """
    values = np.full(ordered.all, math.nan)
    if len(ordered.rows):
        counts = ordered.counts
        values[ordered.rows] = _Gathered(ordered).deviations() if counts is None else _of_counts(ordered, counts)
    return values


def _of_counts(ordered: Ordered, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of 256 keys: bisection finds twice the distance, an integer."""
    rows, before = np.arange(len(counts)), np.pad(counts, ((0, 0), (1, 0)))
    ranks = (ordered.numbers - 1) // 2, ordered.numbers // 2
    middle = sum(ordered.keys(rank).astype(np.int64) for rank in ranks)  # twice the median

    def twice(rank: NDArray[np.int64]) -> NDArray[np.int64]:
        least, most = np.zeros_like(rank), np.full_like(rank, 2 * 255)
        for _ in range(9):
            distance = (least + most) // 2
            first = np.maximum((middle - distance + 1) // 2, 0)
            end = np.minimum((middle + distance) // 2 + 1, 256)
            enough = before[rows, end] - before[rows, first] > rank
            least, most = np.where(enough, least, distance + 1), np.where(enough, distance, most)
        return most

    return np.asarray((twice(ranks[0]) + twice(ranks[1])) / 4)


class _Gathered:
    """Rows whose keys were gathered."""

    def __init__(self, ordered: Ordered) -> None:
        self._keys, self._numbers, self._dtype = ordered.keys, ordered.numbers, ordered.dtype
        self._ranks = (self._numbers - 1) // 2, self._numbers // 2
        self._middle = self._keys(self._ranks[0]), self._keys(self._ranks[1])

    def deviations(self) -> NDArray[np.float64]:
        (one, above), (other, other_above) = map(self._nearest, self._ranks)
        low, high = (to_samples(keys, self._dtype) for keys in self._middle)
        has_median = np.isfinite(low) & np.isfinite(high)
        low = np.where(above == other_above, low, high)  # where the median cancels, any number does
        upper = np.stack((np.where(above, one, low), np.where(other_above, other, high)))
        lower = np.stack((np.where(above, low, one), np.where(other_above, high, other)))
        is_finite = np.isfinite(upper).all(axis=0) & np.isfinite(lower).all(axis=0)
        values = np.where(has_median, math.inf, math.nan)
        values[is_finite] = interpolated_difference(lower[:, is_finite], upper[:, is_finite], HALF, HALF)
        return values

    def _nearest(self, rank: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The sample whose distance has this rank, and whether it is the median or above it."""
        middle = _sum(*self._middle, self._dtype)
        least, most = np.zeros_like(rank), self._numbers - 1 - rank
        for _ in range(int(most.max()).bit_length()):
            place = (least + most) // 2
            beyond = ~_less(_sum(self._keys(place), self._keys(place + rank), self._dtype), middle)
            least, most = np.where(beyond, least, place + 1), np.where(beyond, place, most)
        above, below = self._keys(most + rank), self._keys(np.maximum(most - 1, 0))
        is_above = (most == 0) | ~_less(middle, _sum(above, below, self._dtype))
        return to_samples(np.where(is_above, above, below), self._dtype), is_above


def _sum(a: NDArray[np.uint64], b: NDArray[np.uint64], dtype: np.dtype[Any]) -> Sum:
    """Of the samples of keys; those of integers are in the order of the sums of keys.

    Of floats the rounded sum, which is in the order of exact ones, and its error (T. J. Dekker, A floating-point
    technique for extending the available precision, Numerische Mathematik 18 (1971), 224-242). Between them is the sum
    again, of halves if it is beyond the range: these are exact then.
    """
    if dtype.kind != "f":
        return (a & b) + ((a ^ b) >> np.uint64(1)), (a ^ b) & np.uint64(1)
    x, y = (to_samples(keys, dtype).astype(np.float64) for keys in (a, b))
    with np.errstate(over="ignore", invalid="ignore"):  # of infinities there is no error, and none is compared
        rounded = x + y
        scale = np.where(np.isinf(rounded), 0.5, 1.0)
        x, y = x * scale, y * scale
        larger, smaller = np.where(abs(x) < abs(y), (y, x), (x, y))
        total = larger + smaller
        return rounded, total, smaller - (total - larger)


def _less(a: Sum, b: Sum) -> NDArray[np.bool_]:
    """Whether each sum is less than its counterpart; one of opposite infinities is not, nor is its counterpart."""
    less = a[-1] < b[-1]
    for ours, theirs in zip(a[-2::-1], b[-2::-1], strict=True):
        less = (ours < theirs) | ((ours == theirs) & less)
    return less
