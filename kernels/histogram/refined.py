"""Counts samples that are kept by ranges of values, with the ordinary kernels: bins are cut where a range ends.

Slots of the finer bins are then added up, those of samples that are left out in one number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.grouped import MOST, Range, RefinedBinning
from kernels.histogram.monotone import GivenBinning, first_samples
from kernels.histogram.step_map import step_map

EVEN = 2**14  # bins of equal width, which are counted as fast as few
UNEVEN = 2**12  # others
IN_ONE_LAUNCH = 2**12  # bins whose counters and thresholds fit any device's shared memory

Holds = Callable[[NDArray[Any]], NDArray[np.bool_]]


def refined_binning(binning: Binning, changes: Sequence[Holds], keeps: Holds) -> RefinedBinning | None:
    """Bins cut where samples are no longer, or again, kept; None if counting in these takes long.

    Parameters
    ----------
    binning
    changes
        Conditions that hold from some sample on: between those where one of them begins to hold, all samples are kept
        or all are left out.
    keeps
        Whether samples of the binning's dtype are kept, NaN included.
    """
    thresholds, dtype = binning.thresholds, binning.dtype
    least = np.array([-np.inf if dtype.kind == "f" else np.iinfo(dtype).min], dtype)

    def groups(starts: NDArray[Any]) -> NDArray[np.int64]:
        """Of the least sample and of these."""
        samples = np.concatenate([least, starts])
        return np.where(keeps(samples), 1 + binning.find(samples), 0)

    begins = np.unique(np.concatenate([thresholds, *(first_samples(dtype, holds, 1) for holds in changes)]))
    of_nan = (binning.slots if keeps(np.array([np.nan], dtype))[0] else 0) if dtype.kind == "f" else None
    of_begins = groups(begins)
    cut = begins[np.diff(of_begins) != 0]

    def refined(finer: Binning, group: NDArray[np.int64], ranges: tuple[Range, ...] = ()) -> RefinedBinning:
        of_slots = np.zeros(finer.slots, np.int64)
        of_slots[: len(group)] = group
        if of_nan is not None:
            of_slots[-1] = of_nan
        even = dtype.kind == "f" and finer.regular and finer.bins <= IN_ONE_LAUNCH and step_map(finer) is not None
        return RefinedBinning(finer, of_slots, binning.slots + 1, ranges, even)

    if np.isin(cut, thresholds).all():
        return refined(binning, groups(thresholds))
    if finer := _even(cut) or _on_line(binning, cut):
        return refined(finer, groups(finer.thresholds))
    if moved := _moved(binning, begins, of_begins):
        by_ranges = refined(binning, *moved)
        if by_ranges.in_one_launch and max(len(by_ranges.points), len(by_ranges.ranges)) <= MOST:
            return by_ranges
    uneven = _uneven(cut)
    return None if uneven is None else refined(uneven, groups(uneven.thresholds))


def _moved(
    binning: Binning, begins: NDArray[Any], groups: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[Range, ...]] | None:
    """Groups of the slots of floats, and the ranges of samples in others; None if these are too many.

    Parameters
    ----------
    binning
    begins
        Where ranges begin that are in one slot, and kept or not; ascending.
    groups
        Of what lies before these, and of each.
    """
    dtype = binning.dtype
    if dtype.kind != "f" or not binning.regular:
        return None
    infinite = dtype.type(np.inf)
    inner = begins > -infinite
    begins, groups = begins[inner], np.append(groups[:1], groups[1:][inner])
    with np.errstate(over="ignore"):
        before = np.nextafter(begins, -infinite)
    lows, highs = np.append(-infinite, begins), np.append(before, infinite)
    slots, kept = binning.find(lows), groups > 0
    mostly = 2 * np.bincount(slots[kept], minlength=binning.slots) >= np.bincount(slots, minlength=binning.slots)
    of_slots = np.where(mostly, 1 + np.arange(binning.slots), 0)
    moved = np.flatnonzero(groups != of_slots[slots])
    if len(moved) > 2 * MOST:
        return None
    return of_slots, tuple(Range(lows[k], highs[k], int(of_slots[slots[k]]), int(groups[k])) for k in moved)


def _even(begins: NDArray[Any]) -> Binning | None:
    """Bins of equal width that begin wherever these integers are; None if there are too many."""
    if begins.dtype.kind == "f" or not 1 < len(begins) <= EVEN:
        return None
    first, *others = begins.tolist()
    width = gcd(*(number - first for number in others))
    if (others[-1] - first) // width >= EVEN:
        return None
    even = np.array(range(first, others[-1] + 1, width), begins.dtype)
    edges = even.astype(np.float64)
    return GivenBinning(begins.dtype, edges, True, even) if (np.diff(edges) > 0).all() else None


def _on_line(binning: Binning, begins: NDArray[Any]) -> Binning | None:
    """Bins as wide as those that were asked for, but for the first and the last: off by less than half a bin."""
    if not binning.regular or len(begins) < 2:
        return None
    width, numbers = (binning.edges[-1] - binning.edges[0]) / binning.bins, np.arange(float(len(begins)))
    with np.errstate(all="ignore"):
        starts = begins.astype(np.float64) - width * numbers
        edges = (starts.min() + starts.max()) / 2 + width * numbers
    if not (starts.max() - starts.min() < width and edges[0] < edges[-1] < np.inf):
        return None
    line = GivenBinning(begins.dtype, edges, True, begins)
    return line if step_map(line) else None


def _uneven(begins: NDArray[Any]) -> Binning | None:
    if len(begins) > UNEVEN:
        return None
    starts = begins if len(begins) > 1 else begins.repeat(2)  # there is a bin
    return GivenBinning(starts.dtype, np.arange(float(len(starts))), False, starts)
