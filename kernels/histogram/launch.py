"""Launch plan of a binning on a device: the kernel, the number of copies of its counters, the kernel's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, dtypes, nvrtc
from kernels.histogram.binning import Binning
from kernels.histogram.linear_map import KEYS, LinearMap, NarrowMap, RegularMap, narrow_map, regular_map
from kernels.histogram.lookup import lookup_table

SOURCE = Path(__file__).with_name("gpu.cu")

THREADS = 1024  # THREADS in common/stream.cuh
APART = 4  # APART in gpu.cu

# C type of the samples in gpu.cu, by NumPy dtype.
C_TYPES = dtypes.C_TYPES | {"int8": "u8"}  # all 256 values are counted by their bits, and binned at the end
# C type of the keys of a linear map, by NumPy type.
KEY_TYPES = {"i4": "int", "u4": "u32", "i8": "i64", "u8": "u64", "f4": "float", "f8": "double"}
# Copies of a block's counters, by bytes per sample: narrower samples mean more increments per byte read.
COPIES = {1: 32, 2: 16, 4: 2, 8: 2}
SEARCH_COPIES = 16  # a search already has two bank-conflicting reads before the increment
CELLS_PER_THRESHOLD = 32


@dataclass(frozen=True)
class Plan:
    """Launch of one binning on one device: everything that does not depend on the samples.

    Attributes
    ----------
    kernel, grid, shared_mem
        Launch configuration.
    most
        Limit of samples per launch, because a block counts in 32 bits.
    slots
        Number of slots.
    arguments
        Kernel arguments after the slots.
    """

    kernel: nvrtc.Kernel
    grid: int
    shared_mem: int
    most: int
    slots: int
    arguments: tuple[Any, ...]


@lru_cache(maxsize=8)
def launch_plan(binning: Binning, index: int) -> Plan:
    """The plan; cached, because a stream counts many blocks, and copying the thresholds of many bins takes time."""
    itemsize, shared_per_block = binning.dtype.itemsize, device.limits().shared_per_block
    narrow = _narrow(binning, shared_per_block)
    shifted = binning.shift is not None and _reach(binning) + 1 == binning.bins << binning.shift
    line = regular_map(binning) if binning.regular and itemsize > 1 and not shifted else None
    counters, table_bytes, last, may_divide = binning.bins, 0, "", True
    if itemsize == 1:
        kernel, counters, may_divide = "histogram_bytes", 256, False
    elif narrow is not None:
        kernel, counters, may_divide = "histogram_narrow", len(narrow.slot_of), False
    elif shifted:
        kernel = "histogram_shift"
    else:
        kernel = "histogram_search" if line is None else "histogram_regular"
    if kernel == "histogram_search":
        counters = binning.slots
    copies, window = counter_layout(counters, itemsize, shared_per_block, kernel == "histogram_search")
    shared_mem = counter_bytes(window, copies)
    if kernel == "histogram_search":
        arguments, table_bytes, last = _search(binning, shared_per_block - shared_mem)
    elif line is not None and narrow is None:
        arguments, last = _regular(binning, line), f", {str(line.uncertain == 0).lower()}"
    elif narrow is not None:
        arguments = _clamped(narrow)
    else:
        arguments = _bytes(binning) if itemsize == 1 else _shift(binning)
    windows = -(-counters // window)
    divided = f", {windows if windows <= 2 else 0}" if may_divide else ""
    loaded = nvrtc.load(SOURCE, f"{kernel}<{C_TYPES[binning.dtype.name]}, {copies}{divided}{last}>")
    shared_mem += table_bytes
    shares = max(1, device.limits().resident_blocks(THREADS, loaded.registers, shared_mem) // windows)
    arguments = (np.uint32(counters), np.uint32(window), *arguments)
    return Plan(loaded, shares * windows, shared_mem, shares * 2**31, binning.slots, arguments)


def counter_layout(counters: int, itemsize: int, shared_per_block: int, search: bool) -> tuple[int, int]:
    """How many copies of how many counters a block keeps in shared memory.

    Parameters
    ----------
    counters
        Total number of counters.
    itemsize
        Bytes per sample.
    shared_per_block
        Bytes of shared memory that a block may use.
    search
        Reserve a third of it for a lookup table.
    """
    available = shared_per_block * 2 // 3 if search else shared_per_block
    copies = SEARCH_COPIES if search and itemsize < 8 else COPIES[itemsize]
    while copies > 1 and counter_bytes(counters, copies) > available * 2 // (2 if search else 3):
        copies //= 2
    fits = counters
    while counter_bytes(fits, copies) > available:
        fits -= -(-(counter_bytes(fits, copies) - available) // 5)  # a counter takes a little more than four bytes
    # Windows of equal size: each reads all samples, whatever its size.
    return copies, -(-counters // -(-counters // fits))


def counter_bytes(counters: int, copies: int) -> int:
    """Upper bound of the shared memory of a window and its APART counters: Counters.size in counters.cuh."""
    last = counters + APART - 1
    last += 0 if copies >= 16 else (last >> 5) + (last >> 10)
    return ((last + 1) * copies + 1) // 2 * 8


def _keys(binning: Binning) -> Any:
    return binning.thresholds.astype(KEYS.get(binning.dtype.name, binning.dtype))


def _bytes(binning: Binning) -> tuple[Any, ...]:
    import cupy

    return (cupy.asarray(binning.slot_of_pattern),)


def _narrow(binning: Binning, shared_per_block: int) -> NarrowMap | None:
    if binning.dtype.itemsize != 2 or binning.dtype.kind == "f":
        return None
    narrow = narrow_map(binning)
    return narrow if narrow is not None and counter_bytes(len(narrow.slot_of), 1) <= shared_per_block else None


def _clamped(line: NarrowMap) -> tuple[Any, ...]:
    import cupy

    samples = np.int32(line.low), np.int32(line.last), np.int32(line.beyond)
    return *samples, line.scale, line.offset, np.int32(line.fraction), cupy.asarray(line.slot_of)


def _shift(binning: Binning) -> tuple[Any, ...]:
    keys, unsigned = _keys(binning), np.dtype(f"u{_keys(binning).itemsize}").type
    has_end = np.bool_(len(keys) > binning.bins)
    return np.uint32(binning.bins), keys[0], unsigned(_reach(binning)), np.int32(binning.shift or 0), keys[-1], has_end


def _reach(binning: Binning) -> int:
    """Distance of the last sample that the shift bins."""
    shift, first = binning.shift or 0, int(binning.thresholds[0])
    return min(binning.bins << shift, int(np.iinfo(binning.dtype).max) - first + 1) - 1


def _regular(binning: Binning, regular: RegularMap) -> tuple[Any, ...]:
    return (*_thresholds(binning), *_line(regular.line), np.int32(regular.fraction), np.uint32(regular.below),
            np.uint32(regular.uncertain))  # fmt: skip


def _search(binning: Binning, available: int) -> tuple[tuple[Any, ...], int, str]:
    """Arguments, bytes of shared memory for the table and the thresholds, and the last template arguments."""
    import cupy

    keys = _keys(binning)
    cells = 2 ** max(8, (CELLS_PER_THRESHOLD * len(keys)).bit_length() - 1)
    while cells > 256 and 4 * cells > available - 24:
        cells //= 2
    table = lookup_table(keys, cells)
    taken = (len(table.cells) + 1) // 2 * 8
    held = 0 < keys.nbytes <= available - taken
    arguments = (*_thresholds(binning), cupy.asarray(table.cells), np.int32(len(table.cells)), *_line(table.line))
    of_map = f"{'ByBits' if table.by_bits else 'ByValue'}<{KEY_TYPES[keys.dtype.str[1:]]}>"
    return arguments, taken + (keys.nbytes if held else 0), f", {of_map}, {str(held).lower()}"


def _thresholds(binning: Binning) -> tuple[Any, ...]:
    import cupy

    keys = _keys(binning)
    # If there are no thresholds, the kernel gets a dummy, the largest value, and a count of zero.
    shown = keys if len(keys) else np.full(1, np.iinfo(keys.dtype).max, keys.dtype)
    return np.uint32(binning.bins), cupy.asarray(shown), np.int32(len(keys)), shown[0], shown[-1]


def _line(line: LinearMap) -> tuple[Any, ...]:
    return line.start, line.reach, line.scale, line.offset
