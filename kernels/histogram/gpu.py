"""Counts samples on a GPU: the launch wrapper for the kernels in `gpu.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.common.memory import current_stream, pooled_zeros
from kernels.histogram.binning import Binning
from kernels.histogram.launch import launch_plan

KERNELS = ("histogram_shift", "histogram_linear", "histogram_steps", "histogram_search", "histogram_narrow",
           "histogram_bytes")  # fmt: skip

# One instance of each kernel; `launch_plan` chooses among more types of samples and numbers of copies.
INSTANCES = (
    "histogram_shift<int, 2, 1, true>",
    "histogram_linear<int, 2, 1>",
    "histogram_steps<float, 16, 16>",
    "histogram_search<float, 32, 4, false, ByValue<float>, u16>",
    "histogram_narrow<short, 16>",
    "histogram_bytes<u8, 32>",
)


def histogram(samples: Any, binning: Binning) -> Any:
    """Count samples on the device that holds them.

    Parameters
    ----------
    samples : CuPy array, shape (n,), C-contiguous, dtype ``binning.dtype``
        n may exceed 2**32.
    binning

    Returns
    -------
    CuPy int64 array, shape (bins + 3,)
        Underflow, the bins, overflow, NaN, on the current stream.

    Raises
    ------
    TypeError, ValueError
        If the array is of another dtype, has more than one dimension or has gaps.
    """
    import cupy

    if samples.dtype != binning.dtype:
        raise TypeError(f"histogram: expected samples of {binning.dtype}, got {samples.dtype}; convert them first")
    if samples.ndim != 1 or not samples.flags.c_contiguous:
        raise ValueError(f"histogram: expected one contiguous dimension, got shape {samples.shape}, strides "
                         f"{samples.strides}; pass cupy.ascontiguousarray(samples).ravel()")  # fmt: skip
    stream = current_stream()
    plan = launch_plan(binning, stream[0])
    slots = pooled_zeros(plan.slots, cupy.int64, stream)
    for start in range(0, samples.size, plan.most):
        part = samples if samples.size <= plan.most else samples[start : start + plan.most]
        plan.launch(plan.grid, (part, np.int64(part.size), slots), stream[1])
    return slots
