"""Counts keys of samples on a GPU: the launch wrappers for the kernels in `gpu.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.checks import check_address, check_array
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.common.memory import empty, pooled_zeros
from kernels.quantile.cells import Cells

SOURCE = Path(__file__).with_suffix(".cu")

THREADS = constant(SOURCE.parents[1] / "common" / "stream.cuh", "THREADS")
WIDE = ("int32", "uint32", "int64", "uint64", "float32", "float64")
MOST = 2**31  # samples of a launch: counters of a block have 32 bits
TILE_BYTES = THREADS * 16 * 4  # that a block reads at a time
MOST_COPIES = 32  # of a counter: one for each lane

INSTANCES = (
    *(f"quantile_top<{c_type}, {one}>" for c_type in C_TYPES.values() for one in ("true", "false")),
    *(f"quantile_cells<{C_TYPES[name]}>" for name in WIDE),
    *(f"quantile_around<{C_TYPES[name]}, {one}>" for name in WIDE for one in ("true", "false")),
)


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
    sums = pooled_zeros(cells.size)
    if cells.everything:
        _count_slots("quantile_top", samples, sums, np.int32(cells.shifts[0]))
        return sums.view(np.int64)
    lookup = cells.lookup
    key = lookup.firsts.dtype.type
    first, number = int(lookup.firsts[1]), len(cells.firsts)
    reach = int(lookup.firsts[number]) + int(lookup.sizes[number]) - 1 - first
    kernel = nvrtc.load(SOURCE, f"quantile_cells<{C_TYPES[samples.dtype.name]}>")
    arrays = [cupy.asarray(one) for one in (lookup.firsts, lookup.sizes, lookup.shifts, lookup.bases)]
    where = cupy.asarray(lookup.starts), np.uint32(lookup.step), *arrays, key(first), key(reach)
    _launch(kernel, samples, (sums, *where, np.int64(cells.gathered)))
    if not cells.gathered:
        return sums.view(np.int64)
    # Keys that are missing become the greatest, which sorts last; whatever order they came in, the partial is the same.
    keys = cupy.where(cupy.arange(cells.gathered).astype(np.uint64) < sums[:1], sums[1:], np.uint64(2**64 - 1))
    keys.sort()
    partial = empty("quantile", cells.size, np.int64)
    partial[1:] = keys.view(np.int64)
    partial[:1] = -1 - sums[:1].view(np.int64)
    return partial


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
    number = len(keys)
    sums = pooled_zeros(2 * number + 2)
    on_device = cupy.asarray(np.ascontiguousarray(keys) if number else np.zeros(1, f"u{samples.dtype.itemsize}"))
    _count_slots("quantile_around", samples, sums, on_device, np.uint32(number))
    return sums.view(np.int64)


def _count_slots(name: str, samples: Any, sums: Any, *arguments: Any) -> None:
    """Launch a kernel that counts in windows of its slots: as few as memory allows, with as many copies."""
    limit, slots = device.limits().shared_per_block // 4, len(sums)
    windows = -(-slots // limit)
    length = -(-slots // windows)
    copies = min(MOST_COPIES, 1 << (limit // length).bit_length() - 1)
    kernel = nvrtc.load(SOURCE, f"{name}<{C_TYPES[samples.dtype.name]}, {str(windows == 1).lower()}>")
    counters = np.uint32(slots), np.uint32(length), np.uint32(copies)
    _launch(kernel, samples, (sums, *counters, *arguments), 4 * length * copies, windows)


def _launch(kernel: Any, samples: Any, arguments: tuple[Any, ...], shared: int = 0, windows: int = 1) -> None:
    resident = device.limits().resident_blocks(THREADS, kernel.registers, kernel.static_shared + shared)
    for start in range(0, samples.size, MOST):
        part = samples[start : start + MOST]
        shares = min(max(resident // windows, 1), -(-part.nbytes // TILE_BYTES))
        kernel((shares * windows,), (THREADS,), (part, np.int64(part.size), *arguments), shared_mem=shared)
