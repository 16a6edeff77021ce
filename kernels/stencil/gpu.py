"""Sliding windows on a GPU: the door to the kernels in `gpu.cu`; the numbers are those of `windows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.stencil.box import INSTANCES as BOX_INSTANCES
from kernels.stencil.box import box
from kernels.stencil.launch import C_TYPES, THREADS, check, checked_blocks, empty, step_of
from kernels.stencil.windows import OUTSIDE, Weights, box_cpu, from_rows, to_rows, weighted_cpu, weighted_dtype

SOURCE = Path(__file__).with_suffix(".cu")

# Packs of 16 bytes of a thread by bytes of a number, and taps at a time, in weighted.cuh.
PACKS, CHUNK = {4: 3, 8: 5}, 20
# By bytes of a number, how many taps are compiled into a kernel of their own, where that is faster.
FEW = {4: range(1, 34, 2), 8: range(19, 34, 2)}
WEIGHTED_WAVES = 16  # blocks for each that is resident

INSTANCES = (
    *BOX_INSTANCES,
    *(f"few_taps<{c_type}, {taps}>" for c_type, size in (("float", 4), ("double", 8)) for taps in FEW[size]),
    "weighted<float, float>",
    *(f"weighted<{c_type}, double>" for c_type in C_TYPES.values() if c_type != "float16"),
)


def slide(
    blocks: Sequence[Any], axis: int, radius: int, weights: Weights | None, before: int, after: int, outside: str
) -> Any:
    """Sums of the windows along an axis of an array in pieces, on the device that holds them.

    Parameters
    ----------
    blocks : NumPy or CuPy arrays of integers or floats
        What follows one another along the axis.
    axis
    radius, before, after, outside
        As for `kernels.stencil.windows.box_cpu`.
    weights : NumPy array, shape (2 * radius + 1,)
        None for plain sums.

    Returns
    -------
    array of the same kind, C-contiguous
    """
    where = (before, after, outside)
    if isinstance(blocks[0], np.ndarray):
        x = np.concatenate(blocks, axis) if len(blocks) > 1 else blocks[0]
        rows = to_rows(x, axis)
        sums: Any = box_cpu(rows, radius, *where) if weights is None else weighted_cpu(rows, weights, *where)
        return np.ascontiguousarray(from_rows(sums, _shape(x, axis, sums), axis))
    import cupy

    x = cupy.concatenate(blocks, axis) if len(blocks) > 1 else blocks[0]
    rows = to_rows(x, axis)
    if weights is None:
        sums = box(rows, radius, *where)
    else:
        factors = cupy.asarray(weights.astype(weighted_dtype(x.dtype, weights.dtype)))
        sums = weighted(rows, factors, *where)
    return cupy.ascontiguousarray(from_rows(sums, _shape(x, axis, sums), axis))


def _shape(x: Any, axis: int, sums: Any) -> tuple[int, ...]:
    shape = list(x.shape)
    shape[axis] = int(sums.shape[1])
    return tuple(shape)


def weighted(x: Any, weights: Any, before: int = 0, after: int = 0, outside: str = "zero") -> Any:
    """Weighted sums of the windows of `box`.

    Parameters
    ----------
    x, before, after, outside
        As for `box`.
    weights : CuPy array, shape (2 * radius + 1,)

    Returns
    -------
    CuPy array, shape (rows, before + length + after - 2 * radius)
        On the current stream; the same bits as from `kernels.stencil.windows.weighted_cpu`.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As for `box`.
    """
    taps = int(weights.size)
    rows, length, outputs = check(x, taps, before, after, outside)
    dtype = weighted_dtype(x.dtype, weights.dtype)
    out = empty((rows, outputs), dtype)
    if not out.size:
        return out
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    few = x.dtype == dtype and taps in FEW[dtype.itemsize]
    of = (C_TYPES[str(x.dtype)], taps if few else C_TYPES[str(dtype)])
    kernel = nvrtc.load(SOURCE, f"{'few_taps' if few else 'weighted'}<{of[0]}, {of[1]}>")
    pack, packs = 16 // dtype.itemsize, PACKS[dtype.itemsize]
    tile, chunk = THREADS * packs * pack, CHUNK * (packs + 1) * pack
    staged = -(-(taps - 1) // pack) * pack if few else 2 * min(chunk, -(-taps // pack) * pack)
    shared = 2 * dtype.itemsize * (tile + staged)
    resident = device.limits().resident_blocks(THREADS, kernel.registers, kernel.static_shared + shared)
    step = step_of(rows * outputs, 0, resident, tile, WEIGHTED_WAVES)
    spans = -(-outputs // step)
    counts = () if few else (np.int32(taps),)
    arguments = (np.int64(length), np.int64(outputs), np.int64(-before), *counts, np.int32(OUTSIDE.index(outside)),
                 np.int64(spans), np.int64(step))  # fmt: skip
    kernel((checked_blocks(rows * spans),), (THREADS,), (x, weights.astype(dtype), out, *arguments), shared_mem=shared)
    return out
