"""Counts the samples of many rows on a GPU, all in one launch: the launch wrappers for the kernels in `rows.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.common.checks import check_address, check_array
from kernels.common.constants import constant
from kernels.common.memory import pooled_zeros
from kernels.histogram.binning import Binning
from kernels.histogram.launch import C_TYPES
from kernels.histogram.row_maps import RowMaps, row_maps

SOURCE = Path(__file__).with_suffix(".cu")
THREADS = constant(SOURCE, "MOST_THREADS")
MOST = 2**32 - 1  # samples of a launch: counters have 32 bits
SECTOR = 32  # bytes that memory delivers at once
LANES, APART = 32, 16  # of a warp, and how many of them should count in banks of their own
PACK_BYTES = 16  # of the widest load
LEAST_THREADS = 64

# One instance of each kernel and way to find a counter; there are more for other types and widths of a load.
INSTANCES = tuple(
    f"{kernel}, {locate}>"
    for kernel in ("rows_in_turns<float, 4", "rows_in_runs<float")
    for locate in ("Stepped<float>", "Searched<float, ByValue<float>, u16>")
) + tuple(
    f"{kernel}, {locate}>"
    for kernel in ("rows_in_turns<int, 4", "rows_in_runs<int")
    for locate in ("Shift<int, true>", "Linear<int>")
)


@dataclass(frozen=True)
class OnDevice:
    """The maps of rows, and the arguments that they are to a kernel from some row on."""

    maps: RowMaps
    facts: Any
    tables: Any
    slot_of: Any

    @property
    def each(self) -> bool:
        """Whether rows differ."""
        return len(self.maps.facts) > 1

    def arguments(self, row: int) -> tuple[Any, ...]:
        """Facts, tables, slots and their sizes."""
        facts, tables, slot_of = (
            array[row:] if self.each else array for array in (self.facts, self.tables, self.slot_of)
        )
        numbers = (np.uint32(array.shape[1]) for array in (facts, tables, slot_of))
        return facts, next(numbers), tables, next(numbers), slot_of, next(numbers), np.uint32(self.each)


@dataclass(frozen=True)
class TurnLayout:
    """How blocks count rows that take turns.

    Attributes
    ----------
    pack
        Samples of a load.
    turn
        Samples after which packs begin with the same row.
    width
        Rows of a block.
    copies, pitch
        Of each row's counters, and words for all that belong to one slot.
    shared
        Bytes.
    """

    pack: int
    turn: int
    width: int
    copies: int
    pitch: int
    shared: int


def histogram_turns(samples: Any, binnings: tuple[Binning, ...], rows: int, first: int, row: int = 0) -> Any:
    """Count samples of rows that take turns, on the device that holds them.

    Parameters
    ----------
    samples : CuPy array, shape (n,), 1 <= n < 2**32, C-contiguous, dtype of the binnings
    binnings
        Of all rows, or of each; they have as many bins.
    rows
        Number of rows.
    first
        The one that samples[0] belongs to.
    row
        The first of the binnings, if there is one for each row.

    Returns
    -------
    CuPy uint32 array, shape (rows, bins + 3), of any strides, or None
        Underflow, the bins, overflow, NaN of each row, on the current stream; None if a block does not have room for
        the counters of a row.

    Raises
    ------
    TypeError, ValueError
        If the array is of another dtype, has more than one dimension or gaps, or is not aligned.
    """
    on_device = _checked(samples, binnings, max(rows, LANES))
    if not on_device:
        return None
    layout = turn_layout(rows, samples.itemsize, on_device.maps, device.limits().shared_per_block)
    if not layout:
        return None
    kernel = _kernel("rows_in_turns", binnings[0], on_device.maps, layout.pack)
    slices = -(-rows // layout.width)
    resident = device.limits().resident_blocks(THREADS, kernel.registers, layout.shared)
    shares = min(max(resident // slices, 1), max(len(samples) // THREADS, 1))
    slots = _zeros(binnings[0].slots, rows)
    numbers = (rows, first, layout.turn, layout.width, layout.copies, layout.pitch)
    arguments = samples, np.int64(len(samples)), slots, *map(np.uint32, numbers), *on_device.arguments(row)
    kernel((slices * shares,), (THREADS,), arguments, shared_mem=layout.shared)
    return slots.T


def histogram_runs(samples: Any, binnings: tuple[Binning, ...], bounds: NDArray[np.int64], row: int = 0) -> Any:
    """Count samples of rows that follow each other, on the device that holds them.

    Parameters
    ----------
    samples, binnings, row
        As of `histogram_turns`.
    bounds : int64 array, shape (rows + 1,)
        Where each row begins, and n; a row may be empty.

    Returns, Raises
        As `histogram_turns`.
    """
    import cupy

    on_device = _checked(samples, binnings, LANES)
    if not on_device:
        return None
    limits, runs, maps = device.limits(), len(bounds) - 1, on_device.maps
    threads, copies, shared = run_layout(len(samples) / runs, samples.itemsize, maps, limits.shared_per_block)
    if not copies:
        return None
    kernel = _kernel("rows_in_runs", binnings[0], maps)
    resident = limits.resident_blocks(threads, kernel.registers, shared)
    blocks = min(resident, -(-samples.nbytes // (PACK_BYTES * threads)))
    slots = _zeros(runs, binnings[0].slots)
    arguments = (samples, cupy.asarray(bounds), np.uint32(runs), slots, np.uint32(binnings[0].slots), np.uint32(copies),
                 *on_device.arguments(row))  # fmt: skip
    kernel((blocks,), (threads,), arguments, shared_mem=shared)
    return slots


def _zeros(lines: int, columns: int) -> Any:
    count = lines * columns
    return pooled_zeros(-(-count // 2)).view(np.uint32)[:count].reshape(lines, columns)


def _checked(samples: Any, binnings: Sequence[Binning], rows: int) -> OnDevice | None:
    import cupy

    check_array("histogram", samples, (binnings[0].dtype.name,), 1)
    check_address(samples)
    if not 1 <= len(samples) <= MOST:
        return None
    return maps_on_device(tuple(binnings), rows, int(cupy.cuda.runtime.getDevice()))


@lru_cache(maxsize=8)
def maps_on_device(binnings: tuple[Binning, ...], rows: int, index: int) -> OnDevice | None:
    """The maps on a device of so many rows; cached, because a stream counts many blocks."""
    import cupy

    maps = row_maps(binnings, rows, device.limits().shared_per_block)
    if maps is None:
        return None
    return OnDevice(maps, *map(cupy.asarray, (maps.facts, maps.tables, maps.slot_of)))


def _kernel(name: str, binning: Binning, maps: RowMaps, *pack: int) -> nvrtc.Kernel:
    template = ", ".join((C_TYPES[binning.dtype.name], *map(str, pack), maps.locate))
    return nvrtc.load(SOURCE, f"{name}<{template}>")


def turn_layout(rows: int, itemsize: int, maps: RowMaps, available: int) -> TurnLayout | None:
    """How blocks of so much shared memory count; None if none has room for the counters of a row.

    Lanes that read the same row wait for each other unless they have copies of its counters. Where no more than two do,
    they take no longer than memory does, so packs are as wide as that allows.
    """
    each, table, counts = len(maps.facts) > 1, int(maps.tables.shape[1]) * 8, 4 * maps.counters

    def taken(width: int, columns: int) -> int:
        return table * (width if each else 1) + counts * columns

    def copies_of(width: int, across: int) -> int:
        copies = 1
        while copies * across < LANES and taken(width, 2 * copies * width) <= available:
            copies *= 2
        return copies

    packs = [1] if each else [2**k for k in range(4) if 2**k * itemsize <= PACK_BYTES]
    wide = rows if taken(rows, rows) <= available else 0
    acrosses = {pack: lcm(rows, pack) // pack for pack in packs if wide and lcm(rows, pack) // pack <= THREADS}
    turn = 0
    if not acrosses:
        wide = min((available - (0 if each else table)) // (counts + (table if each else 0)), THREADS)
        if wide < 1:
            return None
        unit = SECTOR // itemsize if wide * itemsize >= SECTOR else 1
        slices = -(-rows // (wide // unit * unit))
        wide = -(-rows // (slices * unit)) * unit  # slices of about the same width
        acrosses, turn = {pack: wide // pack for pack in packs if not rows % pack and not wide % pack}, rows
    lanes = {pack: min(copies_of(wide, across) * across, APART) for pack, across in acrosses.items()}
    pack = max(acrosses, key=lambda pack: (lanes[pack], pack))
    copies = copies_of(wide, acrosses[pack])
    pitch = copies * wide
    if pitch >= APART and taken(wide, -(-pitch // APART) * APART) <= available:
        pitch = -(-pitch // APART) * APART  # so that rows have banks of their own
    return TurnLayout(pack, turn or lcm(rows, pack), wide, copies, pitch, taken(wide, pitch))


def run_layout(mean: float, itemsize: int, maps: RowMaps, available: int) -> tuple[int, int, int]:
    """Threads of a block, copies of its counters (0 if not even one fits), and bytes of shared memory.

    Blocks that count short rows are small, so that others count while one waits; what it takes to clear and to add up
    the counters should be little beside the samples.
    """
    table, counts, threads, copies = maps.tables.shape[1] * 8, 4 * maps.counters, THREADS, 1
    while threads > LEAST_THREADS and threads * PACK_BYTES > mean * itemsize:
        threads //= 2
    if table + counts > available:
        return threads, 0, 0
    room = available * threads // THREADS
    while copies < LANES and table + 2 * copies * counts <= room and 16 * copies * maps.counters <= mean:
        copies *= 2
    return threads, copies, table + copies * counts
