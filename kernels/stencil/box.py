"""Plain sums of sliding windows on a GPU: which kernels of `gpu.cu` run, on what, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels.common import device, nvrtc
from kernels.stencil.launch import C_TYPES, MAX_STEP, THREADS, check, checked_blocks, empty, step_of
from kernels.stencil.windows import OUTSIDE, box_cpu, box_dtype

SOURCE = Path(__file__).with_name("gpu.cu")

RESULTS = {"int64": "i64", "uint64": "u64", "float64": "double"}


class Shape(NamedTuple):
    """Threads of a block, sums of each at a time, tiles on their way meanwhile, blocks that are to have registers."""

    threads: int
    items: int
    ahead: int
    blocks: int


# By kind and bytes of an element: for windows of less than a quarter of a tile, for others, for those that few blocks
# have room for, and for those that none has.
_INTEGERS = (Shape(128, 9, 1, 6), Shape(128, 9, 1, 6), Shape(256, 7, 1, 3), Shape(256, 7, 1, 3))
_FLOATS = (Shape(128, 9, 2, 5), Shape(128, 9, 1, 5), Shape(256, 7, 1, 2), Shape(256, 7, 1, 2))
SHAPES = {
    (False, 1): _INTEGERS,
    (False, 2): _INTEGERS,
    (False, 4): (Shape(32, 9, 2, 24), *_INTEGERS[1:]),
    (False, 8): (Shape(128, 5, 1, 8), Shape(128, 5, 1, 8), Shape(512, 7, 2, 1), Shape(256, 7, 1, 2)),
    (True, 2): _FLOATS,
    (True, 4): _FLOATS,
    (True, 8): (Shape(64, 7, 1, 10), Shape(128, 7, 1, 5), Shape(512, 7, 2, 1), Shape(256, 7, 1, 2)),
}
WIDE = Shape(THREADS, 7, 1, 4)  # of box_wide
# By bytes of an element threads of a block of box_far, and Digits::ALL in digits.cuh.
FAR, DIGITS = {4: 128, 8: 64}, {4: 14, 8: 71}
FAR_BLOCKS = 6  # of it on a multiprocessor at most: what they read at a time has to stay in its first-level cache
# Blocks for each that is resident: the more, the closer in memory is what they read and write at a time. Of floats and
# 8-byte integers; of others.
WAVES, MANY_WAVES = 16, 64
LEFT = 4096  # outputs that are left together, at least
SAMPLE = 2**20  # elements that say which exponents an array has, where spans are shorter than SPAN tiles
SPAN = 40
STATIC = 2048  # bytes of shared memory that a kernel declares itself, at most

COUNTED = 2**20  # radius from which on elements that are not finite are not counted: Marks::BITS in wide_integers.cuh
LONG = 2**31  # radius from which on 96 bits may not hold a sum: Long in wide_integers.cuh

# Threads of a multiprocessor that there has to be room for, in small blocks and in large ones, with all of a window.
RESIDENT, LARGE_RESIDENT = 512, 512


def _shapes(dtype: np.dtype[Any]) -> tuple[Shape, ...]:
    return SHAPES[dtype.kind == "f", dtype.itemsize]


def _instance(dtype: np.dtype[Any], shape: Shape, *sums: str) -> str:
    """Template arguments of box behind the type of an element."""
    return ", ".join(map(str, (RESULTS[str(box_dtype(dtype))], *shape, *sums)))


INSTANCES = (
    *dict.fromkeys(f"box<{c_type}, {_instance(np.dtype(name), shape)}>"
                   for name, c_type in C_TYPES.items() for shape in _shapes(np.dtype(name))),
    *(f"box<double, {_instance(np.dtype(np.float64), shape, 'TwoGrids<double>')}>"
      for shape in _shapes(np.dtype(np.float64))),
    *(f"{kernel}<{c_type}>" for kernel in ("box_range", "box_wide", "box_far") for c_type in ("float", "double")),
)  # fmt: skip


def box(x: Any, radius: int, before: int = 0, after: int = 0, outside: str = "zero") -> Any:
    """Sums of all windows that lie within a row and what is taken for its neighbourhood.

    Parameters
    ----------
    x : CuPy array, shape (rows, length), C-contiguous, of integers or floats
    radius, before, after, outside
        As for `kernels.stencil.windows.box_cpu`.

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

    def kernel(self, name: str, *others: object) -> nvrtc.Kernel:
        return nvrtc.load(SOURCE, f"{name}<{', '.join(map(str, (C_TYPES[str(self.x.dtype)], *others)))}>")


