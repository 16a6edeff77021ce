"""Finite minimum and maximum for verification: compiled, by another way than `finite_range.py`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.compiled_check import CompiledCheck

SOURCE = Path(__file__).with_suffix(".cpp")

# Numbered as in check_range.cpp.
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
HALF_INFINITE = 0x7C00  # as check_range.cpp orders float16


class _State(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint64), ("range", ctypes.c_void_p))


class FiniteRangeCheck(CompiledCheck):
    """Finds the finite minimum and maximum of samples.

    Parameters
    ----------
    functions
        Those of check_range.cpp.
    dtype
        Any integer or float dtype.
    """

    def __init__(self, functions: ctypes.CDLL, dtype: np.dtype[Any]) -> None:
        if dtype == np.float16:
            ends = np.array([HALF_INFINITE, -HALF_INFINITE], np.int16)
        elif dtype.kind == "f":
            ends = np.array([np.inf, -np.inf], dtype.newbyteorder("="))
        else:
            ends = np.array([np.iinfo(dtype).max, np.iinfo(dtype).min], dtype.newbyteorder("="))
        self._ends, self._range = ends, _State(TYPES.index(dtype.name), ends.ctypes.data)
        super().__init__(functions.widen_range, ctypes.addressof(self._range), dtype, ends.nbytes)

    def partial(self) -> NDArray[np.float64]:
        """Finite minimum and maximum so far; float64 array, shape (2,), (inf, -inf) if no sample is finite."""
        ends = self._ends
        if self._dtype == np.float16:  # magnitudes with a sign, as float16 stores them
            ends = (np.abs(ends) | np.where(ends < 0, np.int16(-(2**15)), np.int16(0))).view(np.float16)
        return ends.astype(np.float64)


def finite_range_check(dtype: np.dtype[Any]) -> FiniteRangeCheck | None:
    """A check of samples of a dtype; None without a compiler."""
    functions = cxx.library(SOURCE)
    return None if functions is None else FiniteRangeCheck(functions, dtype)
