"""Count samples into slots: the plain reference, the CPU counterpart, the door to the CUDA kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.zeros_pool import zeros
from kernels.histogram.binning import Binning, Edges
from kernels.histogram.compiled import count_natively
from kernels.histogram.launch import THREADS, launch_plan

VARIANTS = ("histogram_shift", "histogram_regular", "histogram_search", "histogram_narrow", "histogram_bytes")

# One instance of each kernel in gpu.cu, to look at: those of the job, those of the ladder.
INSTANCES = {
    "production": "histogram_shift<int, 4, 1>", "histogram_shift": "histogram_shift<int, 4, 1>",
    "histogram_regular": "histogram_regular<float, 4, 1, true>",
    "histogram_search": "histogram_search<float, 4, 1, ByValue<float>, true>",
    "histogram_narrow": "histogram_narrow<short, 16>", "histogram_bytes": "histogram_bytes<u8, 32>",
} | {name: f"{name}<int>" for name in ("global_atomics", "unrolled", "ilp", "one_per_thread", "inverse", "plain_add",
                                       "past_the_end")} | {
    "shared": "shared<int, true>", "no_barrier": "shared<int, false>",
    "banks": "banks<int, 1>", "banks2": "banks<int, 2>", "banks4": "banks<int, 4>",
}  # fmt: skip

# What the CPU counts at a time: half of a typical second-level cache, so that a pass finds it there.
CACHED_BYTES = 2**19


def histogram_reference(samples: NDArray[Any], edges: Edges) -> NDArray[np.int64]:
    """Count samples with NumPy's own histogram: plain, and independent of everything else here.

    Parameters
    ----------
    samples : array of any supported dtype and byte order, shape (n,)
    edges : float64 array, shape (bins + 1,), strictly ascending

    Returns
    -------
    int64 array, shape (bins + 3,)
        Underflow, the bins, overflow, NaN (see ``kernels.histogram.binning``).
    """
    # NumPy compares numbers of up to 32 bits with edges as the float64 numbers that they are, and sorts them faster.
    narrow = samples.dtype.kind in "iu" and samples.itemsize <= 4
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
        values = samples.astype(samples.dtype.newbyteorder("=") if narrow else np.float64)
    inside, _ = np.histogram(values, edges)
    below = np.count_nonzero(values < edges[0])
    above = np.count_nonzero(values > edges[-1])
    return np.concatenate(([below], inside, [above], [np.count_nonzero(np.isnan(values))])).astype(np.int64)


def histogram_cpu(samples: NDArray[Any], binning: Binning) -> NDArray[np.int64]:
    """Count samples on the CPU: by compiled functions, or by NumPy where there is no compiler.

    Parameters
    ----------
    samples : array of ``binning.dtype`` in either byte order, shape (n,)
    binning

    Returns
    -------
    int64 array, shape (bins + 3,)
        Underflow, the bins, overflow, NaN.
    """
    slots = count_natively(samples, binning)
    return histogram_numpy(samples, binning) if slots is None else slots


def histogram_numpy(samples: NDArray[Any], binning: Binning) -> NDArray[np.int64]:
    """Count samples as `histogram_cpu` does, by NumPy, a cache-sized block at a time."""
    narrow = binning.dtype.itemsize <= 2
    count = _count_patterns if narrow else _count_shifted if binning.shift is not None else _count_found
    total = np.zeros(2 ** (8 * binning.dtype.itemsize) if narrow else binning.slots, np.int64)
    step = CACHED_BYTES // binning.dtype.itemsize
    with np.errstate(invalid="ignore"):
        for start in range(0, len(samples), step):
            count(samples[start : start + step].astype(binning.dtype, copy=False), binning, total)
    return _bin_patterns(total, binning) if narrow else total


def _count_patterns(block: NDArray[Any], binning: Binning, total: NDArray[np.int64]) -> None:
    """Samples of one or two bytes: count every bit pattern, bin the patterns at the end."""
    total += np.bincount(block.view(f"u{block.itemsize}"), minlength=len(total))


def _bin_patterns(patterns: NDArray[np.int64], binning: Binning) -> NDArray[np.int64]:
    slots = np.zeros(binning.slots, np.int64)
    np.add.at(slots, binning.slot_of_pattern, patterns)
    return slots


def _count_shifted(block: NDArray[Any], binning: Binning, total: NDArray[np.int64]) -> None:
    """Integers in bins 2**k wide: subtract, shift, count; the few outside take the general way."""
    first, shift = int(binning.thresholds[0]), binning.shift or 0
    span = min(binning.bins << shift, int(np.iinfo(block.dtype).max) - first + 1)
    unsigned = np.dtype(f"u{block.itemsize}").type
    # Modulo 2**n what is below the first bin is far above the last one: one pass finds what is outside.
    offsets = block.view(unsigned)
    if first:
        offsets = offsets - unsigned(first % 2 ** (8 * block.itemsize))
    if int(offsets.max()) >= span:
        inside = offsets < unsigned(span)
        total += np.bincount(binning.find(block[~inside]), minlength=len(total))
        offsets = offsets[inside]
    if shift:
        offsets = offsets >> unsigned(shift)
    total[1 : binning.bins + 1] += np.bincount(offsets.astype(np.intp), minlength=binning.bins)


def _count_found(block: NDArray[Any], binning: Binning, total: NDArray[np.int64]) -> None:
    """Any edges: guess a slot from the spacing where there is one, and correct it; else search."""
    if block.dtype.kind == "f" and np.isnan(block.max()):
        numbers = block == block
        total[-1] += len(block) - np.count_nonzero(numbers)
        block = block[numbers]
    slots = _guess(block, binning) if binning.regular else None
    total += np.bincount(binning.find(block) if slots is None else slots, minlength=len(total))


def _guess(block: NDArray[Any], binning: Binning) -> NDArray[np.intp] | None:
    """Slots of evenly spaced bins by one multiplication, corrected until exact; None where the guess is no help."""
    thresholds = binning.thresholds
    last = len(thresholds)
    scale, offset = guess_line(binning)
    if not last or not np.isfinite(scale * np.abs(binning.edges[[0, -1]]).max()):
        return None
    place = block.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        place *= scale
        place += offset + 1
        slots = np.fmin(np.fmax(place, 0, out=place), last, out=place).astype(np.intp)
    padded = np.concatenate((thresholds[:1], thresholds, thresholds[-1:]))
    for _ in range(4):
        low = (block < padded[slots]) & (slots > 0)
        high = (block >= padded[1:][slots]) & (slots < last)
        if not low.any() and not high.any():
            return slots
        slots += high
        slots -= low
    return None


def guess_line(binning: Binning) -> tuple[float, float]:
    """Scale and offset of the line from a sample to its bin number, counted from ``edges[0]``."""
    lower, upper = float(binning.edges[0]), float(binning.edges[-1])
    scale = binning.bins / (upper - lower) if np.isfinite(upper - lower) else 0.0
    return scale, -lower * scale


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
    plan = launch_plan(binning, int(cupy.cuda.runtime.getDevice()))
    slots = zeros(binning.slots)
    parts = [samples] if len(samples) <= plan.most else [
        samples[start : start + plan.most] for start in range(0, len(samples), plan.most)
    ]  # fmt: skip
    for part in parts if len(samples) else ():
        arguments = (part, np.int64(len(part)), slots, *plan.arguments)
        plan.kernel((plan.grid,), (THREADS,), arguments, shared_mem=plan.shared_mem)
    return slots.view(cupy.int64)
