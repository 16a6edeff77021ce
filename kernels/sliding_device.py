"""Sliding windows on a GPU: the door to the kernels in `sliding.cu`; the numbers are those of `sliding.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels import build
from kernels.sliding import OUTSIDE, Weights, box_cpu, box_dtype, from_rows, to_rows, weighted_cpu, weighted_dtype
from kernels.variant import check_array

C_TYPES = {
    "int8": "signed char", "uint8": "u8", "int16": "short", "uint16": "u16", "int32": "int", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "float16": "Half", "float32": "float", "float64": "double",
}  # fmt: skip
RESULTS = {"int64": "i64", "uint64": "u64", "float64": "double"}
THREADS, MANY_THREADS = 128, 256  # of a block: BLOCK in sliding.cu; where few blocks have room
# Plain sums of a thread at a time: ITEMS of 8-byte elements and of others by threads, WIDE_ITEMS in sliding.cu.
ITEMS: dict[int, dict[bool, int]] = {THREADS: {True: 7, False: 9}, MANY_THREADS: {True: 5, False: 7}}
WIDE_ITEMS = 7
CHAIN, CHAIN_ITEMS = 256, {True: 5, False: 9}  # threads of a block of box_chain, and sums of each as in ITEMS
PACKS, CHUNK = 5, 20  # of weighted ones: packs of 16 bytes of a thread, and taps at a time, in sliding_weighted.cuh
MAX_GRID, MAX_STEP = 2**31 - 1, 2**30
# Blocks for each that is resident, as far as a block slides over so many windows for one that it adds up first. Of
# integers, the more there are, the closer to each other in memory is what they read and write at a time; of floats each
# has to look at its elements first. Weighted sums have no first window.
INTEGER_WAVES, FLOAT_WAVES, WEIGHTED_WAVES, WINDOWS_PER_SUM = 16, 1, 16, 4
DIGITS = {2: 7, 4: 14, 8: 71}  # Digits::ALL in sliding_digits.cuh by bytes of an element
LEFT_TILES = 4  # of a block of which one did not fit, at least
SAMPLE = 2**20  # elements that say which exponents an array has

# Blocks of a multiprocessor that there has to be room for, of few threads; of many, with all that a window has.
RESIDENT, LARGE_RESIDENT = 4, 2

INSTANCES = (
    *(f"box<{c_type}, {RESULTS[str(box_dtype(np.dtype(name)))]}, {threads}>"
      for name, c_type in C_TYPES.items() for threads in ITEMS),
    *(f"box_chain<{c_type}, {RESULTS[str(box_dtype(np.dtype(name)))]}>" for name, c_type in C_TYPES.items()),
    "box_wide<float>",
    *(f"{kernel}<{c_type}>" for kernel in ("box_range", "box_far") for c_type in ("Half", "float", "double")),
    "weighted<float, float>",
    *(f"weighted<{c_type}, double>" for c_type in C_TYPES.values() if c_type != "Half"),
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
    placed = _Placed(x, out, rows, radius, (np.int64(length), np.int64(outputs), np.int64(-before), np.int64(radius),
                                            np.int32(OUTSIDE.index(outside))))  # fmt: skip
    shape = _shape_of_block(radius, x.dtype.itemsize)
    left = _in_order(placed) if shape is None else _in_spans(placed, *shape)
    if x.dtype.itemsize == 8 and dtype.kind != "f" and int(left[0]):
        box_cpu(x.get(), radius, before, after, outside)  # raises, with the sum
        raise AssertionError("expected a sum that does not fit, as the device said")
    return out


@dataclass(frozen=True)
class _Placed:
    """Arrays on a device, and what each kernel has to know of them."""

    x: Any
    out: Any
    rows: int
    radius: int
    arguments: tuple[Any, ...]

    @property
    def outputs(self) -> int:
        return int(self.out.shape[1])

    @property
    def floats(self) -> bool:
        return bool(self.out.dtype.kind == "f")

    def kernel(self, name: str, *others: object) -> build.Kernel:
        return build.load("sliding", f"{name}<{', '.join(map(str, (C_TYPES[str(self.x.dtype)], *others)))}>")


def _in_spans(placed: _Placed, threads: int, ring: int, shared: int) -> Any:
    """Windows of which shared memory holds some; what is left, as `box` says."""
    size = placed.x.dtype.itemsize
    kernel = placed.kernel("box", RESULTS[str(placed.out.dtype)], threads)
    tile = threads * ITEMS[threads][size == 8]
    resident = build.limits().resident_blocks(threads, kernel.registers, kernel.static_shared + shared)
    waves = FLOAT_WAVES if placed.floats else INTEGER_WAVES if size > 2 else 4 * INTEGER_WAVES
    step = _step(placed.rows * placed.outputs, placed.radius, resident, tile, waves)
    unit = (placed.radius // tile + LEFT_TILES) * tile  # what is left at a time: few windows to add up first, and many blocks
    spans = -(-placed.outputs // step)
    blocks = _blocks(placed.rows * spans)
    units = blocks * -(-step // unit)
    left = _zeros(1 + 2 * units, 1)
    kernel((blocks,), (threads,), (placed.x, placed.out, left, *placed.arguments, np.int64(spans), np.int64(step),
                                   np.int32(unit), np.int32(ring)), shared_mem=shared)  # fmt: skip
    if not placed.floats or size == 2:  # which fit, all of them
        return left
    few = min(units, resident)
    if size == 4:
        near, left = left, _zeros(1 + 2 * units, 1)
        ring, shared = _ring(placed.radius, THREADS * WIDE_ITEMS, WIDE_ITEMS, size)
        placed.kernel("box_wide")((few,), (THREADS,), (placed.x, placed.out, near, left, *placed.arguments,
                                                       np.int32(unit), np.int32(ring)), shared_mem=shared)  # fmt: skip
    _far(placed, left, few)
    return left


def _in_order(placed: _Placed) -> Any:
    """Windows of any width; what is left, as `box` says."""
    items = CHAIN_ITEMS[placed.x.dtype.itemsize == 8]
    tile = CHAIN * items
    kernel = placed.kernel("box_chain", RESULTS[str(placed.out.dtype)])
    shared = 8 * tile + 4 * (-(-tile * placed.x.dtype.itemsize // 16) * 16 + 16)  # sums, and two tiles twice
    resident = build.limits().resident_blocks(CHAIN, kernel.registers, kernel.static_shared + shared)
    tiles = -(-(2 * placed.radius + placed.outputs) // tile)
    unit = (2 * placed.radius // tile + 1) * tile
    units = placed.rows * -(-placed.outputs // unit)
    state = 8 if placed.floats else 4 if placed.x.dtype.itemsize == 8 else 2  # words of a tile
    words = _zeros(3 + placed.rows * tiles * state + units)
    left = _zeros(1 + 2 * units, 1)
    if placed.floats:
        stride = max(1, placed.x.size // SAMPLE)
        placed.kernel("box_range")((build.limits().multiprocessors,), (CHAIN,), (placed.x, words, np.int64(placed.x.size),
                                                                                 np.int64(stride)))
    few = min(placed.rows * tiles, resident)
    kernel((few,), (CHAIN,), (placed.x, placed.out, left, words, *placed.arguments, np.int64(tiles),
                              np.int64(placed.rows * tiles), np.int64(unit)), shared_mem=shared)  # fmt: skip
    if placed.floats:
        _far(placed, left, min(units, resident))
    return left


def _far(placed: _Placed, left: Any, blocks: int) -> None:
    """What no grid fits."""
    shared = 8 * THREADS * DIGITS[placed.x.dtype.itemsize]
    arguments = (placed.x, placed.out, left, *placed.arguments)
    placed.kernel("box_far")((blocks,), (THREADS,), arguments, shared_mem=shared)


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
    kernel = build.load("sliding", f"weighted<{C_TYPES[str(x.dtype)]}, {C_TYPES[str(dtype)]}>")
    pack = 16 // dtype.itemsize
    tile, chunk = THREADS * PACKS * pack, CHUNK * (PACKS + 1) * pack
    shared = 2 * dtype.itemsize * (tile + 2 * min(chunk, -(-taps // pack) * pack))
    resident = build.limits().resident_blocks(THREADS, kernel.registers, shared)
    step = _step(rows * outputs, 0, resident, tile, WEIGHTED_WAVES)
    spans = -(-outputs // step)
    arguments = (np.int64(length), np.int64(outputs), np.int64(-before), np.int32(taps),
                 np.int32(OUTSIDE.index(outside)), np.int64(spans), np.int64(step))  # fmt: skip
    kernel((_blocks(rows * spans),), (THREADS,), (x, weights.astype(dtype), out, *arguments), shared_mem=shared)
    return out


def _check(x: Any, width: int, before: int, after: int, outside: str) -> tuple[int, int, int]:
    """Rows, their length, and the windows in one."""
    check_array("x", x, tuple(C_TYPES), 2)
    rows, length = map(int, x.shape)
    if outside not in OUTSIDE:
        raise ValueError(f"outside: expected one of {', '.join(OUTSIDE)}, got {outside!r}")
    if min(before, after) < 0 or (outside == "reflect" and max(before, after) > length):
        raise ValueError(f"expected from 0 to {length} elements before and after a row, got {before} and {after}")
    if width > before + length + after or (before + after and not length):
        raise ValueError(f"expected windows of at most {before + length + after} elements, got {width}")
    return rows, length, before + length + after - width + 1


def _step(outputs: int, radius: int, resident: int, tile: int, waves: int) -> int:
    """Outputs of a block: many enough to make up for its first window, few enough for all blocks to have as many."""
    if radius:
        waves = max(1, min(waves, outputs // (resident * WINDOWS_PER_SUM * 2 * radius)))
    tiles = max(1, 2 * radius // tile, -(-outputs // (resident * waves * tile)))
    return tile * min(tiles, MAX_STEP // tile)


def _shape_of_block(radius: int, itemsize: int) -> tuple[int, int, int] | None:
    """Threads of a block, elements of its ring and bytes of its shared memory; None where windows do not fit in there."""
    for threads, resident in ((THREADS, RESIDENT), (MANY_THREADS, LARGE_RESIDENT)):
        items = ITEMS[threads][itemsize == 8]
        ring, shared = _ring(radius, threads * items, items, itemsize)
        if (shared + 1024) * resident <= build.limits().shared_per_multiprocessor:
            return threads, ring, shared
    return None


def _ring(radius: int, tile: int, items: int, itemsize: int) -> tuple[int, int]:
    """Elements of a ring in shared memory, all of a window and of two tiles, and bytes with the sums of a tile."""
    pack = 16 // itemsize
    ring = -(-2 * radius // pack) * pack + 2 * tile + 2 * pack
    return ring, 8 * tile + itemsize * (ring + -(-items // pack) * pack)


def _blocks(blocks: int) -> int:
    if blocks > MAX_GRID:
        raise ValueError(f"expected rows that take at most {MAX_GRID} blocks, got {blocks}; pass fewer at a time")
    return blocks


def _zeros(words: int, first: int | None = None) -> Any:
    """Integers of 64 bits, of which the first ones (None: all) are 0."""
    array = _empty((words,), np.dtype(np.uint64))
    array[:first].fill(0)
    return array


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Room on the device, or how much was missing."""
    import cupy

    try:
        return cupy.empty(shape, dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        free, _ = cupy.cuda.runtime.memGetInfo()
        raise MemoryError(f"sliding: needs {nbytes} bytes of device memory, {free} are free") from error
