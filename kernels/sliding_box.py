"""Plain sums of sliding windows on a GPU: which kernels of `sliding.cu` run, on what, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels import build
from kernels.sliding import OUTSIDE, box_cpu, box_dtype
from kernels.sliding_launch import C_TYPES, MAX_STEP, THREADS, check, checked_blocks, empty, step_of

RESULTS = {"int64": "i64", "uint64": "u64", "float64": "double"}
MANY_THREADS = {True: 384, False: 256}  # of a block where few have room: of 8-byte elements and of others
# Plain sums of a thread at a time, of 8-byte elements and of others: ITEMS of few threads and of many, WIDE_ITEMS in
# sliding.cu.
ITEMS, MANY_ITEMS = {True: 7, False: 9}, {True: 5, False: 7}
WIDE_ITEMS = 7
AHEAD = 1  # tiles on their way while one is added up, in sliding_tile.cuh
# By bytes of an element threads of a block of box_far, and Digits::ALL in sliding_digits.cuh.
FAR, DIGITS = {4: 128, 8: 64}, {4: 14, 8: 71}
# Blocks for each that is resident: the more, the closer in memory is what they read and write at a time. Of floats and
# 8-byte integers; of others.
WAVES, MANY_WAVES = 16, 64
LEFT_TILES = 4  # are left together, at least
SAMPLE = 2**20  # elements that say which exponents an array has, where spans are shorter than SPAN tiles
SPAN = 40
STATIC = 2048  # bytes of shared memory that a kernel declares itself, at most

COUNTED = 2**20  # radius from which on elements that are not finite are not counted: Marks::BITS in sliding_sum.cuh

LONG = 2**31  # radius of windows that hold too many elements for the counts of Long in sliding_sum.cuh

# Blocks of a multiprocessor that there has to be room for, of few threads; of many, with all that a window has.
RESIDENT, LARGE_RESIDENT = 4, 2

INSTANCES = (
    *(f"box<{c_type}, {RESULTS[str(box_dtype(np.dtype(name)))]}, {threads}>"
      for name, c_type in C_TYPES.items() for threads in (THREADS, MANY_THREADS[np.dtype(name).itemsize == 8])),
    *(f"box<double, double, {threads}, TwoGrids<double>>" for threads in (THREADS, MANY_THREADS[True])),
    *(f"{kernel}<{c_type}>" for kernel in ("box_range", "box_wide", "box_far") for c_type in ("float", "double")),
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
        If the array is none that the kernels read, or a window is longer than a row with its neighbourhood, or the
        radius is 2**31 or more.
    OverflowError
        If a sum of int64 or uint64 does not fit.
    MemoryError
        If the device has no room for the result.
    """
    rows, length, outputs = check(x, 2 * radius + 1, before, after, outside)
    dtype = box_dtype(x.dtype)
    if radius >= LONG:
        raise ValueError(f"expected a radius below {LONG}, got {radius}")
    out = empty((rows, outputs), dtype)
    if not out.size:
        return out
    if x.dtype == np.float16 and radius >= COUNTED:  # for which there is no other kernel
        x = x.astype(np.float32)
    placed = _Placed(x, out, rows, radius, (np.int64(length), np.int64(outputs), np.int64(-before), np.int64(radius),
                                            np.int32(OUTSIDE.index(outside))))  # fmt: skip
    left = _slide(placed)
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


