"""Sums of windows of floats by the functions of cpu.cpp."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx

SOURCE = Path(__file__).with_name("cpu.cpp")

TYPES = ("float32", "float64")


def sum_natively(x: NDArray[Any], width: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
    """Sum of each `width` consecutive numbers of a row, exact and rounded once; None where nothing can be compiled.

    Parameters
    ----------
    x : array of one of `TYPES`, shape (rows, length), length >= width >= 1
    width
        At most 2**31.

    Returns
    -------
    sums : float64 array, shape (rows, length - width + 1)
    done : bool array, shape (rows,)
        Which rows of sums there are. Others have infinities, NaN, or numbers too far apart.
    """
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    x = np.require(x, requirements=["C", "A"])
    sums, done = np.empty((len(x), x.shape[1] - width + 1)), np.empty(len(x), np.bool_)
    function, size, address = getattr(functions, f"sum_{x.dtype.name}"), ctypes.c_size_t, ctypes.c_void_p
    function.argtypes, function.restype = (address, size, size, size, address, address), None
    function(x.ctypes.data, *sums.shape, width, sums.ctypes.data, done.ctypes.data)
    return sums, done
