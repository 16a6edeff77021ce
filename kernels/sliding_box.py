"""Plain sums of sliding windows on a GPU: which kernels of `sliding.cu` run, on what, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels import build
from kernels.sliding import OUTSIDE, box_cpu, box_dtype
from kernels.sliding_launch import C_TYPES, MAX_STEP, THREADS, check, checked_blocks, empty, step_of

RESULTS = {"int64": "i64", "uint64": "u64", "float64": "double"}
MANY_THREADS = 256  # of a block where few have room
# Plain sums of a thread at a time: ITEMS of 8-byte elements and of others by threads, WIDE_ITEMS in sliding.cu.
ITEMS: dict[int, dict[bool, int]] = {THREADS: {True: 7, False: 9}, MANY_THREADS: {True: 5, False: 7}}
WIDE_ITEMS = 7
# Threads of a block of box_chain, of floats and of integers; sums of each by bytes of an element, and with less memory.
CHAIN = {True: 384, False: 512}
CHAIN_ITEMS = {True: {2: (9, 5), 4: (7, 3), 8: (5, 1)}, False: {1: (9, 5), 2: (9, 5), 4: (5, 3), 8: (3, 1)}}
# By bytes of an element threads of a block of box_far, and Digits::ALL in sliding_digits.cuh.
FAR, DIGITS = {4: 128, 8: 64}, {4: 14, 8: 71}
# Blocks for each that is resident: the more, the closer in memory is what they read and write at a time. Of floats and
# 8-byte integers; of others.
WAVES, MANY_WAVES = 16, 64
LEFT_TILES = 4  # are left together, at least
SAMPLE = 2**20  # elements that say which exponents an array has

COUNTED = 2**20  # radius from which on elements that are not finite are not counted: Marks::BITS in sliding_sum.cuh

# Blocks of a multiprocessor that there has to be room for, of few threads; of many, with all that a window has.
RESIDENT, LARGE_RESIDENT = 4, 2

INSTANCES = (
    *(f"box<{c_type}, {RESULTS[str(box_dtype(np.dtype(name)))]}, {threads}>"
      for name, c_type in C_TYPES.items() for threads in ITEMS),
    *(f"box_chain<{C_TYPES[name]}, {RESULTS[str(box_dtype(np.dtype(name)))]}, {items}>" for name in C_TYPES
      for items in CHAIN_ITEMS[np.dtype(name).kind == "f"][np.dtype(name).itemsize]),
    *(f"{kernel}<{c_type}>" for kernel in ("box_range", "box_wide", "box_far") for c_type in ("float", "double")),
    "box_range<Half>",
)  # fmt: skip


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
    rows, length, outputs = check(x, 2 * radius + 1, before, after, outside)
    dtype = box_dtype(x.dtype)
    out = empty((rows, outputs), dtype)
    if not out.size:
        return out
    if x.dtype == np.float16 and radius >= COUNTED:  # for which there is no other kernel
        x = x.astype(np.float32)
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
    waves = WAVES if placed.floats or size == 8 else MANY_WAVES
    step = step_of(placed.rows * placed.outputs, placed.radius, resident, tile, waves)
    # What is left at a time: few windows to add up first, and work for many blocks.
    unit = min(placed.radius // tile + LEFT_TILES, MAX_STEP // tile) * tile
    spans = -(-placed.outputs // step)
    blocks = checked_blocks(placed.rows * spans)
    units = blocks * -(-step // unit)
    left, words = _zeros(1 + 2 * units, 1), _zeros(3)
    if placed.floats and size > 2:  # those of 2 bytes all fit
        _range(placed, words)
    cutting = (np.int64(spans), np.int64(step), np.int32(unit), np.int32(ring))
    kernel((blocks,), (threads,), (placed.x, placed.out, left, words, *placed.arguments, *cutting), shared_mem=shared)
    if not placed.floats or size == 2:
        return left
    few = min(units, resident)
    near, left = left, _zeros(1 + 2 * units, 1)
    ring, shared = _ring(placed.radius, THREADS * WIDE_ITEMS, WIDE_ITEMS, size)
    arguments = (placed.x, placed.out, near, left, *placed.arguments, np.int32(unit), np.int32(ring))
    placed.kernel("box_wide")((few,), (THREADS,), arguments, shared_mem=shared)
    _far(placed, left, few)
    return left


def _in_order(placed: _Placed) -> Any:
    """Windows of any width; what is left, as `box` says."""
    threads, size = CHAIN[placed.floats], placed.x.dtype.itemsize
    for items in CHAIN_ITEMS[placed.floats][size]:
        tile = threads * items
        shared = 8 * tile + 6 * (-(-tile * size // 16) * 16 + 16)  # sums, and two tiles three times
        kernel = placed.kernel("box_chain", RESULTS[str(placed.out.dtype)], items)
        if kernel.static_shared + shared <= build.limits().shared_per_block:
            break
    resident = build.limits().resident_blocks(threads, kernel.registers, kernel.static_shared + shared)
    tiles = -(-(2 * placed.radius + placed.outputs) // tile)
    all_tiles = checked_blocks(placed.rows * tiles)
    unit = (2 * placed.radius // tile + 1) * tile
    units = placed.rows * -(-placed.outputs // unit)
    state = 8 if placed.floats else 4 if size == 8 else 2  # words of a tile
    words = _zeros(3 + all_tiles * state + units)
    left = _zeros(1 + 2 * units, 1)
    if placed.floats:
        _range(placed, words)
    cutting = (np.int32(tiles), np.int32(all_tiles), np.int64(unit))
    blocks = min(all_tiles, resident)
    kernel((blocks,), (threads,), (placed.x, placed.out, left, words, *placed.arguments, *cutting), shared_mem=shared)
    if placed.floats and size > 2:
        _far(placed, left, min(units, resident))
    return left


def _range(placed: _Placed, words: Any) -> None:
    """Exponents of a sample, to words[1] and [2]."""
    arguments = (placed.x, words, np.int64(placed.x.size), np.int64(max(1, placed.x.size // SAMPLE)))
    placed.kernel("box_range")((4 * build.limits().multiprocessors,), (THREADS,), arguments)


def _far(placed: _Placed, left: Any, blocks: int) -> None:
    """What no grid fits."""
    size = placed.x.dtype.itemsize
    threads, shared = FAR[size], 8 * FAR[size] * DIGITS[size]
    arguments = (placed.x, placed.out, left, *placed.arguments)
    placed.kernel("box_far")((blocks,), (threads,), arguments, shared_mem=shared)


def _shape_of_block(radius: int, itemsize: int) -> tuple[int, int, int] | None:
    """Threads of a block, elements of its ring and bytes of its shared memory; None where windows do not fit."""
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


def _zeros(words: int, first: int | None = None) -> Any:
    """Integers of 64 bits, of which the first ones (None: all) are 0."""
    array = empty((words,), np.dtype(np.uint64))
    array[:first].fill(0)
    return array