def _slide(placed: _Placed) -> Any:
    """All sums; what is left, as `box` says."""
    size, radius = placed.x.dtype.itemsize, placed.radius
    threads, items, ring, shared = _shape_of_block(radius, size)
    tile = threads * items
    apart = ring <= 2 * radius + (1 + AHEAD) * tile
    others = ("TwoGrids<double>",) if apart and placed.x.dtype == np.float64 else ()  # one grid would do for few
    kernel = placed.kernel("box", RESULTS[str(placed.out.dtype)], threads, *others)
    resident = build.limits().resident_blocks(threads, kernel.registers, kernel.static_shared + shared)
    waves = WAVES if placed.floats or size == 8 else MANY_WAVES
    step = step_of(placed.rows * placed.outputs, radius, resident, tile, waves)
    # What is left at a time: few windows to add up first, and work for many blocks.
    unit = min(radius // tile + LEFT_TILES, MAX_STEP // tile) * tile
    spans = -(-placed.outputs // step)
    blocks = checked_blocks(placed.rows * spans)
    units = blocks * -(-step // unit)
    left, words = _zeros(1 + 2 * units, 1), _zeros(3)
    if placed.floats and size > 2 and step < SPAN * tile:
        _range(placed, words)
    cutting = (np.int64(spans), np.int64(step), np.int32(unit), np.int32(ring))
    kernel((blocks,), (threads,), (placed.x, placed.out, left, words, *placed.arguments, *cutting), shared_mem=shared)
    if not placed.floats or size == 2:  # of which all fit
        return left
    if not others:
        near, left = left, _zeros(1 + 2 * units, 1)
        ring, shared = _ring(radius, THREADS * WIDE_ITEMS, WIDE_ITEMS, size, LARGE_RESIDENT)
        arguments = (placed.x, placed.out, near, left, *placed.arguments, np.int32(unit), np.int32(ring))
        _launch(placed.kernel("box_wide"), units, THREADS, shared, arguments)
    threads, shared = FAR[size], 8 * FAR[size] * DIGITS[size]
    _launch(placed.kernel("box_far"), units, threads, shared, (placed.x, placed.out, left, *placed.arguments))
    return left


def _launch(kernel: build.Kernel, units: int, threads: int, shared: int, arguments: tuple[Any, ...]) -> None:
    """As many blocks as are resident, which take turns at all units."""
    blocks = build.limits().resident_blocks(threads, kernel.registers, kernel.static_shared + shared)
    kernel((min(units, blocks),), (threads,), arguments, shared_mem=shared)


def _range(placed: _Placed, words: Any) -> None:
    """Exponents of a sample, to words[1] and [2]."""
    arguments = (placed.x, words, np.int64(placed.x.size), np.int64(max(1, placed.x.size // SAMPLE)))
    placed.kernel("box_range")((4 * build.limits().multiprocessors,), (THREADS,), arguments)


def _shape_of_block(radius: int, itemsize: int) -> tuple[int, int, int, int]:
    """Threads of a block, sums of each, elements of its ring, and bytes of its shared memory."""
    long = itemsize == 8
    shapes = ((THREADS, ITEMS[long], RESIDENT), (MANY_THREADS[long], MANY_ITEMS[long], LARGE_RESIDENT))
    for threads, items, resident in shapes:
        ring, shared = _ring(radius, threads * items, items, itemsize, resident)
        if ring > 2 * radius + (1 + AHEAD) * threads * items:
            return threads, items, ring, shared
    if shared + STATIC > build.limits().shared_per_block:  # where there is little of it
        threads, items, resident = shapes[0]
        ring, shared = _ring(radius, threads * items, items, itemsize, resident)
    return threads, items, ring, shared


def _ring(radius: int, tile: int, items: int, itemsize: int, resident: int) -> tuple[int, int]:
    """Elements of a ring in shared memory, and bytes: of all of a window and two tiles, or of two tiles twice."""
    pack = 16 // itemsize
    extra = -(-items // pack) * pack
    few, sums = (1 + AHEAD) * tile + pack, 8 * tile
    all_ = -(-2 * radius // pack) * pack + few + pack
    shared = sums + itemsize * (all_ + extra)
    if (shared + 1024) * resident <= build.limits().shared_per_multiprocessor:
        return all_, shared
    return few, sums + 2 * itemsize * (few + extra)


def _zeros(words: int, first: int | None = None) -> Any:
    """Integers of 64 bits, of which the first ones (None: all) are 0."""
    array = empty((words,), np.dtype(np.uint64))
    array[:first].fill(0)
    return array
