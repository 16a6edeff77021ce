"""Counts samples on a GPU: the launch wrapper for the kernels in `gpu.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.common.memory import pooled_zeros
from kernels.common.packed import launch
from kernels.histogram.binning import Binning
from kernels.histogram.launch import THREADS, launch_plan

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


NO_RUN = np.int64(0), np.int64(0), np.int64(0)


def histogram(samples: Any, binning: Binning, run: slice | None = None) -> Any:
    """Count samples on the device that holds them.

    Parameters
    ----------
    samples : CuPy array, shape (n,), C-contiguous, dtype ``binning.dtype``
        n may exceed 2**32.
    binning
    run
        Of the samples, at least one: the launch counts it once more by itself.

    Returns
    -------
    CuPy int64 array, shape (bins + 3,), with a run (2, bins + 3)
        Underflow, the bins, overflow, NaN, on the current stream; of all samples, and of the run.

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
    index, size = int(cupy.cuda.runtime.getDevice()), samples.size
    plan = launch_plan(binning, index, run is not None)
    slots, of_run = pooled_zeros(plan.slots if run is None else 2 * plan.slots), NO_RUN
    grid: tuple[int, ...] = (plan.grid,)
    if run is not None:
        grid, of_run = (plan.grid, 2), (np.int64(run.start), np.int64(run.stop - run.start), np.int64(plan.slots))
    for start in range(0, size, plan.most):
        part = samples if size <= plan.most else samples[start : start + plan.most]
        arguments = (part, np.int64(part.size), slots, *plan.arguments, *of_run)
        launch(plan.kernel, grid, (THREADS,), arguments, plan.shared_mem)
        grid = (plan.grid,)  # the run was counted with the first part
    counts = slots.view(cupy.int64)
    return counts if run is None else counts.reshape(2, -1)