def _slide(placed: _Placed) -> Any:
    """All sums; what is left, as `box` says."""
    size, radius = placed.x.dtype.itemsize, placed.radius
    shape, ring, shared = _shape_of_block(radius, placed.x.dtype)
    threads, tile = shape.threads, shape.threads * shape.items
    # One grid would do for few float64 elements.
    wide = not _holds_window(radius, shape, ring) and placed.x.dtype == np.float64
    kernel = placed.kernel("box", _instance(placed.x.dtype, shape, *(("TwoGrids<double>",) if wide else ())))
    resident = device.limits().resident_blocks(threads, kernel.registers, kernel.static_shared + shared)
    waves = WAVES if placed.floats or size == 8 else MANY_WAVES
    step = step_of(placed.rows * placed.outputs, radius, resident, tile, waves)
    # What is left at a time: few windows to add up first, and work for many blocks.
    unit = min(-(-(radius + LEFT) // tile), MAX_STEP // tile) * tile
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
    if not wide:
        near, left = left, _zeros(1 + 2 * units, 1)
        ring, shared = _ring(radius, WIDE, size, LARGE_RESIDENT)
        arguments = (placed.x, placed.out, near, left, *placed.arguments, np.int32(unit), np.int32(ring))
        _launch(placed.kernel("box_wide"), units, THREADS, shared, arguments)
    threads, shared = FAR[size], 8 * FAR[size] * DIGITS[size]
    most = min(units, FAR_BLOCKS * device.limits().multiprocessors)
    _launch(placed.kernel("box_far"), most, threads, shared, (placed.x, placed.out, left, *placed.arguments))
    return left


def _launch(kernel: nvrtc.Kernel, most: int, threads: int, shared: int, arguments: tuple[Any, ...]) -> None:
    """As many blocks as are resident, which take turns at what is left."""
    blocks = device.limits().resident_blocks(threads, kernel.registers, kernel.static_shared + shared)
    kernel((min(most, blocks),), (threads,), arguments, shared_mem=shared)


def _range(placed: _Placed, words: Any) -> None:
    """Exponents of a sample, to words[1] and [2]."""
    arguments = (placed.x, words, np.int64(placed.x.size), np.int64(max(1, placed.x.size // SAMPLE)))
    placed.kernel("box_range")((4 * device.limits().multiprocessors,), (THREADS,), arguments)


def _shape_of_block(radius: int, dtype: np.dtype[Any]) -> tuple[Shape, int, int]:
    """Shape of a block, elements of its ring, and bytes of its shared memory."""
    narrow, small, large, apart = _shapes(dtype)
    if 8 * radius < narrow.threads * narrow.items:
        small = narrow
    for shape, resident in ((small, RESIDENT), (large, LARGE_RESIDENT)):
        ring, shared = _ring(radius, shape, dtype.itemsize, resident)
        if _holds_window(radius, shape, ring):
            return shape, ring, shared
    ring, shared = _ring(radius, apart, dtype.itemsize, LARGE_RESIDENT)
    if shared + STATIC <= device.limits().shared_per_block:
        return apart, ring, shared
    return small, *_ring(radius, small, dtype.itemsize, RESIDENT)  # where there is little of it


def _holds_window(radius: int, shape: Shape, ring: int) -> bool:
    return ring > 2 * radius + (1 + shape.ahead) * shape.threads * shape.items


def _ring(radius: int, shape: Shape, itemsize: int, resident: int) -> tuple[int, int]:
    """Elements of a ring in shared memory, and bytes: of all of a window and the tiles, or of the tiles twice."""
    pack, tile = 16 // itemsize, shape.threads * shape.items
    extra = -(-shape.items // pack) * pack
    few, sums = (1 + shape.ahead) * tile + pack, 8 * tile
    all_ = -(-2 * radius // pack) * pack + few + pack
    shared = sums + itemsize * (all_ + extra)
    limits, blocks = device.limits(), resident // shape.threads
    if (shared + 1024) * blocks <= limits.shared_per_multiprocessor and shared + STATIC <= limits.shared_per_block:
        return all_, shared
    return few, sums + 2 * itemsize * (few + extra)


def _zeros(words: int, first: int | None = None) -> Any:
    """Integers of 64 bits, of which the first ones (None: all) are 0."""
    array = empty((words,), np.dtype(np.uint64))
    array[:first].fill(0)
    return array
