"""Finite minimum and maximum for verification: compiled, by another way than `finite_range.py`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.histogram.finite_range import finite_range_reference

SOURCE = Path(__file__).with_suffix(".cpp")

# Numbered as in check_range.cpp.
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
COPIED = 2**17  # samples at a time of an array that is swapped, unaligned or has gaps
HALF_INFINITE = 0x7C00  # as check_range.cpp orders float16


def finite_range_check(samples: NDArray[Any]) -> NDArray[np.float64]:
    """Finite minimum and maximum; without a compiler those of the reference.

    Parameters
    ----------
    samples : array of any integer or float dtype in either byte order, shape (n,), n >= 1

    Returns
    -------
    float64 array, shape (2,)
        (inf, -inf) where no sample is finite.
    """
    functions = cxx.library(SOURCE)
    if functions is None:
        return finite_range_reference(samples)
    function, address = functions.widen_range, ctypes.c_void_p
    function.argtypes, function.restype = (ctypes.c_int, address, ctypes.c_size_t, address), None
    dtype = samples.dtype.newbyteorder("=")
    half = dtype == np.float16
    if half:
        found = np.array([HALF_INFINITE, -HALF_INFINITE], np.int16)
    elif dtype.kind == "f":
        found = np.array([np.inf, -np.inf], dtype)
    else:
        found = np.array([np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    whole = samples.dtype == dtype and samples.flags.c_contiguous and samples.flags.aligned
    step = len(samples) if whole else COPIED
    for start in range(0, len(samples), step):
        part = np.require(samples[start : start + step], dtype, ["C", "A"])
        function(TYPES.index(dtype.name), part.ctypes.data, len(part), found.ctypes.data)
    if half:  # magnitudes with a sign, as float16 stores them
        found = (np.abs(found) | np.where(found < 0, np.int16(-(2**15)), np.int16(0))).view(np.float16)
    return found.astype(np.float64)
