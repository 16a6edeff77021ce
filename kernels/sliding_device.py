"""Sliding windows on a GPU: the door to the kernels in `sliding.cu`; the numbers are those of `sliding.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels import build
from kernels.sliding import OUTSIDE, Weights, box_cpu, box_dtype, from_rows, to_rows, weighted_cpu, weighted_dtype
from kernels.variant import check_array

C_TYPES = {
    "int8": "signed char", "uint8": "u8", "int16": "short", "uint16": "u16", "int32": "int", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "float32": "float", "float64": "double",
}  # fmt: skip
DTYPES = (*C_TYPES, "float16")
THREADS = 256  # BLOCK in sliding.cu
TILE = THREADS * 7  # plain sums of a block at a time: TILE in sliding.cu
OUTPUTS = {"float32": 15, "float64": 9}  # weighted ones of a thread, by dtype of the result
MAX_GRID = 2**31 - 1
# Windows that a block slides over for each that it adds up first, and blocks for each multiprocessor: where an array is
# too short for both, as many windows as there are elements in one.
WINDOWS_PER_SUM, BLOCKS = 8, 16

INSTANCES = (
    *(f"box<{c_type}>" for c_type in C_TYPES.values()), "box_far<float>", "box_far<double>",
    "weighted<float, float, 15>", *(f"weighted<{c_type}, double, 9>" for c_type in C_TYPES.values()),
)  # fmt: skip


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
        As for `kernels.sliding.box_cpu`.
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


def box(x: Any, radius: int, before: int = 0, after: int = 0, outside: str = "zero") -> Any:
    """Sums of all windows that lie within a row and what is taken for its neighbourhood.

    Parameters
    ----------
    x : CuPy array, shape (rows, length), C-contiguous, of integers or floats
    radius, before, after, outside
        As for `kernels.sliding.box_cpu`.

    Returns
    -------
    CuPy array, shape (rows, before + length + after - 2 * radius)
        On the current stream; the same bits as from `box_cpu`.

    Raises
    ------
    TypeError, ValueError
        If the array is none that the kernels read, or a window is longer than a row with its neighbourhood.
    OverflowError
        If a sum of int64 or uint64 does not fit.
    MemoryError
        If the device has no room for the result.
    """
    rows, length, outputs = _check(x, 2 * radius + 1, before, after, outside)
    dtype = box_dtype(x.dtype)
    out = _empty((rows, outputs), dtype)
    if not out.size:
        return out
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    name = str(x.dtype)
    step = TILE * _tiles(rows * outputs, radius)
    spans = -(-outputs // step)
    blocks = _blocks(rows * spans)
    left = _empty((blocks,), np.dtype(np.int32))
    arguments = (np.int64(length), np.int64(outputs), np.int64(-before), np.int64(radius),
                 np.int32(OUTSIDE.index(outside)), np.int64(spans), np.int64(step))  # fmt: skip
    shared = TILE * max(2 * x.dtype.itemsize, dtype.itemsize)
    kernel = build.load("sliding", f"box<{C_TYPES[name]}>")
    kernel((blocks,), (THREADS,), (x, out, left, *arguments), shared_mem=shared)
    if dtype.kind == "f":
        build.load("sliding", f"box_far<{C_TYPES[name]}>")((blocks,), (THREADS,), (x, out, left, *arguments))
    elif x.dtype.itemsize == 8 and left.get().any():
        box_cpu(x.get(), radius, before, after, outside)  # raises, with the sum
        raise AssertionError("expected a sum that does not fit, as the device said")
    return out


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
        On the current stream; the same bits as from `kernels.sliding.weighted_cpu`.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As for `box`.
    """
    taps = int(weights.size)
    rows, length, outputs = _check(x, taps, before, after, outside)
    dtype = weighted_dtype(x.dtype, weights.dtype)
    out = _empty((rows, outputs), dtype)
    if not out.size:
        return out
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    each = OUTPUTS[str(dtype)]
    spans = -(-outputs // (THREADS * each))
    kernel = build.load("sliding", f"weighted<{C_TYPES[str(x.dtype)]}, {C_TYPES[str(dtype)]}, {each}>")
    arguments = (np.int64(length), np.int64(outputs), np.int64(-before), np.int32(taps),
                 np.int32(OUTSIDE.index(outside)), np.int64(spans))  # fmt: skip
    kernel((_blocks(rows * spans),), (THREADS,), (x, weights.astype(dtype), out, *arguments))
    return out


def _check(x: Any, width: int, before: int, after: int, outside: str) -> tuple[int, int, int]:
    """Rows, their length, and the windows in one."""
    check_array("x", x, DTYPES, 2)
    rows, length = map(int, x.shape)
    if outside not in OUTSIDE:
        raise ValueError(f"outside: expected one of {', '.join(OUTSIDE)}, got {outside!r}")
    if min(before, after) < 0 or (outside == "reflect" and max(before, after) > length):
        raise ValueError(f"expected from 0 to {length} elements before and after a row, got {before} and {after}")
    if width > before + length + after or (before + after and not length):
        raise ValueError(f"expected windows of at most {before + length + after} elements, got {width}")
    return rows, length, before + length + after - width + 1


def _tiles(outputs: int, radius: int) -> int:
    """Tiles of a block: enough to make up for its first window, few enough for all multiprocessors to have blocks."""
    most = WINDOWS_PER_SUM * 2 * radius // TILE
    least = 2 * radius // TILE
    return max(1, least, min(most, outputs // (TILE * BLOCKS * build.limits().multiprocessors)))


def _blocks(blocks: int) -> int:
    if blocks > MAX_GRID:
        raise ValueError(f"expected rows that take at most {MAX_GRID} blocks, got {blocks}; pass fewer at a time")
    return blocks


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Room on the device, or how much was missing."""
    import cupy

    try:
        return cupy.empty(shape, dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        free, _ = cupy.cuda.runtime.memGetInfo()
        raise MemoryError(f"sliding: needs {nbytes} bytes of device memory, {free} are free") from error
