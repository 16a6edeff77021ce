"""Count samples into slots: the plain reference, the CPU counterpart, the door to the CUDA kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import build
from kernels.binning import Binning, Edges

VARIANTS = ("histogram_shift", "histogram_regular", "histogram_search", "histogram_bytes")

# One instance of each kernel in histogram.cu, to look at: those of the job, those of the ladder.
INSTANCES = {
    "production": "histogram_shift<int, 8, true>", "histogram_shift": "histogram_shift<int, 8, true>",
    "histogram_regular": "histogram_regular<float, 8, true>", "histogram_search": "histogram_search<float, 8, true>",
    "histogram_bytes": "histogram_bytes<u8, 32>",
} | {name: f"{name}<int>" for name in ("global_atomics", "unrolled", "ilp", "one_per_thread", "inverse", "plain_add",
                                       "past_the_end")} | {
    "shared": "shared<int, true>", "no_barrier": "shared<int, false>",
    "banks": "banks<int, 1>", "banks2": "banks<int, 2>", "banks4": "banks<int, 4>",
}  # fmt: skip

THREADS = 1024  # THREADS in stream.cuh
# What the CPU counts at a time: half of a typical second-level cache, so that a pass finds it there.
CACHED_BYTES = 2**19

# C type of the samples in histogram.cu, by NumPy dtype; keys are compared in KEYS where they differ from the samples.
C_TYPES = {
    "int8": "u8", "uint8": "u8", "int16": "short", "uint16": "u16", "int32": "int", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "float16": "float16", "float32": "float", "float64": "double",
}  # fmt: skip
# Copies of the counters in a block, by bytes of a sample. Measured on H200 with 1024 bins and all samples in one bank
# of shared memory: int32 gains 15 % from 8 copies, uint16 doubles with 16, uint8 gains fourfold with 32.
COPIES = {1: 32, 2: 16, 4: 8}
KEYS = {"int16": np.int32, "uint16": np.int32, "float16": np.float32}


def histogram_reference(samples: NDArray[Any], edges: Edges) -> NDArray[np.int64]:
    """Count samples with NumPy's own histogram: plain, and independent of everything else here.

    Parameters
    ----------
    samples : array of any supported dtype and byte order, shape (n,)
    edges : float64 array, shape (bins + 1,), strictly ascending

    Returns
    -------
    int64 array, shape (bins + 3,)
        Underflow, the bins, overflow, NaN (see ``kernels.binning``).
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
        values = samples.astype(np.float64)
    inside, _ = np.histogram(values, edges)
    below = np.count_nonzero(values < edges[0])
    above = np.count_nonzero(values > edges[-1])
    return np.concatenate(([below], inside, [above], [np.count_nonzero(np.isnan(values))])).astype(np.int64)


def histogram_cpu(samples: NDArray[Any], binning: Binning) -> NDArray[np.int64]:
    """Count samples on the CPU, a cache-sized block at a time.

    Parameters
    ----------
    samples : array of ``binning.dtype`` in either byte order, shape (n,)
    binning

    Returns
    -------
    int64 array, shape (bins + 3,)
        Underflow, the bins, overflow, NaN.
    """
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
    first = int(binning.thresholds[0])
    end = first + (binning.bins << (binning.shift or 0))
    if int(block.min()) < first or int(block.max()) >= end:
        inside = block >= binning.thresholds[0]
        if end <= np.iinfo(block.dtype).max:
            inside &= block < block.dtype.type(end)
        total += np.bincount(binning.find(block[~inside]), minlength=len(total))
        block = block[inside]
    # Modulo 2**64 the offset is right also for uint64, and it is below 2**62 here.
    offsets = np.subtract(block, np.uint64(first % 2**64).astype(np.int64), dtype=np.int64, casting="unsafe")
    if binning.shift:
        offsets >>= binning.shift
    total[1 : binning.bins + 1] += np.bincount(offsets, minlength=binning.bins)


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
    plan = _launch_plan(binning, int(cupy.cuda.runtime.getDevice()))
    kernel = build.load("histogram", plan.instance)
    slots = cupy.zeros(binning.slots, cupy.uint64)
    # A block counts in u32: no more than 2**31 samples for each of them in one launch.
    for start in range(0, len(samples), plan.grid * 2**31):
        part = samples[start : start + plan.grid * 2**31]
        for first, last in plan.windows:
            arguments = (part, np.int64(len(part)), slots, np.uint32(first), np.uint32(last), *plan.arguments)
            kernel((plan.grid,), (THREADS,), arguments, shared_mem=plan.shared_mem)
    return slots.view(cupy.int64)


@dataclass(frozen=True)
class _LaunchPlan:
    """How a binning is counted on one device: which slots in which launch, and what the kernel is told of the edges."""

    instance: str
    grid: int
    shared_mem: int
    windows: tuple[tuple[int, int], ...]
    arguments: tuple[Any, ...]


