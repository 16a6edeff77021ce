"""Weighted sums of sliding windows on a GPU: which kernel of `gpu.cu` runs, and how it is launched."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.stencil.launch import SOURCE, THREADS, check, checked_blocks, empty, step_of
from kernels.stencil.windows import OUTSIDE, weighted_dtype

_PACKS = SOURCE.with_name("weighted.cuh")
# By bytes per number, packs of 16 bytes per thread; and taps per chunk, in rings of one pack more.
PACKS = {4: constant(_PACKS, "FLOAT_PACKS"), 8: constant(_PACKS, "DOUBLE_PACKS")}
CHUNK = constant(_PACKS, "CHUNK_RINGS")
# By bytes per number, the tap counts that have a kernel of their own (few_taps), where it is faster.
FEW = {4: range(1, 34, 2), 8: range(19, 34, 2)}
WAVES = 16  # blocks per resident block

INSTANCES = (
    *(f"few_taps<{c_type}, {taps}>" for c_type, size in (("float", 4), ("double", 8)) for taps in FEW[size]),
    "weighted<float, float>",
    *(f"weighted<{c_type}, double>" for c_type in C_TYPES.values() if c_type != "float16"),
)


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
        On the current stream; the same bits as from `kernels.stencil.cpu.weighted_cpu`.

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
    c_type = C_TYPES[str(x.dtype)]
    instance = f"few_taps<{c_type}, {taps}>" if few else f"weighted<{c_type}, {C_TYPES[str(dtype)]}>"
    kernel = nvrtc.load(SOURCE, instance)
    pack, packs = 16 // dtype.itemsize, PACKS[dtype.itemsize]
    tile, chunk = THREADS * packs * pack, CHUNK * (packs + 1) * pack
    staged = -(-(taps - 1) // pack) * pack if few else 2 * min(chunk, -(-taps // pack) * pack)
    shared = 2 * dtype.itemsize * (tile + staged)
    resident = device.limits().resident_blocks(THREADS, kernel.registers, kernel.static_shared + shared)
    step = step_of(rows * outputs, 0, resident, tile, WAVES)
    spans = -(-outputs // step)
    counts = () if few else (np.int32(taps),)
    arguments = (np.int64(length), np.int64(outputs), np.int64(-before), *counts, np.int32(OUTSIDE.index(outside)),
                 np.int64(spans), np.int64(step))  # fmt: skip
    kernel((checked_blocks(rows * spans),), (THREADS,), (x, weights.astype(dtype), out, *arguments), shared_mem=shared)
    return out
