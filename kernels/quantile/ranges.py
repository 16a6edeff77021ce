"""Ranges of keys in which order statistics lie, as good as certainly, by their places in a small sample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common.constants import constant
from kernels.quantile.keys import to_keys, to_samples

SIGMAS = 4.0  # standard deviations of the place of a rank, on either side of which a range ends
# A key that more than this part of the samples has is counted, not gathered.
HEAVY = constant(Path(__file__).with_name("bracket.cu"), "HEAVY")
# So many parts all ends of ranges that are drawn have together, at most, where the device decides by itself.
MOST_TOGETHER = constant(Path(__file__).with_name("bracket.cu"), "MOST_TOGETHER")


class Target(NamedTuple):
    """A place among numbers that are drawn: that of a share of them, and so many numbers beyond."""

    share: float
    beyond: float


class Window(NamedTuple):
    """Places among the sorted numbers that were drawn; outside them where it is open."""

    first: int
    last: int


class Picked(NamedTuple):
    """Of ranks among some samples: the key, how many samples before that one have it, and how many do."""

    keys: list[int]
    before: list[int]
    equal: list[int]


class Range(NamedTuple):
    """Keys from `first` to `last`, that one included."""

    first: int
    last: int


@dataclass(frozen=True)
class Ranges:
    """What a read looks into; no two overlap.

    Attributes
    ----------
    gathered
        The samples in these are kept; ascending.
    counted
        Single keys of many samples, ascending.
    share
        Of the numbers, about so many are kept.
    """

    gathered: list[Range]
    counted: list[Range]
    share: float


def targets_of(ranks: Sequence[int], numbers: int, drawn: int) -> list[Target]:
    """Where the brackets of ranks begin and end, in turn; those that overlap are one.

    Parameters
    ----------
    ranks
        Ascending, counted from 0.
    numbers, drawn
        How many there are.
    """
    targets: list[Target] = []
    for rank in ranks:
        share = (rank + 0.5) / numbers
        # The standard deviation if numbers were drawn at random; from strata it is no greater. One more, since a rank
        # near an end has few numbers on one side.
        beyond = SIGMAS * (math.sqrt(drawn * share * (1 - share)) + 1)
        if targets and drawn * share - beyond <= drawn * targets[-1].share + targets[-1].beyond + 1:
            targets.pop()
        else:
            targets.append(Target(share, -beyond))
        targets.append(Target(share, beyond))
    return targets


def ranges_of(dtype: np.dtype[Any], windows: Sequence[Window], picked: Picked, numbers: int) -> Ranges:
    """The keys that windows span.

    Parameters
    ----------
    dtype
        Of the samples.
    windows
    picked
        What lies at their ends, two for each.
    numbers
        That were drawn.
    """
    _, greatest = ends_of(dtype)
    heavy: set[int] = set()
    parts: list[Range] = []
    kept = 0
    for place, window in enumerate(windows):
        of_window = slice(2 * place, 2 * place + 2)
        (low, high), before, equal = (values[of_window] for values in picked)
        first, last = low if window.first >= 0 else 0, high if window.last < numbers else greatest
        ends = {key: number for key, number in zip((low, high), equal, strict=True) if number * HEAVY > numbers}
        heavy |= ends.keys()
        between = min(window.last, numbers - 1) - before[1] - (max(window.first, 0) - before[0] + equal[0])
        empty = Range(low + 1, high - 1) if low in ends and high in ends and between <= 0 else None
        parts += [part for part in _without(Range(first, last), sorted(ends)) if part != empty]
        kept += window.last - window.first + sum(equal) - sum(ends.values())
    gathered = [part for whole in _united(parts) for part in _without(whole, sorted(heavy))]
    return Ranges(gathered, [Range(key, key) for key in sorted(heavy)], kept / numbers)


class Groups(NamedTuple):
    """Ranges that follow one another: a group has the keys of its own and those below, down to the range before.

    Attributes
    ----------
    ranges
        Ascending; one whose first key is beyond its last is that of keys which are counted alone, or of none.
    gathered, counted
        Which of them are the ranges that are gathered, and the single keys.
    kept
        How many there are up to the last of those that are gathered.
    """

    ranges: list[Range]
    gathered: list[int]
    counted: list[int]
    kept: int


def groups_of(dtype: np.dtype[Any], ranges: Ranges) -> Groups:
    """The groups of ranges, with those between them that a single key needs for itself."""
    least, greatest = ends_of(dtype)
    groups = Groups([], [], [], 0)
    for first, last in sorted(ranges.gathered + ranges.counted):
        counted = first == last and Range(first, last) in ranges.counted
        above = groups.ranges[-1].last + 1 if groups.ranges else least
        if counted and above < first:
            groups.ranges.append(Range(first, first - 1))
        (groups.counted if counted else groups.gathered).append(len(groups.ranges))
        groups.ranges.append(Range(min(first + 1, greatest), last) if counted else Range(first, last))
    return groups._replace(kept=groups.gathered[-1] + 1 if groups.gathered else 0)


@cache
def ends_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the greatest key of a number."""
    ends = [-np.inf, np.inf] if dtype.kind == "f" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    return tuple(to_keys(np.array(ends, dtype)).tolist())


def drawn_groups(number: int) -> Groups:
    """The groups of ranges that are drawn, whose keys only the device knows."""
    return Groups([Range(0, 0)] * number, [*range(number)], [], number)


@cache
def every_range(dtype: np.dtype[Any]) -> NDArray[np.uint64]:
    """One range, of all numbers."""
    return range_words(dtype, [Range(*ends_of(dtype))])


def range_words(dtype: np.dtype[Any], ranges: Sequence[Range]) -> NDArray[np.uint64]:
    """Ranges as kernels take them, all of whose ends are fit."""
    ends = to_samples(np.array(ranges, np.uint64).reshape(-1), dtype)
    return np.append(np.uint64(len(ends)), ends.view(f"u{ends.itemsize}").astype(np.uint64))


def _united(ranges: Sequence[Range]) -> list[Range]:
    """Ranges of the same keys that do not overlap, ascending."""
    united: list[Range] = []
    for one in sorted(ranges):
        if united and one.first <= united[-1].last:
            united[-1] = Range(united[-1].first, max(united[-1].last, one.last))
        else:
            united.append(one)
    return united


def _without(whole: Range, keys: Sequence[int]) -> Iterator[Range]:
    """The parts of a range between some keys."""
    inside = [key for key in keys if whole.first <= key <= whole.last]
    for before, after in pairwise([whole.first - 1, *inside, whole.last + 1]):
        if before + 1 < after:
            yield Range(before + 1, after - 1)
