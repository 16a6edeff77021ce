"""Finds order statistics of samples on a device by one read: the launch wrappers for the kernels in `bracket.cu`.

A small sample, one of each of 2^18 strata, tells in which range of keys every order statistic lies, as good as
certainly. The read counts the samples below and above each range and gathers those inside, which are a percent; among
these the ranks are found. What lies outside its range after all, or finds no room, is left to the passes of a search.

R. W. Floyd and R. L. Rivest, Expected time bounds for selection, Communications of the ACM 18 (1975), 165-172.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
# Ranges that are gathered, and that are only counted, of the instances of the kernel.
SHAPES = ((1, 0), (1, 2), (2, 0), (3, 0), (2, 2), (1, 5), (3, 3), (5, 0), (1, 7), (5, 3), (8, 0))

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
    wanted, numbers = ranks(samples.size), DRAWN
    if samples.size < LEAST or not 1 <= len(wanted) <= RANKS:
        return None
    drawn = _Drawn(samples)
    windows = windows_of(wanted, samples.size, numbers)
    picked = drawn.picked(windows, numbers)
    if nan := drawn.nan():
        if nan == DRAWN or not omit:
            return None
        numbers -= nan
        estimated = samples.size * numbers // DRAWN
        windows = windows_of(ranks(estimated), estimated, numbers)
        picked = drawn.picked(windows, numbers)
    return None if picked is None else _read(samples, ranges_of(samples.dtype, windows, picked, numbers), ranks, omit)


class _Kept(NamedTuple):
    """Samples that blocks have: of the part of each, `room` long, the first ones; `held`: how many."""

    items: Any
    held: Any
    room: int


class _Drawn:
    """A sample of the samples, on the device."""

    def __init__(self, samples: Any) -> None:
        blocks = DRAWN // THREADS
        self._kept = _Kept(empty("quantile", DRAWN, samples.dtype), empty("quantile", blocks, np.uint32), THREADS)
        self._nan = pooled_zeros(1)
        draw = nvrtc.load(SOURCE, f"quantile_sample<{C_TYPES[samples.dtype.name]}>")
        draw((blocks,), (THREADS,), (samples, np.int64(samples.size), *self._kept[:2], self._nan))

    def nan(self) -> int:
        """How many of it are NaN."""
        return int(self._nan.get()[0]) if self._kept.items.dtype.kind == "f" else 0

    def picked(self, windows: Sequence[Window], numbers: int) -> Picked | None:
        """What lies at the ends of windows among so many numbers; None of too many windows."""
        if 2 * len(windows) > TARGETS:
            return None
        places = [min(max(place, 0), numbers - 1) for window in windows for place in window]
        return _picked(self._kept, places, bits_of(self._kept.items.dtype) // DIGIT)


def _picked(kept: _Kept, ranks: Sequence[int], steps: int, above: int = 0) -> Picked:
    """The order statistics of some ranks, at most `TARGETS`, ascending, among what blocks have.

    Parameters
    ----------
    kept
    ranks
    steps
        Each of `DIGIT` bits of a key; all keys have those of `above` before these.
    """
    import cupy

    number = len(ranks)
    state = np.zeros(1 + 3 * number, np.uint64)
    state[1 : 1 + number], state[1 + number : 1 + 2 * number] = above >> DIGIT * steps, ranks
    on_device = cupy.asarray(state)
    counters = pooled_zeros(number << DIGIT - 1).view(np.uint32)
    kernel = nvrtc.load(SOURCE, f"quantile_pick<{C_TYPES[kept.items.dtype.name]}>")
    for step in reversed(range(steps)):
        where = kept.items, kept.held, np.uint32(kept.room)
        kernel((kept.held.size,), (THREADS,), (*where, np.uint32(number), np.int32(DIGIT * step), on_device, counters))
    return Picked(*on_device.get()[1:].reshape(3, number).tolist())


def _read(samples: Any, ranges: Ranges, ranks: RanksOf, omit: bool) -> Found | None:
    """One read of all samples, and what is found among those that it gathers."""
    fitting = [shape for shape in SHAPES if shape[0] >= len(ranges.gathered) and shape[1] >= len(ranges.counted)]
    if not fitting:
        return None
    gathered, counted = min(fitting, key=sum)
    kernel = nvrtc.load(SOURCE, f"quantile_bracket<{C_TYPES[samples.dtype.name]}, {gathered}, {counted}>")
    n, tile = samples.size, TILE_BYTES // samples.dtype.itemsize
    blocks = device.limits().resident_blocks(THREADS, kernel.registers, kernel.static_shared)
    blocks = min(blocks, -(-min(n, MOST) // tile))
    # Twice what is expected; of sorted samples a block may get a tile more than another one.
    room = min(2 * math.ceil(ranges.share * n / blocks), -(-n // blocks)) + 2 * tile
    try:
        items = empty("quantile", blocks * room, samples.dtype)
    except MemoryError:
        return None
    # Of an empty range no sample has reached the first and not passed the last.
    greatest = greatest_key(samples.dtype)
    ends = np.array([Range(greatest, greatest - 1)] * MOST_RANGES, np.uint64)
    slots = [*range(len(ranges.gathered)), *range(gathered, gathered + len(ranges.counted))]
    ends[slots] = [*ranges.gathered, *ranges.counted]
    counters = 2 * (gathered + counted) + 1
    sums = pooled_zeros(counters + -(-blocks // 2))
    kept = _Kept(items, sums[counters:].view(np.uint32)[:blocks], room)
    for start in range(0, n, MOST):
        part = samples[start : start + MOST]
        arguments = part, np.int64(part.size), sums, *kept[:2], np.uint32(room)
        values = to_samples(ends.reshape(-1), samples.dtype)
        kernel((min(blocks, -(-part.size // tile)),), (THREADS,), (*arguments, *values))
    counts = sums.get()
    held, numbers = counts[counters:].view(np.uint32)[:blocks], int(counts[counters - 1])
    found = Found(n, n - numbers, {})
    below = [numbers - int(counts[2 * slot]) for slot in slots]
    inside = [int(counts[2 * slot]) - int(counts[2 * slot + 1]) for slot in slots]
    whole = bool((held <= room).all()) and int(held.sum()) == sum(inside[: len(ranges.gathered)])
    among: dict[int, int] = {}  # ranks among what was gathered
    for rank in ranks(numbers) if omit or not found.nan else ():
        for number, range_ in enumerate((*ranges.gathered, *ranges.counted)):
            if not below[number] <= rank < below[number] + inside[number]:
                continue
            if range_.first == range_.last:
                found.keys[rank] = range_.first
            elif whole:
                among[rank] = sum(inside[:number]) + rank - below[number]
    if among:
        least, most = ranges.gathered[0].first, ranges.gathered[-1].last
        steps, searched = -(-(least ^ most).bit_length() // DIGIT), list(among)
        for start in range(0, len(searched), TARGETS):
            some = searched[start : start + TARGETS]
            picked = _picked(kept, [among[rank] for rank in some], steps, least)
            found.keys.update(zip(some, picked.keys, strict=True))
    return found
