"""Plain sums of sliding windows on a GPU: which kernels of `gpu.cu` run, in which order, on which outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.stencil.cpu import box_cpu
from kernels.stencil.launch import SOURCE, THREADS, check, checked_blocks, empty, step_of
from kernels.stencil.windows import OUTSIDE, box_dtype

RESULTS = {"int64": "i64", "uint64": "u64", "float64": "double"}


class Shape(NamedTuple):
    """Template arguments of `box`: threads per block, sums per thread and tile, tiles loaded ahead, resident blocks
    that the registers have to suffice for."""

    threads: int
    items: int
    ahead: int
    blocks: int


# By kind and bytes of an element, four shapes: for windows shorter than a quarter of a tile, for wider ones, for those
# that fit into shared memory only where few blocks share it, and for those that do not fit at all.
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
FEW = constant(SOURCE, "FEW")  # the largest radius of box_few
# Blocks per resident block: the more there are, the closer together in memory are concurrent reads and writes. For
# floats and 8-byte integers; for other integers.
WAVES, MANY_WAVES = 16, 64
# Outputs that are deferred to the next kernel together: a radius and DEFERRED at least, LONGEST times as many at most,
# UNITS for each multiprocessor if there are so many.
DEFERRED, LONGEST, UNITS = 4096, 3, 16
# Where spans are shorter than SPAN tiles, a sample of the elements tells box the range of exponents beforehand.
SAMPLE, SPAN = 2**20, 40
STATIC = 3072  # upper bound on the static shared memory of a kernel, in bytes

# The radius from which windows have more elements than Marks can count.
COUNTED = 2 ** (constant(SOURCE.with_name("wide_integers.cuh"), "COUNT_BITS") - 1)
LONG = 2**31  # the radius from which the 96 bits of Long may not hold a sum

# Threads per multiprocessor, in small blocks and in large ones, whose windows have to fit into shared memory.
RESIDENT, LARGE_RESIDENT = 512, 512


def _shapes(dtype: np.dtype[Any]) -> tuple[Shape, ...]:
    return SHAPES[dtype.kind == "f", dtype.itemsize]


def _instance(dtype: np.dtype[Any], shape: Shape, *sums: str) -> str:
    """Template arguments of `box` after the element type."""
    return ", ".join(map(str, (RESULTS[str(box_dtype(dtype))], *shape, *sums)))


INSTANCES = (
    *dict.fromkeys(f"box<{c_type}, {_instance(np.dtype(name), shape)}>"
                   for name, c_type in C_TYPES.items() for shape in _shapes(np.dtype(name))),
    *(f"box<double, {_instance(np.dtype(np.float64), shape, 'TwoGrids<double>')}>"
      for shape in _shapes(np.dtype(np.float64))),
    *dict.fromkeys(f"box_layers<{C_TYPES[name]}, {', '.join(map(str, shape))}>"
                   for name in ("float32", "float64") for shape in _shapes(np.dtype(name))),
    *(f"{kernel}<{c_type}>" for kernel in ("box_range", "box_few") for c_type in ("float", "double")),
)  # fmt: skip


def box(x: Any, radius: int, before: int = 0, after: int = 0, outside: str = "zero") -> Any:
    """Sums of all windows that lie within a row and its boundary.

    Parameters
    ----------
    x : CuPy array, shape (rows, length), C-contiguous, of integers or floats
    radius, before, after, outside
        As for `kernels.stencil.cpu.box_cpu`.

    Returns
    -------
    CuPy array, shape (rows, before + length + after - 2 * radius)
        On the current stream; the same bits as from `box_cpu`.

    Raises
    ------
    TypeError, ValueError
        If the kernels do not take such an array, if a window is longer than a row with its boundary, or if the radius
        is 2**31 or more.
    OverflowError
        If a sum of int64 or uint64 does not fit.
    MemoryError
        If the result does not fit into device memory.
    """
    rows, length, outputs = check(x, 2 * radius + 1, before, after, outside)
    dtype = box_dtype(x.dtype)
    if radius >= LONG:
        raise ValueError(f"expected a radius below {LONG}, got {radius}")
    out = empty((rows, outputs), dtype)
    if not out.size:
        return out
    if x.dtype == np.float16 and radius >= COUNTED:  # float16 has no kernel that box could defer to
        x = x.astype(np.float32)
    sizes = (np.int64(length), np.int64(outputs), np.int64(-before), np.int64(radius))
    deferred = _slide(_Problem(x, out, rows, radius, (*sizes, np.int32(OUTSIDE.index(outside)))))
    if x.dtype.itemsize == 8 and dtype.kind != "f" and int(deferred[0]):
        box_cpu(x.get(), radius, before, after, outside)  # raises, and names the sum
        raise AssertionError("expected the CPU to find the sum that overflowed on the device")
    return out


@dataclass(frozen=True)
class _Problem:
    """Arrays on the device, and the arguments that every kernel takes."""

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


def _slide(problem: _Problem) -> Any:
    """Compute all sums; returns what the first kernel wrote to `deferred` in gpu.cu."""
    size, radius = problem.x.dtype.itemsize, problem.radius
    shape, ring, shared = _shape_of_block(radius, problem.x.dtype)
    threads, tile = shape.threads, shape.threads * shape.items
    # Of float64 so wide a window rarely does with one grid, so box starts with two.
    wide = not _holds_window(radius, shape, ring) and problem.x.dtype == np.float64
    kernel = problem.kernel("box", _instance(problem.x.dtype, shape, *(("TwoGrids<double>",) if wide else ())))
    resident = device.limits().resident_blocks(threads, kernel.registers, kernel.static_shared + shared)
    waves = WAVES if problem.floats or size == 8 else MANY_WAVES
    step = step_of(problem.rows * problem.outputs, radius, resident, tile, waves)
    # Outputs are deferred in units: so long that few first windows have to be summed, so short that many blocks share
    # the work. Those of a span are alike, since blocks take them in turns.
    least, share = radius + DEFERRED, problem.rows * problem.outputs // (UNITS * device.limits().multiprocessors)
    number = -(-step // max(least, min(share, LONGEST * least)))
    unit = -(-step // (number * tile)) * tile
    spans = -(-problem.outputs // step)
    blocks = checked_blocks(problem.rows * spans)
    units = blocks * -(-step // unit)
    deferred, words = _zeros(1 + 2 * units, 1), _zeros(3)
    if problem.floats and size > 2 and step < SPAN * tile:
        _range(problem, words)
    arguments = (problem.x, problem.out, deferred, words, *problem.arguments,
                 np.int64(spans), np.int64(step), np.int32(unit), np.int32(ring))  # fmt: skip
    kernel((blocks,), (threads,), arguments, shared_mem=shared)
    if not problem.floats or size == 2:  # nothing can be deferred
        return deferred
    arguments = (problem.x, problem.out, deferred, *problem.arguments)
    if radius <= FEW:
        _launch(problem.kernel("box_few"), units, THREADS, 0, arguments)
    else:
        _launch(problem.kernel("box_layers", *shape), units, threads, shared, (*arguments, np.int32(ring)))
    return deferred


def _launch(kernel: nvrtc.Kernel, most: int, threads: int, shared: int, arguments: tuple[Any, ...]) -> None:
    """Launch as many blocks as are resident; they share the deferred units among themselves."""
    blocks = device.limits().resident_blocks(threads, kernel.registers, kernel.static_shared + shared)
    kernel((min(most, blocks),), (threads,), arguments, shared_mem=shared)


def _range(problem: _Problem, words: Any) -> None:
    """Range of exponents of a sample, written to words[1] and words[2]."""
    arguments = (problem.x, words, np.int64(problem.x.size), np.int64(max(1, problem.x.size // SAMPLE)))
    problem.kernel("box_range")((4 * device.limits().multiprocessors,), (THREADS,), arguments)


def _shape_of_block(radius: int, dtype: np.dtype[Any]) -> tuple[Shape, int, int]:
    """Shape of a block, elements of its ring buffer, bytes of its shared memory."""
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
    return small, *_ring(radius, small, dtype.itemsize, RESIDENT)  # on a device with little shared memory


def _holds_window(radius: int, shape: Shape, ring: int) -> bool:
    return ring > 2 * radius + (1 + shape.ahead) * shape.threads * shape.items


def _ring(radius: int, shape: Shape, itemsize: int, resident: int) -> tuple[int, int]:
    """Elements of the ring buffer in shared memory, and bytes in all: one ring that holds a whole window and the tiles,
    or two rings that hold the tiles only."""
    pack, tile = 16 // itemsize, shape.threads * shape.items
    extra = -(-shape.items // pack) * pack
    tiles, sums = (1 + shape.ahead) * tile + pack, 8 * tile
    window = -(-2 * radius // pack) * pack + tiles + pack
    shared = sums + itemsize * (window + extra)
    limits, blocks = device.limits(), resident // shape.threads
    if (shared + 1024) * blocks <= limits.shared_per_multiprocessor and shared + STATIC <= limits.shared_per_block:
        return window, shared
    return tiles, sums + 2 * itemsize * (tiles + extra)


def _zeros(words: int, first: int | None = None) -> Any:
    """An array of 64-bit integers whose first elements (None: all) are 0."""
    array = empty((words,), np.dtype(np.uint64))
    array[:first].fill(0)
    return array
