"""Which sums of windows are right, by the function of check.cpp."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx

SOURCE = Path(__file__).with_suffix(".cpp")

# As check.cpp numbers them.
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


def right_natively(x: NDArray[Any], found: NDArray[Any], width: int) -> NDArray[np.bool_] | None:
    """Which of the sums found are right; None where nothing can be compiled.

    Parameters
    ----------
    x : array of one of `TYPES`, shape (rows, length + width - 1)
    found : array of `kernels.stencil.windows.box_dtype`, shape (rows, length)
    width
        At least 1.

    Returns
    -------
    bool array, shape (rows, length)
        The others are wrong, or not known to be right: infinities that no sample is, and sums of samples that are so
        far apart that 128 bits do not hold them.
    """
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    right = np.empty(found.shape, np.bool_)
    if not found.size:
        return right
    x, found = (np.require(array, requirements=["C", "A"]) for array in (x, found))
    function, size, address = functions.right_sums, ctypes.c_size_t, ctypes.c_void_p
    function.argtypes, function.restype = (ctypes.c_int, address, address, size, size, size, address), None
    function(TYPES.index(x.dtype.name), x.ctypes.data, found.ctypes.data, *found.shape, width, right.ctypes.data)
    return right