@lru_cache(maxsize=8)
def _launch_plan(binning: Binning, device: int) -> _LaunchPlan:
    """Kept, because a stream counts block after block and the thresholds of many bins take a while to copy."""
    stem, arguments = _variant(binning)
    counters = 256 if stem == "histogram_bytes" else binning.slots
    copies, window = counter_copies(counters, binning.dtype.itemsize, build.limits().shared_per_block)
    shared_mem = window * copies * 4
    whole = "" if stem == "histogram_bytes" else f", {str(window == counters).lower()}"
    instance = f"{stem}<{C_TYPES[binning.dtype.name]}, {copies}{whole}>"
    registers = build.load("histogram", instance).registers
    grid = build.limits().resident_blocks(THREADS, registers, shared_mem)
    windows = tuple((first, min(first + window, counters)) for first in range(0, counters, window))
    return _LaunchPlan(instance, grid, shared_mem, windows, arguments)


def counter_copies(counters: int, itemsize: int, shared_per_block: int) -> tuple[int, int]:
    """Copies of its counters that a block keeps in shared memory, and how many counters it keeps at a time.

    Parameters
    ----------
    counters
        All of them.
    itemsize
        Bytes of a sample: the narrower it is, the more increments come with each byte read.
    shared_per_block
        Bytes that a block may have.
    """
    copies = COPIES.get(itemsize, 1)
    while copies > 1 and counters * copies * 4 > shared_per_block // 3:
        copies //= 2
    fits = shared_per_block // (4 * copies)
    # Windows of equal size: the data is read once for each, whatever its size.
    return copies, -(-counters // -(-counters // fits))


def _variant(binning: Binning) -> tuple[str, tuple[Any, ...]]:
    """Kernel for a binning, and its arguments after the window."""
    import cupy

    if binning.dtype.itemsize == 1:
        return "histogram_bytes", (cupy.asarray(binning.slot_of_pattern),)
    bins = np.uint32(binning.bins)
    key = np.dtype(KEYS.get(binning.dtype.name, binning.dtype))
    keys = binning.thresholds.astype(key)
    has_end = np.bool_(len(keys) > binning.bins)
    if binning.shift is not None:
        start = int(keys[0])
        reach = min(binning.bins << binning.shift, int(np.iinfo(binning.dtype).max) - start + 1) - 1
        unsigned = np.dtype(f"u{key.itemsize}").type
        return "histogram_shift", (bins, keys[0], unsigned(reach), np.int32(binning.shift), keys[-1], has_end)
    thresholds, count = cupy.asarray(keys), np.int32(len(keys))
    if not binning.regular or not len(keys):
        return "histogram_search", (bins, thresholds, count)
    return "histogram_regular", (bins, thresholds, count, keys[0], keys[-1], has_end, *device_line(binning))


def device_line(binning: Binning) -> tuple[Any, Any, Any, Any]:
    """Scale and offset of the guess that histogram_regular makes, and how far below and above its bin it lies at most.

    The guess is monotone in the sample, so its extremes on a bin are at the bin's first and last sample; here they are
    evaluated as the kernel does it, in the same arithmetic.
    """
    key = np.dtype(KEYS.get(binning.dtype.name, binning.dtype))
    guess: Any = np.float32 if key.itemsize == 4 else np.float64
    starts, ends = binning.thresholds[: binning.bins], binning.thresholds[1:]
    is_float = binning.dtype.kind == "f"
    with np.errstate(all="ignore"):
        line_scale, line_offset = guess_line(binning)
        scale, offset = guess(line_scale), guess(float(starts[0]) * line_scale + line_offset)
        last = np.nextafter(ends, binning.dtype.type(-np.inf)) if is_float else ends - binning.dtype.type(1)
        greatest = (np.finfo if is_float else np.iinfo)(binning.dtype).max
        # Without a threshold to end it, the last bin goes on to the greatest value there is.
        last = np.append(last, binning.dtype.type(greatest))[: len(starts)]
        reached = np.append(ends > starts[: len(ends)], True)[: len(starts)]
        number: NDArray[Any] = np.arange(len(starts), dtype=guess)
        first_guess, last_guess = (
            _distance(values.astype(key), starts[0].astype(key)).astype(guess) * scale + offset
            for values in (starts, last)
        )
        outside = [number - first_guess, last_guess - (number + guess(1))]
        outside[1][-1] = -1.0  # above the last bin there is no other
        # Bins that no sample reaches do not count; a guess that is no number is never trusted.
        below, above = (guess(np.max(far, initial=-1.0, where=reached)) for far in outside)
    trusted = np.isfinite(below) and np.isfinite(above)
    return scale, offset, below if trusted else guess(2), above if trusted else guess(2)


def _distance(values: NDArray[Any], start: Any) -> NDArray[Any]:
    """Difference as the kernel forms it: exact and unsigned for integers, rounded once for floats."""
    if values.dtype.kind == "f":
        return np.asarray(values - start)
    unsigned = np.dtype(f"u{values.dtype.itemsize}")
    return np.asarray(values.view(unsigned) - np.asarray(start).view(unsigned))
