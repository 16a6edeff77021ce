"""Counting on the CPU by the functions of cpu.cpp: which of them, and on what."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.histogram.binning import Binning

SOURCE = Path(__file__).with_name("cpu.cpp")

# As cpu.cpp numbers them.
TYPES = ("int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
# Counters have 32 bits, and no more bytes together than the first-level cache.
MOST = 2**31  # samples that they count
TABLES = ((2048, 4), (16384, 2))  # slots at most, tables to count in; more slots are counted where they are returned
COPIED = 2**17  # samples at a time of an array that has gaps

_COUNTERS = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

Count = Callable[[NDArray[Any], NDArray[np.int64]], None]


def count_natively(samples: NDArray[Any], binning: Binning) -> NDArray[np.int64] | None:
    """Count samples as `histogram_cpu` does; None where nothing can be compiled."""
    count = _counting(binning)
    if count is None:
        return None
    slots = np.zeros(binning.slots, np.int64)
    whole = samples.dtype == binning.dtype and samples.flags.c_contiguous and samples.flags.aligned
    step = MOST if whole else COPIED
    for start in range(0, len(samples), step):
        count(np.require(samples[start : start + step], binning.dtype, ["C", "A"]), slots)
    return slots


@lru_cache(maxsize=16)
def _counting(binning: Binning) -> Count | None:
    """Adds the counts of samples to slots."""
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    function, type_, types, arguments = _method(functions, binning)
    function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, *types, *_COUNTERS)
    function.restype = None
    tables = next((number for most, number in TABLES if binning.slots <= most), 0)
    # Not a multiple of 4 KiB apart: the counters of a slot would meet in a set of the cache.
    stride = -(-binning.slots // 16) * 16 + 16

    def count(samples: NDArray[Any], slots: NDArray[np.int64]) -> None:
        counters = np.zeros(tables * stride, np.uint32)
        where = slots.ctypes.data, len(slots), counters.ctypes.data, stride, tables
        function(type_, samples.ctypes.data, len(samples), *arguments, *where)

    return count


def _method(functions: ctypes.CDLL, binning: Binning) -> tuple[Any, int, tuple[Any, ...], tuple[Any, ...]]:
    """A function, its type of samples, and its own arguments with their types; arrays among them are of the binning."""
    dtype, thresholds = binning.dtype, binning.thresholds
    if binning.shift is not None and dtype.itemsize > 1:
        first = int(thresholds[0])
        end = int(thresholds[-1]) if len(thresholds) > binning.bins else int(np.iinfo(dtype).max) + 1
        shifted = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int
        where = first % 2**64, end - 1 - first, binning.shift
        return functions.count_shifted, TYPES.index(dtype.name), shifted, where
    if dtype.itemsize <= 2:
        return functions.count_patterns, dtype.itemsize, (ctypes.c_void_p,), (binning.slot_of_pattern.ctypes.data,)
    type_ = TYPES.index(dtype.name)
    found: tuple[Any, ...] = thresholds.ctypes.data, len(thresholds)
    if _on_a_line(functions, binning, type_):
        guessed = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double, ctypes.c_double
        return functions.count_guessed, type_, guessed, (*found, *_line(binning))
    return functions.count_searched, type_, (ctypes.c_void_p, ctypes.c_size_t), found


def _line(binning: Binning) -> tuple[float, float]:
    """Scale and offset of a line that is at 1/2 where the first bin begins, and rises by 1 with every bin."""
    lower, upper = float(binning.edges[0]), float(binning.edges[-1])
    scale = binning.bins / (upper - lower)
    return scale, 0.5 - lower * scale


def _on_a_line(functions: ctypes.CDLL, binning: Binning, type_: int) -> bool:
    """Whether the line says the slot of every sample or the one before: so it is of bins of about one width."""
    scale, offset = _line(binning)
    if not len(binning.thresholds) or not np.isfinite([scale, offset]).all():
        return False
    functions.holds.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double, ctypes.c_double)
    return bool(functions.holds(type_, binning.thresholds.ctypes.data, len(binning.thresholds), scale, offset))
