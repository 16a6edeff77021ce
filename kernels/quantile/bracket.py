"""Finds order statistics of samples on a device by one read: the launch wrappers for the kernels in `bracket.cu`.

A small sample, one of each of 2^17 or 2^18 strata, tells in which range of keys every order statistic lies, as good as
certainly. The read counts the samples below and in each range and gathers those inside, a few percent; among
these the ranks are found. What lies outside its range after all, or finds no room, is left to the passes of a search.

R. W. Floyd and R. L. Rivest, Expected time bounds for selection, Communications of the ACM 18 (1975), 165-172.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from kernels.common import device
from kernels.common.checks import check_address, check_array
from kernels.common.memory import current_stream, empty
from kernels.quantile.bracket_steps import (
    BLOCKS_PER_SM,
    INSTANCES,
    KEPT,
    MOST_GROUPS,
    TARGETS,
    Around,
    Kept,
    OfRead,
    Search,
    blocks_of,
    layout_of,
    levels_of,
    most_ranks,
    picked_of,
    queue_ends,
    queue_proof,
    queue_read,
    queue_sample,
    sums_of,
)
from kernels.quantile.gpu import THREADS, TILE_BYTES, WIDE
from kernels.quantile.ranges import (
    HEAVY,
    MOST_TOGETHER,
    Picked,
    Ranges,
    Target,
    Window,
    drawn_groups,
    every_range,
    groups_of,
    range_words,
    ranges_of,
    targets_of,
)

__all__ = ["INSTANCES", "Around", "Found", "find_on_device"]  # what is inspected, too

DRAWN_BYTES = 2**20  # of the small sample
LEAST = 2**20  # of fewer samples passes take no longer
RANKS = 64  # that are looked for, at most

RanksOf = Callable[[int], Sequence[int]]  # of the number of samples that are no NaN; ascending, from 0


class Found(NamedTuple):
    """How many samples and NaN there are, and the keys of the ranks that were found.

    Attributes
    ----------
    around
        Counts around the keys, which prove them, where the read counted these, too.
    """

    samples: int
    nan: int
    keys: dict[int, int]
    around: Around | None = None


def find_on_device(samples: Any, ranks: RanksOf, omit: bool) -> Found | None:
    """Find order statistics on the device that holds the samples.

    Parameters
    ----------
    samples : CuPy array of any integer or float dtype of 32 or 64 bits, shape (n,), n >= 1, C-contiguous
    ranks
        Those that are looked for.
    omit
        Whether NaN are left out; otherwise one makes the ranks useless.

    Returns
    -------
    Found
        Some ranks may be missing. None where passes take less time, and nothing was found.

    Raises
    ------
    TypeError, ValueError
        If the array is of another dtype, has another number of dimensions or gaps, or is not aligned.
    """
    check_array("quantile", samples, WIDE, 1)
    check_address(samples)
    ranks = cache(ranks)
    wanted, drawn = ranks(samples.size), DRAWN_BYTES // samples.dtype.itemsize
    if samples.size < LEAST or not 1 <= len(wanted) <= RANKS:
        return None
    targets, most = targets_of(wanted, samples.size, drawn), most_ranks()
    if len(targets) > most:
        return None
    read = _Read(samples, wanted[:most], targets, omit)
    alone = len(wanted) <= most and read.queue_alone()
    if alone and (found := read.proven()):
        return found
    windows, picked, nan = read.drawn()
    if nan == drawn or (nan and not omit):
        return None
    if alone and read.was_fit:
        return read.found_alone(ranks, omit)
    ranges = ranges_of(samples.dtype, windows, picked, drawn - nan)
    return read.found(ranks, omit) if read.queue(ranges) else None


class _Read:
    """A small sample of the samples, one read of them all, and the search for ranks among what it keeps."""

    _host: Any  # the words, once they were waited for

    def __init__(self, samples: Any, ranks: Sequence[int], targets: Sequence[Target], omit: bool) -> None:
        self._samples, self._stream, self._drawn_ranges = samples, current_stream(), len(targets) // 2
        numbers = DRAWN_BYTES // samples.dtype.itemsize
        self._at = layout_of(BLOCKS_PER_SM * device.limits().multiprocessors, numbers, len(targets), len(ranks))
        self._initial = words = np.zeros(self._at["groups"].stop, np.uint64)
        self._parts: dict[str, Any] = {}
        words[self._at["state"]] = Search.words(ranks)
        words[self._at["drawn"]][2:] = np.array(targets).T.reshape(-1).view(np.uint64)
        words[self._at["every"]] = every_range(samples.dtype)
        # In half of the time of `cupy.asarray`, and what it copies exists until the copy is waited for.
        self._words, self._host = empty("quantile", len(words), np.uint64), None
        self._words.data.copy_from_host_async(words.ctypes.data, words.nbytes)
        self._own = empty("quantile", numbers, samples.dtype)
        own = Kept(self._own, self._of("held drawn").view(np.uint32)[: numbers // THREADS], THREADS)
        drawn, picked, stream = self._of("drawn"), self._of("picked"), self._stream
        queue_sample(samples, own, len(targets), drawn, picked, stream)
        Search(samples.dtype, len(targets), picked).queue(own, self._of("every"), 1, stream)
        queue_ends(samples.dtype, numbers, len(targets), drawn, picked, omit, self._of("range"), stream)
        self._ranks, self._search = ranks, Search(samples.dtype, len(ranks), self._of("state"))
        share = sum(last.share - first.share + (last.beyond - first.beyond) / numbers
                    for first, last in zip(targets[::2], targets[1::2], strict=True))  # fmt: skip
        self._share = share + min(len(targets), MOST_TOGETHER) / HEAVY

    def _of(self, name: str) -> Any:
        """Some of the words on the device."""
        if name not in self._parts:
            self._parts[name] = self._words[self._at[name]]
        return self._parts[name]

    def drawn(self) -> tuple[list[Window], Picked, int]:
        """Between which places of the numbers that were drawn ranks lie, what is there, and how many NaN there are."""
        if self._host is None:
            self._host = self._words.get()
        own, picked = self._host[self._at["drawn"]], self._host[self._at["picked"]]
        places = own[2 : 2 + 2 * self._drawn_ranges].view(np.int64)
        windows = [Window(*ends) for ends in places.reshape(-1, 2).tolist()]
        return windows, picked_of(picked), int(own[1])

    @property
    def was_fit(self) -> bool:
        """Whether the ranges that were drawn could be read at once; once the words were waited for."""
        return bool(self._host[self._at["range"]][0] == 2 * self._drawn_ranges)

    def queue_alone(self) -> bool:
        """The read of the ranges that were drawn, the search and the proof, without waiting; whether there is room.

        The ends that were drawn decide on the device whether any of it is done.
        """
        number, search, proof = self._drawn_ranges, self._search, self._of("proof")
        if not self._make_room(levels_of(number), self._share):
            return False
        self._groups = drawn_groups(number)
        self._queue(self._of("range"))
        queue_proof(self._samples, self._kept, self._of("range"), number, search.state, search.ranks, proof,
                    self._words, self._stream)  # fmt: skip
        return True

    def queue(self, ranges: Ranges) -> bool:
        """The read and the search; whether there are few enough ranges, and room."""
        groups = groups_of(self._samples.dtype, ranges)
        few = len(groups.ranges) <= MOST_GROUPS and len(ranges.gathered) <= TARGETS
        if not few or not self._make_room(levels_of(len(groups.ranges)), ranges.share):
            return False
        self._groups = groups
        words = self._initial
        words[self._at["state"]] = Search.words(self._ranks)
        for name, some in (("range", ranges.gathered), ("groups", groups.ranges)):
            words[self._at[name]][: 1 + 2 * len(some)] = range_words(self._samples.dtype, some)
        first, last = self._at["state"].start, self._at["groups"].stop
        self._words[first:last].data.copy_from_host_async(words[first:].ctypes.data, 8 * (last - first))
        self._queue(self._of("groups"))
        return True

    def _queue(self, range_: Any) -> None:
        """The read of the groups of `range_`, and the search among what it gathers."""
        number, kept = len(self._groups.ranges), self._groups.kept
        queue_read(self._samples, self._words, self._kept, range_, number, kept, self._stream)
        if ranges := len(self._groups.gathered):
            of_read = OfRead(self._words, 2 ** levels_of(number), sum(1 << group for group in self._groups.gathered))
            self._search.queue(self._kept, self._of("range"), ranges, self._stream, of_read)

    def _make_room(self, levels: int, share: float) -> bool:
        """For a share of the samples, kept by the kernel of so many levels."""
        samples, blocks = self._samples, blocks_of(self._samples, levels)
        if not blocks:
            return False
        # Twice what is expected; of sorted samples a block may get a tile more than another one.
        tiles = 2 * TILE_BYTES // samples.dtype.itemsize
        room = min(2 * math.ceil(share * samples.size / blocks), -(-samples.size // blocks)) + tiles
        try:
            items = empty("quantile", blocks * room, samples.dtype)
        except MemoryError:
            return False
        self._kept = Kept(items, self._of("held").view(np.uint32)[:blocks], room)
        return True

    def _counts(self) -> tuple[list[int], list[int], int]:
        """Numbers below each range, gathered and counted alone, and in it; how many NaN there are."""
        groups = self._groups
        sums = self._host[self._at["sums"]][: sums_of(levels_of(len(groups.ranges)))].tolist()
        nan = sums.pop()
        upto = [0, *accumulate(sums)]
        below = [upto[2 * group + 1] - nan for group in groups.gathered]
        inside = [sums[2 * group + 1] for group in groups.gathered]
        below += [upto[2 * group] - (nan if group else 0) for group in groups.counted]
        inside += [sums[2 * group] + sums[2 * group + 1] - (0 if group else nan) for group in groups.counted]
        return below, inside, nan if upto[-1] == self._samples.size else -1

    def proven(self) -> Found | None:
        """What `queue_alone` found and proved; None if that is not all, or NaN change which ranks are meant."""
        self._host = self._words.get()
        below, inside, nan = self._counts()
        proof, ranks = self._host[self._at["proof"]], self._ranks
        if not self.was_fit or nan or proof[KEPT] != sum(inside):
            return None
        ends = [(first, first + number) for first, number in zip(below, inside, strict=True)]
        if not all(any(first <= rank < last for first, last in ends) for rank in ranks):
            return None
        keys = self._host[self._at["state"]][1 : 1 + len(ranks)].tolist()
        proven = sorted(set(keys))
        counts = proof[KEPT + 1 : KEPT + 3 + 2 * len(proven)].view(np.int64)
        around = Around(self._samples, proven, counts, self._of("range"), self._drawn_ranges, self._search.state,
                        len(ranks))  # fmt: skip
        return Found(self._samples.size, 0, dict(zip(ranks, keys, strict=True)), around)

    def found_alone(self, ranks: RanksOf, omit: bool) -> Found | None:
        """What that read found of other ranks than those of `queue_alone`, or without room for all: no proof."""
        return self._found(ranks, omit, {})

    def found(self, ranks: RanksOf, omit: bool) -> Found | None:
        """What the counts say, and the search; None if not every sample was counted."""
        self._host = self._words.get()
        picked = picked_of(self._host[self._at["state"]])
        return self._found(ranks, omit, dict(zip(self._ranks, picked.keys, strict=True)))

    def _found(self, ranks: RanksOf, omit: bool, known: Mapping[int, int]) -> Found | None:
        import cupy

        groups, (below, inside, nan) = self._groups, self._counts()
        if nan < 0:
            return None
        few = len(groups.gathered)
        held = self._host[self._at["held"]].view(np.uint32)[: self._kept.held.size]
        found = Found(self._samples.size, nan, {})
        whole = bool((held <= self._kept.room).all()) and int(held.sum()) == sum(inside[:few])
        among: dict[int, int] = {}  # ranks among what was kept, of those that were not searched for
        for rank in ranks(self._samples.size - nan) if omit or not nan else ():
            for number, (first, members) in enumerate(zip(below, inside, strict=True)):
                if not first <= rank < first + members:
                    continue
                if number >= few:
                    found.keys[rank] = groups.ranges[groups.counted[number - few]].last
                elif whole and rank in known:
                    found.keys[rank] = known[rank]
                elif whole:
                    among[rank] = sum(inside[:number]) + rank - first
        rest, most = list(among), most_ranks()
        for some in (rest[start : start + most] for start in range(0, len(rest), most)):
            places = [among[rank] for rank in some]
            search = Search(self._samples.dtype, len(places), cupy.asarray(np.array(Search.words(places), np.uint64)))
            search.queue(self._kept, self._of("range"), few, self._stream)
            found.keys.update(zip(some, picked_of(search.state.get()).keys, strict=True))
        return found
