"""The search for order statistics of |x - m|, the distances to an exact number m: the same cells, from both sides.

Samples are known to lie in ranges of keys, so many in each. A range has a least and a greatest distance to m. The
distance of rank k is at least the least t for which more than k samples may lie within t, and at most the least one for
which more than k samples do. Ranges that reach between these bounds are divided until the bounds are equal: the widest
first, those that are narrower than what is gained stay whole.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.quantile.cells import MOST_GATHERED, MOST_SLOTS, Cell, Cells, Ranges, Words, cells_of, joined, slots_of
from kernels.quantile.keys import bits_of, key_from, to_keys, to_number, to_samples

Distance = Fraction | float  # a float only where it is infinite
MOST_CELLS = 2**10  # that a pass divides


@dataclass(frozen=True, eq=False)
class Deviation:
    """How far the search is; a pass gives the next one.

    Attributes
    ----------
    dtype
        Of the samples, native.
    middle
        What distances are measured from.
    ranks
        Of the distances looked for, counted from 0.
    ranges
        Where the samples are, as far as they matter.
    cells, divided
        What the next pass counts, and which of the ranges these are; None if the search is done.
    distances
        By rank.
    """

    dtype: np.dtype[Any]
    middle: Fraction
    ranks: tuple[int, ...]
    ranges: Ranges
    cells: Cells | None = None
    divided: tuple[int, ...] = ()
    distances: Mapping[int, Distance] = field(default_factory=dict)

    def counted(self, counts: NDArray[np.int64]) -> Deviation:
        """The search after a pass that counted `cells`; raises Disagreement if an earlier one counted otherwise."""
        assert self.cells is not None
        parts = [self.ranges.take(np.delete(np.arange(len(self.ranges.firsts)), self.divided))]
        for number, divided in enumerate(self.divided):
            parts.append(slots_of(self.cells, number, counts, int(self.ranges.samples[divided])))
        ranges = joined(parts)
        return replace(self, ranges=ranges.take(np.argsort(ranges.firsts))).narrowed()

    def __getstate__(self) -> dict[str, Any]:
        """Without the ranges: workers count cells, and need no more."""
        return vars(self) | {"ranges": None}

    def narrowed(self) -> Deviation:
        """With the bounds of each distance, and what to divide next."""
        bounds = [_Bounds(self).of(rank) for rank in self.ranks]
        distances = {rank: low for rank, (low, high) in zip(self.ranks, bounds, strict=True) if low == high}
        open_ = [pair for pair in bounds if pair[0] != pair[1]]
        if not open_:
            return replace(self, cells=None, divided=(), distances=distances)
        wide = np.zeros(len(self.ranges.firsts), bool)
        for low, high in open_:
            reached, inside = _Bounds(self).reached(high), _Bounds(self).inside(low, strictly=True)
            wide[reached] = True
            wide[inside] = False
        wide &= self.ranges.lasts > self.ranges.firsts
        divided = np.flatnonzero(wide).tolist()
        if len(divided) > MOST_CELLS or int(self.ranges.samples[wide].sum()) > MOST_GATHERED:
            divided = self._widest(np.flatnonzero(wide))
        cells = []
        for number in divided:
            first, last = int(self.ranges.firsts[number]), int(self.ranges.lasts[number])
            cells.append(Cell(first, (last - first).bit_length(), 0, int(self.ranges.samples[number])))
        return replace(self, cells=cells_of(bits_of(self.dtype), cells), divided=tuple(divided), distances=distances)

    def _widest(self, numbers: NDArray[np.intp]) -> list[int]:
        """So many of these ranges that dividing them leaves the least width."""
        with np.errstate(over="ignore", invalid="ignore"):
            ends = (to_samples(keys[numbers], self.dtype) for keys in (self.ranges.firsts, self.ranges.lasts))
            first, last = (np.nan_to_num(values.astype(np.float64)) / 2 for values in ends)
            widths = last - first
        order = np.argsort(-widths, kind="stable")[: MOST_CELLS + 1]
        left = np.append(widths[order], 0.0)
        number = 2 ** np.arange(MOST_CELLS.bit_length())
        number = np.unique(np.minimum(number, min(len(order), MOST_CELLS)))
        gained = np.maximum(left[number], left[0] / (MOST_SLOTS // number))
        return sorted(int(numbers[place]) for place in order[: int(number[np.argmin(gained)])])


def ends_of(middle: Fraction, distance: Distance, dtype: np.dtype[Any]) -> tuple[int, int, int, int]:
    """Keys from m - t on, above m - t, from m + t on, and above m + t; where t is infinite, of infinities."""
    if not isinstance(distance, Fraction):
        low, high = (int(to_keys(np.array([end], dtype))[0]) for end in (-math.inf, math.inf))
        return low, low + 1, high, high + 1
    first, last = key_from(middle - distance, dtype), key_from(middle + distance, dtype)
    equal = (key < 2 ** bits_of(dtype) and to_number(key, dtype) == end
             for key, end in ((first, middle - distance), (last, middle + distance)))  # fmt: skip
    return first, first + next(equal), last, last + next(equal)


class _Bounds:
    """Bounds of distances, from what is known of the samples."""

    def __init__(self, search: Deviation) -> None:
        self._search, self._ranges = search, search.ranges
        self._before = np.concatenate(([0], np.cumsum(search.ranges.samples)))

    def of(self, rank: int) -> tuple[Distance, Distance]:
        """The least and the greatest that the distance of this rank may be."""

        def samples(numbers: slice) -> int:
            return int(self._before[max(numbers.stop, numbers.start)] - self._before[numbers.start])

        low = self._least(lambda t: samples(self.reached(t)) > rank, nearest=True)
        return low, self._least(lambda t: samples(self.inside(t)) > rank, nearest=False)

    def reached(self, distance: Distance) -> slice:
        """Numbers of the ranges that have keys of samples within a distance."""
        first, _, _, end = ends_of(self._search.middle, distance, self._search.dtype)
        return slice(self._number(self._ranges.lasts, first), self._number(self._ranges.firsts, end))

    def inside(self, distance: Distance, strictly: bool = False) -> slice:
        """Numbers of the ranges all of whose samples are within a distance, or nearer than it."""
        first, above, last, end = ends_of(self._search.middle, distance, self._search.dtype)
        if strictly:
            first, end = above, last
        return slice(self._number(self._ranges.firsts, first), self._number(self._ranges.lasts, end))

    @staticmethod
    def _number(keys: Words, key: int) -> int:
        """How many keys are less than a key."""
        return len(keys) if key >= 2**64 else int(np.searchsorted(keys, np.uint64(key)))

    def _least(self, enough: Callable[[Distance], bool], nearest: bool) -> Distance:
        """The least distance of a range that is enough: of the nearest keys in it, or of the farthest."""
        firsts, lasts = self._ranges.firsts, self._ranges.lasts

        def distance(place: int, keys: Words) -> Distance:
            sample = to_number(int(keys[place]), self._search.dtype)
            return abs(sample - self._search.middle) if isinstance(sample, Fraction) else math.inf

        middle = key_from(self._search.middle, self._search.dtype)
        reaching, beginning = self._number(lasts, middle), self._number(firsts, middle)
        # Ranges above m, or that reach above it; and below it, nearest first: which of them, and their keys that count.
        above = range(beginning if nearest else reaching, len(firsts)), firsts if nearest else lasts
        below = range((reaching if nearest else beginning) - 1, -1, -1), lasts if nearest else firsts
        tries: list[Distance] = [Fraction(0)] if enough(Fraction(0)) else []
        for places, keys in (above, below):
            which = bisect_left(places, True, key=partial(lambda keys, place: enough(distance(place, keys)), keys))
            if which < len(places):
                tries.append(distance(places[which], keys))
        return min(tries)
