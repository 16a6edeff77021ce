"""How a binning is counted on a device: which kernel, how many counters of which kind, what the kernel is told."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kernels import build
from kernels.binning import Binning
from kernels.cells import table
from kernels.line import KEYS, Line, RegularLine, regular_line

THREADS = 1024  # THREADS in stream.cuh

# C type of the samples in histogram.cu, by NumPy dtype.
C_TYPES = {
    "int8": "u8", "uint8": "u8", "int16": "short", "uint16": "u16", "int32": "int", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "float16": "float16", "float32": "float", "float64": "double",
}  # fmt: skip
# And of what lies on a line, by its own.
KEY_TYPES = {"i4": "int", "u4": "u32", "i8": "i64", "u8": "u64", "f4": "float", "f8": "double"}
# Copies of the counters in a block, by bytes of a sample: the narrower it is, the more increments come with each byte.
COPIES = {1: 32, 2: 16, 4: 4, 8: 4}
CELLS_PER_THRESHOLD = 8


@dataclass(frozen=True)
class Plan:
    """Launches of one binning on one device: everything that does not depend on the samples, ready to be passed."""

    kernel: build.Kernel
    grid: int
    shared_mem: int
    windows: tuple[tuple[np.uint32, np.uint32], ...]
    arguments: tuple[Any, ...]


@lru_cache(maxsize=8)
def launch_plan(binning: Binning, device: int) -> Plan:
    """Kept, because a stream counts block after block and the thresholds of many bins take a while to copy."""
    itemsize, shared_per_block = binning.dtype.itemsize, build.limits().shared_per_block
    c_type, map_type, held = C_TYPES[binning.dtype.name], "", 0
    if itemsize == 1:
        stem, slots = "histogram_bytes", 256
    else:
        stem, slots = "histogram_search", binning.slots
    line = None
    if itemsize > 1 and binning.shift is not None:
        stem = "histogram_shift"
    elif itemsize > 1 and binning.regular:
        line = regular_line(binning)
        stem = "histogram_search" if line is None else "histogram_regular"
    counters, window, counted = counter_layout(slots, itemsize, shared_per_block, stem == "histogram_search")
    if stem == "histogram_search":
        arguments, held, map_type = _search(binning, shared_per_block - counted)
    else:
        arguments = _bytes(binning) if itemsize == 1 else _shift(binning) if line is None else _regular(binning, line)
    whole = "" if stem == "histogram_bytes" else f", {str(window == slots).lower()}"
    sure = "" if line is None else f", {str(line.doubtful == 0).lower()}"
    instance = f"{stem}<{c_type}, {counters}{whole}{sure}{map_type}>"
    shared_mem = counted + held
    kernel = build.load("histogram", instance)
    grid = build.limits().resident_blocks(THREADS, kernel.registers, shared_mem)
    ends = ((first, min(first + window, slots)) for first in range(0, slots, window))
    windows = tuple((np.uint32(first), np.uint32(last)) for first, last in ends)
    return Plan(kernel, grid, shared_mem, windows, arguments)


def counter_layout(slots: int, itemsize: int, shared_per_block: int, search: bool) -> tuple[str, int, int]:
    """Kind of the counters of a block, how many of them it has at a time, and their bytes.

    Parameters
    ----------
    slots
        All that are to be counted.
    itemsize
        Bytes of a sample.
    shared_per_block
        Bytes that a block may have.
    search
        Half of that is left to a table.
    """
    room = shared_per_block // 2 if search else shared_per_block
    copies = COPIES.get(itemsize, 1)
    while copies > 1 and _bytes_of(slots, copies) > room * 2 // 3:
        copies //= 2
    if _bytes_of(slots, copies) <= room:
        return f"Copies<{copies}>", slots, _bytes_of(slots, copies)
    # Windows of equal size: the data is read once for each, whatever its size.
    fits = room // 128 * 64
    window = -(-slots // -(-slots // fits))
    return "Halves", window, (window + 63) // 64 * 128


def _bytes_of(counters: int, copies: int) -> int:
    """With one more counter, and in whole rows of 32: see counters.cuh."""
    return (counters + 32) // 32 * 128 * copies


def _keys(binning: Binning) -> Any:
    return binning.thresholds.astype(KEYS.get(binning.dtype.name, binning.dtype))


def _bytes(binning: Binning) -> tuple[Any, ...]:
    import cupy

    return (cupy.asarray(binning.slot_of_pattern),)


def _shift(binning: Binning) -> tuple[Any, ...]:
    keys, shift = _keys(binning), binning.shift or 0
    reach = min(binning.bins << shift, int(np.iinfo(binning.dtype).max) - int(keys[0]) + 1) - 1
    unsigned = np.dtype(f"u{keys.itemsize}").type
    has_end = np.bool_(len(keys) > binning.bins)
    return np.uint32(binning.bins), keys[0], unsigned(reach), np.int32(shift), keys[-1], has_end


def _regular(binning: Binning, found: RegularLine) -> tuple[Any, ...]:
    return (*_thresholds(binning), *_line(found.line), np.int32(found.fraction), np.uint32(found.below),
            np.uint32(found.doubtful))  # fmt: skip


def _search(binning: Binning, room: int) -> tuple[tuple[Any, ...], int, str]:
    """Arguments, bytes of shared memory for the table and the thresholds, and what the cells are cut from."""
    import cupy

    keys = _keys(binning)
    cells = 2 ** max(8, (CELLS_PER_THRESHOLD * len(keys)).bit_length() - 1)
    while cells > 256 and 4 * cells > room - 16:
        cells //= 2
    found = table(keys, cells)
    taken = (len(found.cells) + 1) // 2 * 8
    held = 0 < keys.nbytes <= room - taken
    arguments = (*_thresholds(binning), np.bool_(held), cupy.asarray(found.cells), np.int32(len(found.cells)),
                 *_line(found.line))  # fmt: skip
    of_map = f"{'ByBits' if found.by_bits else 'ByValue'}<{KEY_TYPES[keys.dtype.str[1:]]}>"
    return arguments, taken + (keys.nbytes if held else 0), f", {of_map}"


def _thresholds(binning: Binning) -> tuple[Any, ...]:
    import cupy

    keys = _keys(binning)
    # Where there is no threshold at all, one that no sample reaches is looked at.
    looked_at = keys if len(keys) else np.full(1, np.iinfo(keys.dtype).max, keys.dtype)
    return np.uint32(binning.bins), cupy.asarray(looked_at), np.int32(len(keys))


def _line(line: Line) -> tuple[Any, ...]:
    return line.start, line.reach, line.scale, line.offset
