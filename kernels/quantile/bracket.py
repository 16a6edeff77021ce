"""Finds order statistics of samples on a device by one read: the launch wrappers for the kernels in `bracket.cu`.

A small sample, one of each of 2^15 or 2^16 strata, tells in which range of keys every order statistic lies, as good as
certainly. The read counts the samples below and in each range and gathers those inside, a few percent; among
these the ranks are found. What lies outside its range after all, or finds no room, is left to the passes of a search.

R. W. Floyd and R. L. Rivest, Expected time bounds for selection, Communications of the ACM 18 (1975), 165-172.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.common.checks import check_address, check_array
from kernels.common.dtypes import instance
from kernels.common.memory import empty
from kernels.quantile.gathered import (
    BLOCKS_PER_SM,
    COUNTS,
    FEW_TARGETS,
    INSTANCES,
    KEPT,
    KEYS,
    MOST_RANGES,
    SHAPES,
    SOURCE,
    SUMS,
    TARGETS,
    Around,
    Kept,
    OfRead,
    Search,
    blocks_of,
    queue_proof,
    queue_range,
    queue_ranges,
    step_of,
)
from kernels.quantile.gpu import THREADS, TILE_BYTES, WIDE
from kernels.quantile.keys import to_samples
from kernels.quantile.ranges import HEAVY, Picked, Range, Ranges, Target, Window, greatest_key, ranges_of, targets_of

__all__ = ["INSTANCES", "Around", "Found", "find_on_device"]  # what is inspected, too

DRAWN_BYTES = 2**18  # of the small sample, which one block searches
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
    targets = targets_of(wanted, samples.size, drawn)
    if len(targets) > TARGETS:
        return None
    read = _Read(samples, wanted[:TARGETS], targets, omit)
    alone = read.queue_alone()
    if alone and (found := read.proven()):
        return found
    windows, picked, nan = read.drawn()
    if nan == drawn or (nan and not omit):
        return None
    ranges = ranges_of(samples.dtype, windows, picked, drawn - nan)
    if alone and not ranges.counted:
        return read.found_alone(ranges, ranks, omit)
    return read.found(ranks, omit) if read.queue(ranges) else None


class _Read:
    """A small sample of the samples, one read of them all, and the search for ranks among what it keeps."""

    _host: Any  # the words, once they were waited for

    def __init__(self, samples: Any, ranks: Sequence[int], targets: Sequence[Target], omit: bool) -> None:

        self._samples, most_blocks = samples, BLOCKS_PER_SM * device.limits().multiprocessors
        self._share = 2 * max(target.beyond for target in targets) * samples.dtype.itemsize / DRAWN_BYTES
        sizes = {"sums": 2 * MOST_RANGES + 2, "held": -(-most_blocks // 2), "state": 1 + 3 * len(ranks),
                 "drawn": 2 + 4 * len(targets), "range": 3, "proof": COUNTS + 2 * FEW_TARGETS + 2}  # fmt: skip
        ends = np.cumsum(list(sizes.values())).tolist()
        self._at = {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
        self._initial = words = np.zeros(ends[-1], np.uint64)
        words[self._at["state"]] = Search.words(ranks)
        words[self._at["drawn"]][2 : 2 + 2 * len(targets)] = np.array(targets).T.reshape(-1).view(np.uint64)
        # In half of the time of `cupy.asarray`, and what it copies exists until the copy is waited for.
        self._words, self._host = empty("quantile", len(words), np.uint64), None
        self._words.data.copy_from_host_async(words.ctypes.data, words.nbytes)
        self._search = Search(samples.dtype, ranks, self._of("state"))
        # What takes a while comes before the first launch.
        few = len(targets) == 2 and len(ranks) <= FEW_TARGETS
        self._begun = few and self._make_room(SHAPES[0], self._share + 2 / HEAVY)
        digit, most = step_of(len(targets))
        draw = nvrtc.load(SOURCE, instance("quantile_sample", samples.dtype, digit, most))
        blocks = DRAWN_BYTES // samples.dtype.itemsize // THREADS
        self._own = empty("quantile", blocks * THREADS, samples.dtype)
        arguments = samples, np.int64(samples.size), self._own, np.uint32(len(targets)), self._of("drawn")
        draw((blocks,), (THREADS,), (*arguments, np.uint32(omit), self._of("range")))

    def _of(self, name: str) -> Any:
        """Some of the words on the device."""
        return self._words[self._at[name]]

    def drawn(self) -> tuple[list[Window], Picked, int]:
        """Between which places of the numbers that were drawn ranks lie, what is there, and how many NaN there are."""
        if self._host is None:
            self._host = self._words.get()
        own = self._host[self._at["drawn"]]
        places, *picked = own[2:].reshape(4, -1)
        windows = [Window(*ends) for ends in places.view(np.int64).reshape(-1, 2).tolist()]
        return windows, Picked(*(values.tolist() for values in picked)), int(own[1])

    def queue_alone(self) -> bool:
        """The read, the search and the proof, which wait for nothing; whether there is one range, and room.

        The ends that were drawn decide on the device whether any of it is done.
        """
        if not self._begun:
            return False
        self._slots, self._all = [0], SUMS - 2
        range_, search = self._of("range"), self._search
        queue_range(self._samples, self._words, self._kept, range_)
        search.queue(self._kept, None, OfRead(self._words, 1, self._all, range_))
        proof = self._of("proof")
        queue_proof(self._samples, self._kept, range_, search.state, len(search.ranks), proof, self._words)
        return True

    def queue(self, ranges: Ranges) -> bool:
        """The read and the search; whether there is a kernel for so many ranges, and room."""
        import cupy

        few, many = len(ranges.gathered), len(ranges.counted)
        fitting = [shape for shape in SHAPES[1:] if shape[0] >= few and shape[1] >= many]
        if not fitting or not self._make_room(shape := min(fitting, key=sum), ranges.share):
            return False
        if self._begun:
            self._of("state")[...] = cupy.asarray(np.array(Search.words(self._search.ranks), np.uint64))
        gathered, counted = shape
        self._ranges, self._slots = ranges, [*range(few), *range(gathered, gathered + many)]
        self._all = 2 * (gathered + counted)
        ends = _ends(self._samples.dtype, ranges, self._slots)
        queue_ranges(self._samples, self._words, self._kept, shape, self._of("range"), ends)
        if few:
            self._search.queue(self._kept, self._span(), OfRead(self._words, few, self._all))
        return True

    def _make_room(self, shape: tuple[int, int], share: float) -> bool:
        """For a share of the samples, kept by the instance of these ranges."""
        samples, blocks = self._samples, blocks_of(self._samples, shape)
        # Twice what is expected; of sorted samples a block may get a tile more than another one.
        tiles = 2 * TILE_BYTES // samples.dtype.itemsize
        room = min(2 * math.ceil(share * samples.size / blocks), -(-samples.size // blocks)) + tiles
        try:
            items = empty("quantile", blocks * room, samples.dtype)
        except MemoryError:
            return False
        self._kept = Kept(items, self._of("held").view(np.uint32)[:blocks], room)
        return True

    def _span(self) -> Range:
        """Of what is gathered."""
        return Range(self._ranges.gathered[0].first, self._ranges.gathered[-1].last)

    def proven(self) -> Found | None:
        """What `queue_alone` found and proved; None if that is not all, or NaN change which ranks are meant."""
        self._host = self._words.get()
        above, inside, numbers, counted = self._host[:SUMS].tolist()
        proof, below, ranks = self._host[self._at["proof"]], numbers - above, self._search.ranks
        complete = counted == numbers == self._samples.size and proof[KEPT] == inside
        if not complete or not all(below <= rank < below + inside for rank in ranks):
            return None
        keys = dict(zip(ranks, proof[KEYS:COUNTS].tolist(), strict=False))
        around = Around(self._samples, proof, self._of("range"), self._search.state, len(ranks))
        return Found(numbers, 0, keys, around)

    def found_alone(self, ranges: Ranges, ranks: RanksOf, omit: bool) -> Found | None:
        """What else that read found, without a proof."""
        self._ranges = ranges
        return self._found(ranks, omit, {})

    def found(self, ranks: RanksOf, omit: bool) -> Found | None:
        """What the counts say, and the search; None if not every sample was counted."""
        self._host = self._words.get()
        picked = self._search.picked(self._host[self._at["state"]])
        return self._found(ranks, omit, dict(zip(self._search.ranks, picked.keys, strict=True)))

    def _found(self, ranks: RanksOf, omit: bool, known: Mapping[int, int]) -> Found | None:
        import cupy

        few = len(self._ranges.gathered)
        counts, held = (self._host[self._at[name]] for name in ("sums", "held"))
        held, numbers = held.view(np.uint32)[: self._kept.held.size], int(counts[self._all])
        if int(counts[self._all + 1]) != self._samples.size:
            return None
        found = Found(self._samples.size, self._samples.size - numbers, {})
        below = [numbers - int(counts[2 * slot]) for slot in self._slots]
        inside = [int(counts[2 * slot + 1]) for slot in self._slots]
        whole = bool((held <= self._kept.room).all()) and int(held.sum()) == sum(inside[:few])
        among: dict[int, int] = {}  # ranks among what was kept, of those that were not searched for
        for rank in ranks(numbers) if omit or not found.nan else ():
            for number, (first, last) in enumerate((*self._ranges.gathered, *self._ranges.counted)):
                if not below[number] <= rank < below[number] + inside[number]:
                    continue
                if first == last:
                    found.keys[rank] = first
                elif whole and rank in known:
                    found.keys[rank] = known[rank]
                elif whole:
                    among[rank] = sum(inside[:number]) + rank - below[number]
        rest = list(among)
        for some in (rest[start : start + TARGETS] for start in range(0, len(rest), TARGETS)):
            places = [among[rank] for rank in some]
            search = Search(self._samples.dtype, places, cupy.asarray(np.array(Search.words(places), np.uint64)))
            search.queue(self._kept, self._span())
            found.keys.update(zip(some, search.picked(search.state.get()).keys, strict=True))
        return found


def _ends(dtype: np.dtype[Any], ranges: Ranges, slots: Sequence[int]) -> NDArray[Any]:
    """The ends of ranges as the kernel takes them; no sample is in those of other slots."""
    greatest = greatest_key(dtype)
    ends = np.array([Range(greatest, greatest - 1)] * MOST_RANGES, np.uint64)
    ends[list(slots)] = [*ranges.gathered, *ranges.counted]
    return to_samples(ends.reshape(-1), dtype)
