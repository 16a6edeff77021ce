"""Launches the kernels of `gpu.cu`: partials of samples on the device that holds them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.checks import check_array
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.common.memory import current_stream
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
    c_type = C_TYPES[str(samples.dtype)]
    kernel = nvrtc.load(SOURCE, f"moments<{c_type}, {parts}>")
    columns = cell_bytes(str(samples.dtype), parts)
    limits = device.limits()
    resident = min(limits.resident_blocks(THREADS, kernel.registers, kernel.static_shared + columns),
                   MOST_BLOCKS * limits.multiprocessors)  # fmt: skip
    code = np.int64(layout.DTYPES.index(str(samples.dtype)))
    stream = current_stream()
    capturing = cupy.cuda.runtime.streamIsCapturing(stream[1])
    free = [] if capturing else free_totals(*stream)
    total = None
    most = min(MOST_SAMPLES, MOST_STEPS * resident * THREADS * TILE_BYTES // samples.itemsize)
    for start in range(0, samples.size, most):
        part = samples[start : start + most]
        grid = min(resident, -(-part.nbytes // (THREADS * TILE_BYTES)))
        totals = free.pop() if free else cupy.zeros(TOTALS + OF_BLOCK * MOST_BLOCKS * limits.multiprocessors, np.uint64)
        partial = cupy.empty(layout.SIZE, cupy.int64)
        kernel((grid,), (THREADS,), (part, np.int64(part.size), code, totals, partial), shared_mem=columns)
        (_captured if capturing else free).append(totals)
        partial = place_on_device(partial, start) if start else partial
        total = partial if total is None else combine_on_device(total, partial)
    return total


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
