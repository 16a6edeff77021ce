"""Partials of reduce for verification: compiled, by other ways than `cpu.py` and `gpu.py`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.reduce.partial import DTYPES, Partial, combine, empty, place
from kernels.reduce.reference import reduce_reference

SOURCE = Path(__file__).with_suffix(".cpp")

MOST = 2**31  # samples of a call: so many fit the sums of check.cpp
COPIED = 2**17  # samples at a time of an array that is swapped, unaligned or has gaps


def reduce_check(samples: NDArray[Any], parts: int) -> Partial:
    """Partial of samples; without a compiler that of the reference.

    Parameters
    ----------
    samples : array of any integer or float dtype in either byte order, shape (n,), n >= 1
    parts
        One of ``kernels.reduce.partial.PARTS``.
    """
    functions = cxx.library(SOURCE)
    if functions is None:
        return reduce_reference(samples, parts)
    function, integer, address = functions.check_samples, ctypes.c_int, ctypes.c_void_p
    function.argtypes, function.restype = (integer, integer, address, ctypes.c_size_t, address), None
    dtype = samples.dtype.newbyteorder("=")
    whole = samples.dtype == dtype and samples.flags.c_contiguous and samples.flags.aligned
    step = MOST if whole else COPIED
    total: Partial | None = None
    for start in range(0, len(samples), step):
        part = np.require(samples[start : start + step], dtype, ["C", "A"])
        partial = empty(dtype, parts, len(part))
        function(DTYPES.index(dtype.name), parts, part.ctypes.data, len(part), partial.ctypes.data)
        total = partial if total is None else combine(total, place(partial, start))
    assert total is not None
    return total
