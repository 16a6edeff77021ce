"""Finds order statistics of samples on a device by one read: the launch wrappers for the kernels in `bracket.cu`.

A small sample, one of each of 2^18 strata, tells in which range of keys every order statistic lies, as good as
certainly. The read counts the samples below and above each range and gathers those inside, which are a percent; among
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
from kernels.quantile.ranges import Picked, Range, Ranges, Window, greatest_key, ranges_of, windows_of

SOURCE = Path(__file__).with_suffix(".cu")

DIGIT = constant(SOURCE, "DIGIT")
TARGETS = constant(SOURCE, "TARGETS")
DRAWN = 2**18  # samples
LEAST = 4 * DRAWN  # of fewer samples passes take no longer
RANKS = 64  # that are looked for, at most
MOST_RANGES = 8
BLOCKS_PER_SM = 2  # at most, of a kernel
# Ranges that are gathered, and that are only counted, of the instances of the kernel.
SHAPES = ((1, 0), (1, 2), (2, 0), (3, 0), (2, 2), (1, 5), (5, 0), (3, 3), (1, 7), (3, 5), (5, 3), (8, 0))

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
    wanted, numbers = ranks(samples.size), DRAWN
    if samples.size < LEAST or not 1 <= len(wanted) <= RANKS:
        return None
    read, drawn = _Read(samples, wanted[:TARGETS]), _Drawn(samples)
    windows = windows_of(wanted, samples.size, numbers)
    picked, nan = drawn.picked(windows, numbers)
    if nan:
        if nan == DRAWN or not omit:
            return None
        numbers -= nan
        estimated = samples.size * numbers // DRAWN
        windows = windows_of(ranks(estimated), estimated, numbers)
        picked, _ = drawn.picked(windows, numbers)
    if picked is None or not read.queue(ranges_of(samples.dtype, windows, picked, numbers)):
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


class _Drawn:
    """A sample of the samples, on the device."""

    def __init__(self, samples: Any) -> None:
        blocks = DRAWN // THREADS
        self._samples = samples
        self._kept = _Kept(empty("quantile", DRAWN, samples.dtype), empty("quantile", blocks, np.uint32), THREADS)

    def picked(self, windows: Sequence[Window], numbers: int) -> tuple[Picked | None, int]:
        """What lies at the ends of windows among so many numbers, None of too many windows; how many NaN there are."""
        import cupy

        if 2 * len(windows) > TARGETS:
            return None, 0
        places = [min(max(place, 0), numbers - 1) for window in windows for place in window]
        state = cupy.asarray(np.array([*_Search.words(places), 0], np.uint64))
        draw = nvrtc.load(SOURCE, f"quantile_sample<{C_TYPES[self._samples.dtype.name]}>")
        arguments = self._samples, np.int64(self._samples.size), *self._kept[:2], state[-1:]
        draw((self._kept.held.size,), (THREADS,), arguments)
        search = _Search(self._samples.dtype, places, state)
        search.queue(self._kept)
        got = state.get()
        return search.picked(got[:-1]), int(got[-1])


class _Read:
    """One read of all samples, and the search among those that it keeps for ranks among all numbers."""

    def __init__(self, samples: Any, ranks: Sequence[int]) -> None:
        import cupy

        self._samples, self._blocks = samples, BLOCKS_PER_SM * device.limits().multiprocessors
        self._counters = 2 * MOST_RANGES + 1
        self._places = np.cumsum([0, self._counters, -(-self._blocks // 2), 1 + 3 * len(ranks)]).tolist()
        _, held, state, end = self._places
        words = np.zeros(end, np.uint64)
        words[state:] = _Search.words(ranks)
        self._words = cupy.asarray(words)  # before the GPU has to wait for it
        self._held = self._words[held:state].view(np.uint32)
        self._search = _Search(samples.dtype, ranks, self._words[state:])

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

        words, few = self._words.get(), len(self._ranges.gathered)
        counts, held, state = (words[start:end] for start, end in pairwise(self._places))
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
