"""Launches the kernels of `gpu.cu`: partials of samples on the device that holds them."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.checks import check_array
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.common.launch import Launch
from kernels.common.memory import current_stream, pooled_empty
from kernels.reduce import partial as layout
from kernels.reduce.exact_sum import SQUARE_BITS, SQUARE_WORDS, SUM_BITS, SUM_WORDS

SOURCE = Path(__file__).with_suffix(".cu")

THREADS = constant(SOURCE.with_name("tile.cuh"), "REDUCE_THREADS")
TILE_BYTES = 64  # per thread and load
MOST_BLOCKS = 3  # per multiprocessor: enough to keep the memory busy; more blocks leave more to combine at the end
DIGIT_BITS = constant(SOURCE.with_name("exact_sum.cuh"), "DIGIT_BITS")
SUM_DIGITS, SQUARE_DIGITS = -(-(SUM_BITS + 1088) // DIGIT_BITS), -(-(SQUARE_BITS + 2112) // DIGIT_BITS)
# What blocks add to, as in tile.cuh: 5 numbers and the digits; then 4 numbers per block.
TOTALS, OF_BLOCK = 5 + SUM_DIGITS + SQUARE_DIGITS, 4
MOST_SAMPLES = 2**31  # per launch: 32-bit counters and 64-bit digits do not overflow
MOST_STEPS = constant(SOURCE.with_name("deferred_tiles.cuh"), "MOST_STEPS")  # tiles per block
# Bytes of a block's cells, by dtype and whether squares are asked for: as in exponent_bins.cuh.
CELLS = {("float32", False): 8 * THREADS * 16, ("float32", True): 8 * THREADS * (16 + 12),
         ("float64", False): 8 * THREADS * 42, ("float64", True): 4 * 32 * 381}  # fmt: skip

MOMENTS = tuple(f"moments<{c_type}, {parts}>" for c_type in C_TYPES.values() for parts in layout.PARTS)
INSTANCES = (*MOMENTS, "combine", "place")


def reduce_on_device(samples: Any, parts: int) -> Any:
    """Partial of samples on the device that holds them.

    Parameters
    ----------
    samples : CuPy array of any integer or float dtype, shape (n,), n >= 1, C-contiguous
        n may exceed 2**32.
    parts
        One of ``kernels.reduce.partial.PARTS``.

    Returns
    -------
    CuPy int64 array
        As `kernels.reduce.partial` describes it, on the current stream.

    Raises
    ------
    TypeError, ValueError
        If the array is of another dtype, is empty, has another number of dimensions or gaps; if `parts` is another.
    """
    import cupy

    check_array("reduce", samples, tuple(C_TYPES), 1)
    if not samples.size:
        raise ValueError("reduce: expected at least 1 sample, got an empty array")
    if samples.data.ptr % samples.dtype.itemsize:
        raise ValueError(f"reduce: expected samples on multiples of {samples.dtype.itemsize} bytes, the first is at "
                         f"{samples.data.ptr:#x}; pass a copy")  # fmt: skip
    if parts not in layout.PARTS:
        raise ValueError(f"reduce: expected parts out of {', '.join(map(str, layout.PARTS))}, got {parts}")
    stream = current_stream()
    plan = launch_plan(samples.dtype, parts, stream[0])
    capturing = cupy.cuda.runtime.streamIsCapturing(stream[1])
    free = [] if capturing else free_totals(*stream)
    total = None
    for start in range(0, samples.size, plan.most):
        part = samples if samples.size <= plan.most else samples[start : start + plan.most]
        grid = min(plan.resident, -(-part.nbytes // (THREADS * TILE_BYTES)))
        try:
            totals = free.pop()
        except IndexError:  # also where another thread of this stream was faster
            totals = cupy.zeros(plan.totals, np.uint64)
        partial = pooled_empty(layout.SIZE, cupy.int64, stream)
        plan.launch(grid, (part, np.int64(part.size), plan.code, totals, partial), stream[1])
        (_captured if capturing else free).append(totals)
        partial = place_on_device(partial, start) if start else partial
        total = partial if total is None else combine_on_device(total, partial)
    return total


class Plan(NamedTuple):
    """What launches for samples of a dtype have in common on a device.

    `resident`: blocks, at most; `most`: samples, at most; `code`: of the dtype; `totals`: numbers that blocks add to.
    """

    launch: Launch
    resident: int
    most: int
    code: np.int64
    totals: int


@lru_cache(maxsize=64)
def launch_plan(dtype: np.dtype[Any], parts: int, _device: int) -> Plan:
    """The plan on the current device; cached, because working it out takes longer than reducing 2^20 samples."""
    kernel = nvrtc.load(SOURCE, f"moments<{C_TYPES[dtype.name]}, {parts}>")
    columns, limits = cell_bytes(dtype.name, parts), device.limits()
    blocks = MOST_BLOCKS * limits.multiprocessors
    resident = min(limits.resident_blocks(THREADS, kernel.registers, kernel.static_shared + columns), blocks)
    most = min(MOST_SAMPLES, MOST_STEPS * resident * THREADS * TILE_BYTES // dtype.itemsize)
    code = np.int64(layout.DTYPES.index(dtype.name))
    return Plan(Launch(kernel, (THREADS,), 5, columns), resident, most, code, TOTALS + OF_BLOCK * blocks)


_captured: list[Any] = []  # what captured graphs add to: they may be launched again at any time


@cache
def free_totals(device: int, stream: int, thread: int) -> list[Any]:
    """Arrays that blocks add to, zero before and after a launch; reused in stream order, like any freed memory."""
    return []


def cell_bytes(dtype: str, parts: int) -> int:
    """Bytes of shared memory that a block's cells take."""
    if not parts & layout.SUM or device.limits().shared_per_block <= 2**16:
        return 0
    return CELLS.get((dtype, bool(parts & layout.SQUARES)), 0)


def combine_on_device(a: Any, b: Any) -> Any:
    """`kernels.reduce.partial.combine` of two partials on the current device."""
    import cupy

    total = cupy.empty(layout.SIZE, cupy.int64)
    nvrtc.load(SOURCE, "combine")((1,), (64,), (a, b, total))
    return total


def place_on_device(partial: Any, start: int) -> Any:
    """`kernels.reduce.partial.place` of a partial on the current device, in one launch."""
    nvrtc.load(SOURCE, "place")((1,), (3,), (partial, np.int64(start)))
    return partial


assert SUM_WORDS + SQUARE_WORDS + 11 == layout.SIZE
