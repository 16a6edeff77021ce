"""Which sums of windows are right, by check.cpp."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx

SOURCE = Path(__file__).with_suffix(".cpp")

# Numbered as in check.cpp.
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


def right_sums(x: NDArray[Any], sums: NDArray[Any], width: int) -> NDArray[np.bool_] | None:
    """Which of these sums are right; None on a machine without a C++ compiler.

    Parameters
    ----------
    x : array of one of `TYPES`, shape (rows, length + width - 1)
    sums : array of `kernels.stencil.windows.box_dtype`, shape (rows, length)
    width
        At least 1.

    Returns
    -------
    bool array, shape (rows, length)
    """
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    right = np.empty(sums.shape, np.bool_)
    if not sums.size:
        return right
    x, sums = (np.require(array, requirements=["C", "A"]) for array in (x, sums))
    function, size, address = functions.right_sums, ctypes.c_size_t, ctypes.c_void_p
    function.argtypes, function.restype = (ctypes.c_int, address, address, size, size, size, address), None
    function(TYPES.index(x.dtype.name), x.ctypes.data, sums.ctypes.data, *sums.shape, width, right.ctypes.data)
    return right
