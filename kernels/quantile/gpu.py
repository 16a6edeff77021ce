"""Counts keys of samples on a GPU: the launch wrappers for the kernels in `gpu.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.common.checks import check_address, check_array
from kernels.common.constants import constant
from kernels.common.counters import counter_bytes, counter_layout
from kernels.common.dtypes import C_TYPES
from kernels.common.memory import pooled_zeros
from kernels.quantile.cells import Cells
from kernels.quantile.keys import to_keys, to_samples

SOURCE = Path(__file__).with_suffix(".cu")

THREADS = constant(SOURCE.parents[1] / "common" / "stream.cuh", "THREADS")
WIDE = ("int32", "uint32", "int64", "uint64", "float32", "float64")
MOST = 2**31  # samples of a launch: counters of a block have 32 bits
TILE_BYTES = THREADS * 16 * 4  # that a block reads at a time
HELD_BYTES = 2**14  # at most, of a table that is copied to shared memory
FEW = (1, 2, 4, 6, 10)  # values with which every sample is compared
FEW_CELLS = 64  # among which a key near them is looked up without another table

# Several instances of each kernel; there are more for other numbers of counters.
INSTANCES = (
    *(f"quantile_top<{c_type}, 1, 2>" for c_type in C_TYPES.values()), "quantile_top<u8, 32, 1>",
    *(f"quantile_cell<{C_TYPES[name]}, 1, 2, {unit}>" for name in WIDE for unit in ("true", "false")),
    *(f"quantile_cells<{C_TYPES[name]}, 1, 0, {held}>" for name in WIDE for held in ("true", "false")),
    *(f"quantile_keys<{C_TYPES[name]}, {plain}>" for name in (*WIDE, "int16") for plain in ("true", "false")),
    "quantile_keys<u16, true>", "quantile_keys<float16, false>",
    *(f"quantile_around<{C_TYPES[name]}, 2, 1, {held}>" for name in WIDE for held in ("true", "false")),
    *(f"quantile_few<{C_TYPES[name]}, {few}>" for name in WIDE for few in FEW),
)  # fmt: skip


def count_cells_on_device(samples: Any, cells: Cells) -> Any:
    """Count samples in the slots of cells, or gather their keys, on the device that holds them.

    Parameters
    ----------
    samples : CuPy array of any integer or float dtype, shape (n,), n >= 1, C-contiguous
    cells
        Of keys of this size.

    Returns
    -------
    CuPy int64 array, shape (cells.size,)
        As `kernels.quantile.cells.Cells` describes it, on the current stream.

    Raises
    ------
    TypeError, ValueError
        If the array is of another dtype, has another number of dimensions or gaps, or is not aligned.
    """
    import cupy

    check_array("quantile", samples, tuple(C_TYPES), 1)
    check_address(samples)
    if cells.everything:
        return _counted("quantile_top", samples, cells.size)
    if cells.gathered:
        return _gathered(samples, cells)
    key = np.dtype(f"u{samples.dtype.itemsize}").type
    first, size, shift = int(cells.firsts[0]), 2 ** int(cells.bits[0]), int(cells.shifts[0])
    if len(cells.firsts) == 1 and (plain := _plain(first, size, samples.dtype)):
        last = (size >> shift) - 1 if plain.descending else 0
        cell = key(plain.first), key(plain.size), np.int32(shift), np.uint32(last)
        unit = str(not shift).lower()
        return _counted("quantile_cell", samples, cells.slots + 1, *cell, last=[unit])[:-1]
    number = len(cells.firsts)
    held = _held(3 * key().itemsize * (2 << number.bit_length() - 1))
    starts, step, *arrays = _tables(cells, held, int(cupy.cuda.runtime.getDevice()))
    where = starts, np.uint32(step), np.uint32(2 * step), *arrays
    table = sum(one.nbytes for one in arrays) * held
    arguments = *where, np.uint32(number), np.int32(cells.slot_bits)
    return _counted("quantile_cells", samples, cells.slots + 1, *arguments, table=table, last=[str(held).lower()])[:-1]


@lru_cache(maxsize=4)
def _tables(cells: Cells, few: bool, _device: int) -> tuple[Any, ...]:
    """The lookup of cells: `starts`, `step`, `firsts`, `sizes`, `shifts`; kept, because copies wait for the device.

    Among a few cells all are searched: in arrays of 2 `step` items, the last one repeated, and without `starts`.
    """
    import cupy

    lookup, step = cells.lookup, 1 << len(cells.firsts).bit_length() - 1
    arrays = lookup.firsts, lookup.sizes, lookup.shifts
    if not few:
        return cupy.asarray(lookup.starts), lookup.step, *map(cupy.asarray, arrays)
    padded = (np.pad(one[: 2 * step], (0, max(2 * step - len(one), 0)), "edge") for one in arrays)
    return cupy.asarray(lookup.starts[:1]), step, *map(cupy.asarray, padded)


class _Plain(NamedTuple):
    """A range of keys as one of bits, `size` from `first` on, without those of NaN."""

    first: int
    size: int
    descending: bool


def _plain(first: int, size: int, dtype: np.dtype[Any]) -> _Plain | None:
    """So many keys from the first on; None if they are of both signs, or one is that of NaN."""
    every = 2 ** (8 * dtype.itemsize)
    half = every // 2
    if dtype.kind != "f":
        return _Plain((first + half * (dtype.kind == "i")) % every, size, False)
    if first < half < first + size or first + size == every:
        return None
    infinite, minus = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}")), first < half
    begin = every - first - size + 1 if minus else first - half
    return _Plain(begin, max(min(size, infinite + half * minus + 1 - begin), 0), minus)


def _gathered(samples: Any, cells: Cells) -> Any:
    """The partial of the keys of samples in cells."""
    import cupy

    lookup, number = cells.lookup, len(cells.firsts)
    first = int(lookup.firsts[1])
    size = int(lookup.firsts[number]) + int(lookup.sizes[number]) - first
    if plain := _plain(first, size, samples.dtype):
        first, size = plain.first, max(plain.size, 1)  # what is near is looked up
    sums, few, key = pooled_zeros(cells.size), number <= FEW_CELLS, lookup.firsts.dtype.type
    kernel = nvrtc.load(SOURCE, f"quantile_keys<{C_TYPES[samples.dtype.name]}, {str(plain is not None).lower()}>")
    starts, step, firsts, sizes, _ = _tables(cells, few, int(cupy.cuda.runtime.getDevice()))
    where = np.uint32(few), starts, np.uint32(step), firsts, sizes
    arguments = *where, key(first), key(size - 1), np.uint64(cells.gathered)
    resident = device.limits().resident_blocks(THREADS, kernel.registers, kernel.static_shared)
    _launch(kernel, samples, (sums, *arguments), resident)
    # Where there is no key the complement is the greatest, which sorts last; that of a number is -1 less it. Whatever
    # order keys came in, the partial is the same.
    partial = ~sums
    partial[1:].sort()
    return partial.view(np.int64)


def count_around_on_device(samples: Any, keys: Any) -> Any:
    """Count samples below, between, above, and equal to given keys, and NaN, on the device that holds them.

    Parameters
    ----------
    samples : CuPy array of any integer or float dtype of 32 or 64 bits, shape (n,), n >= 1, C-contiguous
    keys : NumPy array of unsigned integers of that size, ascending, shape (m,)
        None of them is that of NaN.

    Returns
    -------
    CuPy int64 array, shape (2 m + 2,)
        As of `kernels.quantile.cpu.count_around`, on the current stream.

    Raises
    ------
    TypeError, ValueError
        As `count_cells_on_device` does.
    """
    import cupy

    check_array("quantile", samples, WIDE, 1)
    check_address(samples)
    if len(keys) <= max(FEW) and (to_keys(values := to_samples(keys, samples.dtype)) == keys).all():
        return _around_few(samples, values)
    most = np.array(2 ** (8 * samples.dtype.itemsize) - 1, f"u{samples.dtype.itemsize}")
    # A key begins a slot of its own, and the one after it the next; NaN, the greatest key, the last. No key follows the
    # greatest one.
    ends = np.repeat(keys.astype(most.dtype), 2)
    ends[1::2] += ends[1::2] < most
    slots = len(ends) + (samples.dtype.kind == "f")
    reached = slots - (samples.dtype.kind != "f" and len(keys) > 0 and keys[-1] == most)
    half = 1 << max(slots.bit_length() - 1, 0)
    ends = np.concatenate((ends, np.full(2 * half - len(ends), most)))
    held = _held(ends.nbytes)
    return _counted("quantile_around", samples, 2 * len(keys) + 2, cupy.asarray(ends), np.uint32(half),
                    np.uint32(reached), table=ends.nbytes * held, last=[str(held).lower()])  # fmt: skip


def _around_few(samples: Any, values: NDArray[Any]) -> Any:
    """The same of values."""
    few = next(few for few in FEW if len(values) <= few)
    kernel = nvrtc.load(SOURCE, f"quantile_few<{C_TYPES[samples.dtype.name]}, {few}>")
    sums = pooled_zeros(2 * len(values) + 2)
    repeated = np.resize(np.append(values, values[-1:].repeat(max(FEW))), max(FEW))
    resident = device.limits().resident_blocks(THREADS, kernel.registers, kernel.static_shared)
    _launch(kernel, samples, (sums, np.uint32(len(values)), *repeated), resident)
    return sums.view(np.int64)


def _held(nbytes: int) -> bool:
    """Whether a table is copied to shared memory, most of which is for counters."""
    return nbytes <= min(HELD_BYTES, device.limits().shared_per_block // 4)


def _counted(
    name: str, samples: Any, counters: int, *arguments: Any, table: int = 0, last: Sequence[str] = ()
) -> Any:  # fmt: skip
    """Launch a kernel that counts in shared memory, beside a table of so many bytes: int64 counts of all counters."""
    room = device.limits().shared_per_block - table
    copies, window = counter_layout(counters, samples.dtype.itemsize, room)
    windows = -(-counters // window)
    instance = C_TYPES[samples.dtype.name], copies, windows if windows <= 2 else 0, *last
    kernel = nvrtc.load(SOURCE, f"{name}<{', '.join(map(str, instance))}>")
    shared = table + (counter_bytes(counters, copies, windows) if windows <= 2 else counter_bytes(window, copies))
    resident = device.limits().resident_blocks(THREADS, kernel.registers, shared)
    sums = pooled_zeros(counters)
    _launch(kernel, samples, (sums, np.uint32(counters), np.uint32(window), *arguments), resident, shared, windows)
    return sums.view(np.int64)


def _launch(
    kernel: Any, samples: Any, arguments: tuple[Any, ...], resident: int, shared: int = 0, windows: int = 1
) -> None:
    for start in range(0, samples.size, MOST):
        part = samples[start : start + MOST]
        shares = min(max(resident // windows, 1), -(-part.nbytes // TILE_BYTES))
        kernel((shares * windows,), (THREADS,), (part, np.int64(part.size), *arguments), shared_mem=shared)
