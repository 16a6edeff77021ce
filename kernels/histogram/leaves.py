"""Leaves of check.cpp: ranges of samples, each in one slot or in two that a bound separates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAVES, SLOTS, CROWDED = range(3)  # what is counted, as check.cpp numbers it
CELL_BITS = 13  # log2 of the cells, at most, if they are cut into leaves; fewer would leave no place for NaN
SPARE_LEAVES = 2**14  # cells are cut into as many leaves, and two for each bin, at most

Ranks = NDArray[np.uint64]


@dataclass(frozen=True)
class Leaves:
    """Where slots change, by rank: samples numbered in their order, both zeros as one.

    Attributes
    ----------
    what
        LEAVES: each leaf is in one slot. SLOTS: it is in two at most. CROWDED: it is in any number.
    origin, last, nan
        The rank of place 0, the last place, and the place of NaN. Samples beyond either end count as being there.
    shift
        log2 of the places per cell.
    first, leaf_shift : uint32 arrays, shape (cells + 1,)
        Of each cell the number of its first leaf, less its first place in units of leaves, and log2 of the places per
        leaf. Empty if each cell is a leaf.
    low, high : uint32 arrays, shape (leaves + 1,)
        Slots of the first and of the last sample of each leaf. The last leaf is that of NaN.
    """

    what: int
    origin: int
    last: int
    nan: int
    shift: int
    first: NDArray[np.uint32]
    leaf_shift: NDArray[np.uint32]
    low: NDArray[np.uint32]
    high: NDArray[np.uint32]


def leaves_of(bounds: NDArray[np.float64], dtype: np.dtype[Any]) -> Leaves:
    """Leaves for samples of a native dtype of four or eight bytes; slot i ends before bounds[i]."""
    order = _Order(bounds, dtype)
    bins = len(bounds) - 1
    low, high = order.first(1), order.first(bins + 1)
    span = (high - low + 1).bit_length()
    enough = max(CELL_BITS if dtype.kind == "f" else 0, bins.bit_length() + 1)
    for bits, halved in ((enough, False), (CELL_BITS, True)):
        shift = max(0, span - bits)
        # One more cell at each end, if there are samples.
        first, last = max(0, (low >> shift) - 1), min(order.most >> shift, (high >> shift) + 1)
        starts = np.uint64(first) + np.arange(last - first + 1, dtype=np.uint64) << np.uint64(shift)
        levels, lows, highs = _cut(order, starts, shift, halved * shift, 2 * bins + SPARE_LEAVES)
        crowd = int((highs - lows).max())
        if crowd <= 1:
            break
    places = len(starts) << shift
    first_leaves = leaf_shifts = np.empty(0, np.uint32)
    if levels.any() or crowd > 1:
        # That of NaN comes last; numbers are taken modulo 2**32.
        halvings = np.append(levels, 0).astype(np.uint64)
        sizes, skipped = np.uint64(1) << halvings, np.arange(len(levels) + 1, dtype=np.uint64) << halvings
        first_leaves = (np.cumsum(sizes) - sizes - skipped).astype(np.uint32)
        leaf_shifts = (np.uint64(shift) - halvings).astype(np.uint32)
    nan = np.uint32(bins + 2)
    return Leaves(
        what=min(crowd, CROWDED),
        origin=first << shift,
        last=places - 1,
        nan=places if dtype.kind == "f" else 0,
        shift=shift,
        first=first_leaves,
        leaf_shift=leaf_shifts,
        low=np.append(lows.astype(np.uint32), nan),
        high=np.append(highs.astype(np.uint32), nan),
    )


class _Order:
    """Slots of samples by their rank."""

    def __init__(self, bounds: NDArray[np.float64], dtype: np.dtype[Any]) -> None:
        self._bounds = bounds
        self._dtype, self._unsigned = dtype, np.dtype(f"u{dtype.itemsize}")
        self.most = int(np.iinfo(self._unsigned).max)
        self._sign = 0 if dtype.kind == "u" else self.most // 2 + 1
        infinite = int(np.array(np.inf, dtype).view(self._unsigned)) if dtype.kind == "f" else 0
        self._least, self._greatest = (self._sign - infinite, self._sign + infinite) if infinite else (0, self.most)

    def slots(self, ranks: Ranks) -> NDArray[np.intp]:
        """Slots by their definition; ranks of no sample count as the nearest of one."""
        ranks, sign = ranks.clip(self._least, self._greatest), np.uint64(self._sign)
        bits = ranks ^ sign
        if self._dtype.kind == "f":
            bits = np.where(ranks < sign, sign - ranks | sign, ranks - sign)
        samples = bits.astype(self._unsigned).view(self._dtype)
        return np.searchsorted(self._bounds, samples.astype(np.float64), side="right")

    def first(self, slot: int) -> int:
        """The first rank in this slot or a later one; one more than any if there is none."""
        low, high = self._least, self._greatest + 1
        while low < high:
            middle = (low + high) // 2
            if self.slots(np.array([middle], np.uint64))[0] >= slot:
                high = middle
            else:
                low = middle + 1
        return low


def _cut(order: _Order, starts: Ranks, shift: int, deepest: int, most: int) -> tuple[NDArray[np.intp], ...]:
    """How often each cell of 2**shift ranks is halved, and slots of the first and the last sample of each leaf.

    A cell is halved until no leaf is in more than two slots, but not more often than `deepest`, nor if there would be
    more leaves than `most`.
    """
    levels = np.zeros(len(starts), np.intp)
    waiting = np.arange(len(starts))
    cells, lows, highs = [], [], []
    for level in range(deepest + 1):
        length = np.uint64(1 << shift - level)
        firsts = starts[waiting, None] + np.arange(1 << level, dtype=np.uint64) * length
        low, high = order.slots(firsts), order.slots(firsts + (length - np.uint64(1)))
        last = level == deepest or len(waiting) << level + 1 > most
        done = np.logical_or((high - low <= 1).all(axis=1), last)
        levels[waiting[done]] = level
        cells.append(np.repeat(waiting[done], 1 << level))
        lows.append(low[done].ravel())
        highs.append(high[done].ravel())
        waiting = waiting[~done]
        if not len(waiting):
            break
    in_order = np.argsort(np.concatenate(cells), kind="stable")
    return levels, np.concatenate(lows)[in_order], np.concatenate(highs)[in_order]
