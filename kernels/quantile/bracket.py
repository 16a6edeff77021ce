"""Finds order statistics of samples on a device by one read: the launch wrappers for the kernels in `bracket.cu`.

A small sample, one of each of 2^15 or 2^16 strata, tells in which range of keys every order statistic lies, as good as
certainly. The read counts the samples below and in each range and gathers those inside, a few percent; among
these the ranks are found. What lies outside its range after all, or finds no room, is left to the passes of a search.

R. W. Floyd and R. L. Rivest, Expected time bounds for selection, Communications of the ACM 18 (1975), 165-172.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.common.checks import check_address, check_array
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.common.memory import empty, pooled_zeros
from kernels.quantile.gpu import MOST, THREADS, TILE_BYTES, WIDE
from kernels.quantile.keys import bits_of, to_samples
from kernels.quantile.ranges import Picked, Range, Ranges, Target, Window, greatest_key, ranges_of, targets_of

SOURCE = Path(__file__).with_suffix(".cu")

DIGIT = constant(SOURCE, "DIGIT")
TARGETS = constant(SOURCE, "TARGETS")
DRAWN_BYTES = 2**18  # of the small sample, which one block searches
LEAST = 2**20  # of fewer samples passes take no longer
RANKS = 64  # that are looked for, at most
MOST_RANGES = 12
BLOCKS_PER_SM = 2  # at most, of a kernel
# Ranges that are gathered, and that are only counted, of the instances of the kernel.
SHAPES = ((1, 0), (1, 2), (2, 0), (3, 0), (2, 2), (1, 5), (5, 0), (3, 3), (3, 5), (5, 3), (8, 0), (1, 11), (5, 7))

INSTANCES = (
    *(f"{kernel}<{C_TYPES[name]}>" for name in WIDE for kernel in ("quantile_sample", "quantile_pick")),
    *(f"quantile_bracket<{C_TYPES[name]}, {gathered}, {counted}>" for name in WIDE for gathered, counted in SHAPES),
)

RanksOf = Callable[[int], Sequence[int]]  # of the number of samples that are no NaN; ascending, from 0


class Found(NamedTuple):
    """How many samples and NaN there are, and the keys of the ranks that were found."""

    samples: int
    nan: int
    keys: dict[int, int]


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
    read = _Read(samples, wanted[:TARGETS], targets)
    windows, picked, nan = read.drawn()
    if nan == drawn or (nan and not omit) or not read.queue(ranges_of(samples.dtype, windows, picked, drawn - nan)):
        return None
    return read.found(ranks, omit)


class _Kept(NamedTuple):
    """Samples that blocks have: of the part of each, `room` long, the first ones; `held`: how many."""

    items: Any
    held: Any
    room: int


class _Search:
    """The search for some ranks among what blocks have, on the device.

    Attributes
    ----------
    state : CuPy uint64 array
        As `quantile_pick` describes it.
    ranks
        At most `TARGETS`, ascending.
    """

    def __init__(self, dtype: np.dtype[Any], ranks: Sequence[int], state: Any) -> None:
        self.ranks, self.state = ranks, state
        self._key, self._every, self._least = np.dtype(f"u{dtype.itemsize}").type, Range(0, 2 ** bits_of(dtype) - 1), 0
        self._kernel = nvrtc.load(SOURCE, f"quantile_pick<{C_TYPES[dtype.name]}>")
        self._counters = pooled_zeros(len(ranks) << DIGIT - 1).view(np.uint32)

    @staticmethod
    def words(ranks: Sequence[int]) -> list[int]:
        """The state before the first step."""
        none = [0] * len(ranks)
        return [0, *none, *ranks, *none]

    def queue(self, kept: _Kept, span: Range | None = None, of_read: tuple[Any, int, int] | None = None) -> None:
        """All steps.

        Parameters
        ----------
        kept
        span
            All keys are within it; by default any.
        of_read
            What a read counted, how many ranges it gathered, and where it counted numbers: among these are the ranks.
        """
        self._least, most = span or self._every
        steps = -(-(most - self._least).bit_length() // DIGIT)
        for step in reversed(range(steps)):
            where = kept.items, kept.held, np.uint32(kept.room), np.uint32(len(self.ranks)), np.int32(DIGIT * step)
            sums, ranges, all_ = of_read if of_read and step == steps - 1 else (self.state, 0, 0)
            how = self._key(self._least), self.state, self._counters, sums, np.uint32(ranges), np.uint32(all_)
            self._kernel((kept.held.size,), (THREADS,), (*where, *how))

    def picked(self, state: NDArray[np.uint64]) -> Picked:
        """What was found, of the state on the host."""
        keys, before, equal = state[1:].reshape(3, len(self.ranks)).tolist()
        return Picked([key + self._least for key in keys], before, equal)


class _Read:
    """A small sample of the samples, one read of them all, and the search for ranks among what it keeps."""

    def __init__(self, samples: Any, ranks: Sequence[int], targets: Sequence[Target]) -> None:
        import cupy

        self._samples, self._blocks = samples, BLOCKS_PER_SM * device.limits().multiprocessors
        of_counters, of_held = 2 * MOST_RANGES + 1, -(-self._blocks // 2)
        self._places = np.cumsum([0, of_counters, of_held, 1 + 3 * len(ranks), 2 + 4 * len(targets)]).tolist()
        _, held, state, own, end = self._places
        words = np.zeros(end, np.uint64)
        words[state:own] = _Search.words(ranks)
        words[own + 2 : own + 2 + 2 * len(targets)] = np.array(targets).T.reshape(-1).view(np.uint64)
        self._words = cupy.asarray(words)
        draw = nvrtc.load(SOURCE, f"quantile_sample<{C_TYPES[samples.dtype.name]}>")
        blocks = DRAWN_BYTES // samples.dtype.itemsize // THREADS
        self._own = empty("quantile", blocks * THREADS, samples.dtype)
        arguments = samples, np.int64(samples.size), self._own, np.uint32(len(targets)), self._words[own:]
        draw((blocks,), (THREADS,), arguments)
        self._held = self._words[held:state].view(np.uint32)
        self._search = _Search(samples.dtype, ranks, self._words[state:own])

    def drawn(self) -> tuple[list[Window], Picked, int]:
        """Between which places of the numbers that were drawn ranks lie, what is there, and how many NaN there are."""
        own = self._words[self._places[3] :].get()
        places, *picked = own[2:].reshape(4, -1)
        windows = [Window(*ends) for ends in places.view(np.int64).reshape(-1, 2).tolist()]
        return windows, Picked(*(values.tolist() for values in picked)), int(own[1])

    def queue(self, ranges: Ranges) -> bool:
        """The read and the search; whether there is a kernel for so many ranges, and room."""
        few, many = len(ranges.gathered), len(ranges.counted)
        fitting = [shape for shape in SHAPES if shape[0] >= few and shape[1] >= many]
        if not fitting:
            return False
        samples, n = self._samples, self._samples.size
        gathered, counted = min(fitting, key=sum)
        kernel = nvrtc.load(SOURCE, f"quantile_bracket<{C_TYPES[samples.dtype.name]}, {gathered}, {counted}>")
        resident = device.limits().resident_blocks(THREADS, kernel.registers, kernel.static_shared)
        tile = TILE_BYTES // samples.dtype.itemsize
        blocks = min(resident, self._blocks, -(-min(n, MOST) // tile))
        # Twice what is expected; of sorted samples a block may get a tile more than another one.
        room = min(2 * math.ceil(ranges.share * n / blocks), -(-n // blocks)) + 2 * tile
        try:
            items = empty("quantile", blocks * room, samples.dtype)
        except MemoryError:
            return False
        self._ranges, self._kept = ranges, _Kept(items, self._held[:blocks], room)
        self._slots = [*range(few), *range(gathered, gathered + many)]
        self._all = 2 * (gathered + counted)
        ends = _ends(samples.dtype, ranges, self._slots)
        for start in range(0, n, MOST):
            part = samples[start : start + MOST]
            arguments = part, np.int64(part.size), self._words, *self._kept[:2], np.uint32(room)
            kernel((min(blocks, -(-part.size // tile)),), (THREADS,), (*arguments, *ends))
        if few:
            self._search.queue(self._kept, self._span(), (self._words, few, self._all))
        return True

    def _span(self) -> Range:
        """Of what is gathered."""
        return Range(self._ranges.gathered[0].first, self._ranges.gathered[-1].last)

    def found(self, ranks: RanksOf, omit: bool) -> Found:
        """What the counts say, and the search."""
        import cupy

        words, few = self._words[: self._places[3]].get(), len(self._ranges.gathered)
        counts, held, state = (words[start:end] for start, end in pairwise(self._places[:4]))
        held, numbers = held.view(np.uint32)[: self._kept.held.size], int(counts[self._all])
        found = Found(self._samples.size, self._samples.size - numbers, {})
        below = [numbers - int(counts[2 * slot]) for slot in self._slots]
        inside = [int(counts[2 * slot + 1]) for slot in self._slots]
        whole = bool((held <= self._kept.room).all()) and int(held.sum()) == sum(inside[:few])
        known = dict(zip(self._search.ranks, self._search.picked(state).keys, strict=True))
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
            search = _Search(self._samples.dtype, places, cupy.asarray(np.array(_Search.words(places), np.uint64)))
            search.queue(self._kept, self._span())
            found.keys.update(zip(some, search.picked(search.state.get()).keys, strict=True))
        return found


def _ends(dtype: np.dtype[Any], ranges: Ranges, slots: Sequence[int]) -> NDArray[Any]:
    """The ends of ranges as the kernel takes them; no sample is in those of other slots."""
    greatest = greatest_key(dtype)
    ends = np.array([Range(greatest, greatest - 1)] * MOST_RANGES, np.uint64)
    ends[list(slots)] = [*ranges.gathered, *ranges.counted]
    return to_samples(ends.reshape(-1), dtype)
