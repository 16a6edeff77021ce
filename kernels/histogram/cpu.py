"""Counts samples on the CPU: by the functions of `cpu.cpp`, or by NumPy where there is no compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.row_places import in_order
from kernels.histogram.binning import Binning

SOURCE = Path(__file__).with_suffix(".cpp")

# What NumPy counts at a time: half of a typical L2 cache, so that each pass finds it there.
CACHED_BYTES = 2**19

# As cpu.cpp numbers them.
TYPES = ("int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
# Counters have 32 bits, and together fit the L1 cache.
MAX_SAMPLES = 2**31  # samples that they count
COUNTER_TABLES = (  # slots at most, tables to count in; more slots are counted where they are returned
    (2048, 4),
    (16384, 2),
)
LEAST_TABLES = 4  # of rows that take turns; counters of equal neighbours would wait for each other
TABLE_BYTES = 2**19  # of all rows, at most: half of a typical L2 cache
COPIED_SAMPLES = 2**17  # samples at a time of an array that has gaps

_COUNTERS = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, *(ctypes.c_size_t,) * 4, *(ctypes.c_void_p,) * 2)

# (samples, slots of each row, the row of the first sample; begins and ends of rows, where these do not take turns)
Places = tuple[NDArray[np.int64], NDArray[np.int64]]
Count = Callable[..., None]


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
    slots = count_compiled(samples, binning)
    return histogram_numpy(samples, binning) if slots is None else slots


def histogram_numpy(samples: NDArray[Any], binning: Binning) -> NDArray[np.int64]:
    """Count samples as `histogram_cpu` does, by NumPy, a cache-sized block at a time."""
    narrow = binning.dtype.itemsize <= 2
    count = _count_patterns if narrow else _count_shifted if binning.shift is not None else _count_searched
    total = np.zeros(2 ** (8 * binning.dtype.itemsize) if narrow else binning.slots, np.int64)
    step = CACHED_BYTES // binning.dtype.itemsize
    with np.errstate(invalid="ignore"):
        for start in range(0, len(samples), step):
            count(samples[start : start + step].astype(binning.dtype, copy=False), binning, total)
    return _bin_patterns(total, binning) if narrow else total


def _count_patterns(block: NDArray[Any], binning: Binning, total: NDArray[np.int64]) -> None:
    """Samples of one or two bytes: count every bit pattern, then bin the patterns."""
    total += np.bincount(block.view(f"u{block.itemsize}"), minlength=len(total))


def _bin_patterns(patterns: NDArray[np.int64], binning: Binning) -> NDArray[np.int64]:
    slots = np.zeros(binning.slots, np.int64)
    np.add.at(slots, binning.slot_of_pattern, patterns)
    return slots


def _count_shifted(block: NDArray[Any], binning: Binning, total: NDArray[np.int64]) -> None:
    """Integers in bins 2**k wide: subtract, shift, count; the few outside are searched."""
    first, shift = int(binning.thresholds[0]), binning.shift or 0
    span = min(binning.bins << shift, int(np.iinfo(block.dtype).max) - first + 1)
    unsigned = np.dtype(f"u{block.itemsize}").type
    # Modulo 2**n, samples below the first bin are far above the last one: one comparison finds all outside.
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


def _count_searched(block: NDArray[Any], binning: Binning, total: NDArray[np.int64]) -> None:
    """Any edges: binary search."""
    if block.dtype.kind == "f" and np.isnan(block.max()):
        numbers = block == block
        total[-1] += len(block) - np.count_nonzero(numbers)
        block = block[numbers]
    total += np.bincount(binning.find(block), minlength=len(total))


def count_compiled(samples: NDArray[Any], binning: Binning) -> NDArray[np.int64] | None:
    """Count samples as `histogram_cpu` does; None without a compiler."""
    count = _compiled_function(binning)
    if count is None:
        return None
    slots = np.zeros((1, binning.slots), np.int64)
    whole = samples.dtype == binning.dtype and samples.flags.c_contiguous and samples.flags.aligned
    step = MAX_SAMPLES if whole else COPIED_SAMPLES
    for start in range(0, len(samples), step):
        count(np.require(samples[start : start + step], binning.dtype, ["C", "A"]), slots, 0)
    return slots.reshape(-1)


def count_turns(samples: NDArray[Any], binning: Binning, rows: int, first: int) -> NDArray[np.int64] | None:
    """Count samples of rows that take turns, without gathering those of each.

    Parameters
    ----------
    samples : array of ``binning.dtype``, native byte order, shape (n,), n <= MAX_SAMPLES
    binning
    rows
        Number of rows, 2 or more.
    first
        The one that samples[0] belongs to.

    Returns
    -------
    int64 array, shape (rows, bins + 3), or None
        As `histogram_cpu`, of each row; None without a compiler, or if the counters of all rows do not fit a cache.
    """
    if -(-LEAST_TABLES // rows) * rows * _stride(binning) * 4 > TABLE_BYTES:
        return None
    count = _compiled_function(binning)
    if count is None:
        return None
    slots = np.zeros((rows, binning.slots), np.int64)
    count(np.require(samples, requirements=["C", "A"]), slots, first)
    return slots


def count_runs(
    samples: NDArray[Any], binning: Binning, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64] | None:  # fmt: skip
    """Count samples of rows, each from its begin to its end, in any order; some may be empty, none overlaps another.

    Parameters
    ----------
    samples : array of ``binning.dtype``, native byte order, shape (n,), n <= MAX_SAMPLES
    binning
    begins, ends : int64 arrays, shape (rows,)

    Returns
    -------
    int64 array, shape (rows, bins + 3), or None
        As `histogram_cpu`, of each row; None without a compiler.
    """
    count = _compiled_function(binning)
    if count is None:
        return None
    slots = np.zeros((len(begins), binning.slots), np.int64)
    order, *places = in_order(begins, ends)
    count(np.require(samples, requirements=["C", "A"]), slots, 0, (places[0], places[1]))
    return slots if order is None else slots[np.argsort(order)]


def _stride(binning: Binning) -> int:
    """Counters from one table to the next: not a multiple of 4 KiB, or those of a slot would share a cache set."""
    return -(-binning.slots // 16) * 16 + 16


@lru_cache(maxsize=16)
def _compiled_function(binning: Binning) -> Count | None:
    """A function that adds the counts of samples to slots; None without a compiler."""
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    function, type_, types, own = _method(functions, binning)
    function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, *types, *_COUNTERS)
    function.restype = None
    of_one_row = next((number for most, number in COUNTER_TABLES if binning.slots <= most), 0)
    stride = _stride(binning)

    def count(samples: NDArray[Any], slots: NDArray[np.int64], first: int, places: Places | None = None) -> None:
        rows = len(slots)
        tables = 0 if places else of_one_row if rows == 1 else -(-LEAST_TABLES // rows) * rows
        # `own` holds the arrays: another thread that computes a binning's tables at the same time replaces them there.
        arguments = (each.ctypes.data if isinstance(each, np.ndarray) else each for each in own)
        counters = np.zeros(tables * stride, np.uint32)
        where = slots.ctypes.data, binning.slots, counters.ctypes.data, stride, tables, rows, first
        runs = [place.ctypes.data for place in places] if places else [None, None]
        function(type_, samples.ctypes.data, len(samples), *arguments, *where, *runs)

    return count


def _method(functions: ctypes.CDLL, binning: Binning) -> tuple[Any, int, tuple[Any, ...], tuple[Any, ...]]:
    """A function, the number of its sample type, its own argument types, and its own arguments, which may be arrays."""
    dtype, thresholds = binning.dtype, binning.thresholds
    if binning.shift is not None and dtype.itemsize > 1:
        first = int(thresholds[0])
        end = int(thresholds[-1]) if len(thresholds) > binning.bins else int(np.iinfo(dtype).max) + 1
        shifted = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int
        where = first % 2**64, end - 1 - first, binning.shift
        return functions.count_shifted, TYPES.index(dtype.name), shifted, where
    if dtype.itemsize <= 2:
        return functions.count_patterns, dtype.itemsize, (ctypes.c_void_p,), (binning.slot_of_pattern,)
    type_ = TYPES.index(dtype.name)
    search: tuple[Any, ...] = thresholds, len(thresholds)
    if _fits_linear_map(functions, binning, type_):
        guessed = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double, ctypes.c_double
        return functions.count_guessed, type_, guessed, (*search, *_linear_map(binning))
    return functions.count_searched, type_, (ctypes.c_void_p, ctypes.c_size_t), search


def _linear_map(binning: Binning) -> tuple[float, float]:
    """Scale and offset of the map that is 1/2 where the first bin begins and rises by 1 per bin."""
    lower, upper = float(binning.edges[0]), float(binning.edges[-1])
    scale = binning.bins / (upper - lower)
    return scale, 0.5 - lower * scale


def _fits_linear_map(functions: ctypes.CDLL, binning: Binning, type_: int) -> bool:
    """Whether the map gives every sample its slot or the one before, as it does for bins of about equal width."""
    scale, offset = _linear_map(binning)
    thresholds = binning.thresholds
    if not len(thresholds) or not np.isfinite([scale, offset]).all():
        return False
    functions.holds.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double, ctypes.c_double)
    return bool(functions.holds(type_, thresholds.ctypes.data, len(thresholds), scale, offset))
