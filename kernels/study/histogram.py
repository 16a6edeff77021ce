"""The ladder of histograms of 10-bit samples: the plain reference, and a launch wrapper for each kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.checks import check_array, check_block, check_shared
from kernels.common.memory import zeros
from kernels.histogram.binning import Binning
from kernels.histogram.gpu import histogram
from kernels.study.variant import Variant, by_name

SOURCE = Path(__file__).with_suffix(".cu")

VALUES = 1024  # of a 10-bit sample; VALUES in histogram.cu
REFERENCE_STEP = 2**18  # samples per step of the reference: they stay in the cache
# Edges at halves, because the last bin includes its upper edge and must exclude 1024. One object, so that its launch is
# planned once.
BINNING = Binning(np.dtype(np.int32), np.arange(VALUES + 1, dtype=np.float64) - 0.5, True)
MAX_GRID, MAX_SLICE, MAX_BLOCK_SAMPLES, MAX_COVERED = 2**31 - 1, 2**31 - 1, 2**32 - 1, 2**62
_zeros = partial(zeros, "histogram")


def ten_bit_reference(samples: NDArray[Any]) -> NDArray[np.int64]:
    """Count each value with NumPy's bincount.

    Parameters
    ----------
    samples : int32 array, shape (n,)
        Those outside of [0, 1024) are not counted.

    Returns
    -------
    int64 array, shape (1024,)
    """
    counts = np.zeros(VALUES, np.int64)
    for start in range(0, len(samples), REFERENCE_STEP):
        block = samples[start : start + REFERENCE_STEP]
        counts += np.bincount(block[(block >= 0) & (block < VALUES)], minlength=VALUES)
    return counts


def ten_bit_histogram(samples: Any) -> Any:
    """Count each value on the device that holds the samples, with the production kernel.

    Parameters
    ----------
    samples : CuPy int32 array, shape (n,), C-contiguous
        Those outside of [0, 1024) are not counted. n may exceed 2**32.

    Returns
    -------
    CuPy int64 array, shape (1024,)
        On the current stream.

    Raises
    ------
    TypeError, ValueError
        If the array is of another dtype, has more than one dimension or gaps.
    """
    check_array("samples", samples, ("int32",), 1)
    return histogram(samples, BINNING)[1 : VALUES + 1]


def _sliced(instance: str, samples: Any, blocks: int, threads: int, slice: int) -> Any:
    """Launch a kernel in which each thread counts a slice of the samples."""
    _check(samples, blocks, threads, slice, blocks * threads * slice)
    counts = _zeros(VALUES, np.dtype(np.int64))
    arguments = (samples, np.int64(samples.size), counts, np.int32(slice))
    nvrtc.load(SOURCE, instance)((blocks,), (threads,), arguments)
    return counts


def _check(samples: Any, blocks: int, threads: int, slice: int, covered: int) -> None:
    check_array("samples", samples, ("int32",), 1)
    check_block(threads)
    for name, value, limit in (("blocks", blocks, MAX_GRID), ("slice", slice, MAX_SLICE)):
        if not 1 <= value <= limit:
            raise ValueError(f"{name}: expected 1 to {limit}, got {value}")
    if not samples.size <= covered <= MAX_COVERED:
        raise ValueError(f"{blocks} blocks of {threads} threads, slice {slice}: expected to cover the "
                         f"{samples.size} samples and at most 2**62, covers {covered}")  # fmt: skip


def _global_atomics(samples: Any, blocks: int = 64, threads: int = 1024, slice: int = 512) -> Any:
    return _sliced("global_atomics<int>", samples, blocks, threads, slice)


def _unrolled(samples: Any, blocks: int = 64, threads: int = 1024, slice: int = 512) -> Any:
    return _sliced("unrolled<int>", samples, blocks, threads, slice)


def _ilp(samples: Any, blocks: int = 128, threads: int = 512, slice: int = 512) -> Any:
    return _sliced("ilp<int>", samples, blocks, threads, slice)


def _one_per_thread(samples: Any, blocks: int = 32768, threads: int = 1024) -> Any:
    _check(samples, blocks, threads, 1, blocks * threads)
    counts = _zeros(VALUES, np.dtype(np.int64))
    nvrtc.load(SOURCE, "one_per_thread<int>")((blocks,), (threads,), (samples, np.int64(samples.size), counts))
    return counts


def _course_launch(name: str, samples: Any, blocks: int, threads: int, slice: int) -> Callable[[], Any]:
    """Check what the course takes for granted; return a function that launches its kernel and returns its counters."""
    _check(samples, blocks, threads, slice, blocks * threads * slice)
    if samples.size != blocks * threads * slice or samples.size >= 2**31:
        raise ValueError(f"{name}: expected {blocks} x {threads} x {slice} samples, fewer than 2**31, got "
                         f"{samples.size}; global_atomics takes any number")  # fmt: skip
    if slice % 4 and name == "course_ilp":
        raise ValueError(f"course_ilp: expected a slice of a multiple of 4, got {slice}")
    outside = histogram(samples, BINNING)[:: VALUES + 1].get()
    if outside.any():
        raise ValueError(f"{name}: expected samples of 10 bits, {outside.sum()} are not; global_atomics skips them")

    def launch() -> Any:
        counts = _zeros(VALUES, np.dtype(np.int32))
        nvrtc.load(SOURCE, f"{name}<int>")((blocks,), (threads,), (samples, counts, np.int32(slice)))
        return counts

    return launch


def _course(name: str, samples: Any, blocks: int = 64, threads: int = 1024, slice: int = 512) -> Any:
    return _course_launch(name, samples, blocks, threads, slice)().astype(np.int64)


def _in_shared(barriers: str, samples: Any, blocks: int = 8192, threads: int = 64, slice: int = 64) -> Any:
    if threads * slice > MAX_BLOCK_SAMPLES:
        raise ValueError(f"threads x slice: expected at most {MAX_BLOCK_SAMPLES} samples per block, since it counts "
                         f"in 32 bits, got {threads * slice}")  # fmt: skip
    return _sliced(f"shared<int, {barriers}>", samples, blocks, threads, slice)


def _inverse(samples: Any, blocks: int = 4096, slice: int = 8192) -> Any:
    """Here a slice is per block: shared memory holds its samples and the counters."""
    _check(samples, blocks, VALUES, slice, blocks * slice)
    check_shared(f"slice of {slice} samples and {VALUES} counters", 4 * (slice + VALUES))
    counts = _zeros(VALUES, np.dtype(np.int64))
    arguments = (samples, np.int64(samples.size), counts, np.int32(slice))
    nvrtc.load(SOURCE, "inverse<int>")((blocks,), (VALUES,), arguments, shared_mem=4 * slice)
    return counts


def _banks(samples: Any, each: int) -> Any:
    """`each` values per thread; a block holds 1024 samples, so the grid follows from their number."""
    check_array("samples", samples, ("int32",), 1)
    blocks = max(1, -(-samples.size // VALUES))
    _check(samples, blocks, VALUES // each, each, blocks * VALUES)
    counts = _zeros(VALUES, np.dtype(np.int64))
    kernel = nvrtc.load(SOURCE, f"banks<int, {each}>")
    kernel((blocks,), (VALUES // each,), (samples, np.int64(samples.size), counts))
    return counts


def _banks_if(samples: Any, xor: str) -> Any:
    check_array("samples", samples, ("int32",), 1)
    blocks = max(1, -(-samples.size // VALUES))
    _check(samples, blocks, VALUES, 1, blocks * VALUES)
    counts = _zeros(VALUES, np.dtype(np.int64))
    nvrtc.load(SOURCE, f"banks_if<int, {xor}>")((blocks,), (VALUES,), (samples, np.int64(samples.size), counts))
    return counts


def _plain_add(samples: Any, blocks: int = 64, threads: int = 1024, slice: int = 512) -> Any:
    return _sliced("plain_add<int>", samples, blocks, threads, slice)


def _past_the_end(samples: Any, blocks: int = 65, threads: int = 1024, slice: int = 512) -> Any:
    """One block more than in the course, so that it passes the end; the samples are padded with zeros."""
    return _past_the_end_launch(samples, blocks, threads, slice)()


def _past_the_end_launch(samples: Any, blocks: int, threads: int, slice: int) -> Callable[[], Any]:
    covered = blocks * threads * slice
    _check(samples, blocks, threads, slice, covered)
    padded = _zeros(covered, np.dtype(np.int32))
    padded[: samples.size] = samples

    def launch() -> Any:
        counts = _zeros(VALUES, np.dtype(np.int64))
        nvrtc.load(SOURCE, "past_the_end<int>")((blocks,), (threads,), (padded, counts, np.int32(slice)))
        return counts

    return launch


SLICES = {"blocks": 64, "threads": 1024, "slice": 512}
COURSE_DATA = "needs samples of 10 bits only, as many as its grid covers"

VARIANTS = by_name(
    Variant("global_atomics", "a slice of the samples per thread, counters in global memory", _global_atomics, SLICES),
    Variant("unrolled", "global_atomics, its loop unrolled 512 times", _unrolled, SLICES),
    Variant("ilp", "global_atomics, four samples per iteration by hand", _ilp,
            {"blocks": 128, "threads": 512, "slice": 512}),
    Variant("one_per_thread", "no slice and no loop: a thread per sample", _one_per_thread,
            {"blocks": 32768, "threads": 1024}),
    *(Variant(name, idea, partial(_course, name), sizes, unfit=COURSE_DATA, timed=partial(_course_launch, name))
      for name, idea, sizes in (
          ("course_slices", "global_atomics as the course writes it: no guard, 32-bit counters, sizes that divide",
           SLICES),
          ("course_unrolled", "course_slices, its loop unrolled 512 times", SLICES),
          ("course_ilp", "course_slices, four samples per iteration by hand",
           {"blocks": 128, "threads": 512, "slice": 512}),
      )),
    Variant("shared", "slices again, counters in the block's shared memory, added to the global ones at the end",
            partial(_in_shared, "true"), {"blocks": 8192, "threads": 64, "slice": 64}),
    Variant("inverse", "a thread per value, which counts it in the samples that its block holds in shared memory",
            _inverse, {"blocks": 4096, "slice": 8192}),
    Variant("banks", "inverse, as many samples held as there are threads, occurrences in a register",
            partial(_banks, each=1)),
    Variant("banks2", "banks, two values per thread", partial(_banks, each=2)),
    Variant("banks4", "banks, four values per thread", partial(_banks, each=4)),
    Variant("banks_if", "banks with a conditional increment in place of an arithmetic one",
            partial(_banks_if, xor="false")),
    Variant("banks_xor", "banks with the exclusive or that the course tries in place of a comparison",
            partial(_banks_if, xor="true")),
    Variant("production", "the kernels of the job, in histogram/gpu.cu: shared with enough 16-byte loads in flight",
            ten_bit_histogram),
    # Blocks of many warps: the 32 threads of a single one hardly diverge.
    Variant("no_barrier", "shared without __syncthreads", partial(_in_shared, "false"), SLICES,
            broken="counts while counters are cleared, adds while others count"),
    Variant("plain_add", "global_atomics without atomicAdd", _plain_add, SLICES,
            broken="threads overwrite each other's increments"),
    Variant("past_the_end", "global_atomics without a guard", _past_the_end,
            {"blocks": 65, "threads": 1024, "slice": 512}, broken="counts what lies behind the samples",
            timed=_past_the_end_launch),
)  # fmt: skip

INSTANCES = {name: f"{name}<int>" for name in VARIANTS if name != "production"} | {
    "shared": "shared<int, true>", "no_barrier": "shared<int, false>",
    "banks": "banks<int, 1>", "banks2": "banks<int, 2>", "banks4": "banks<int, 4>",
    "banks_if": "banks_if<int, false>", "banks_xor": "banks_if<int, true>",
}  # fmt: skip
