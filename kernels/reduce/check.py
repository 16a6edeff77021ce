"""Partials of reduce for verification: compiled, by other ways than `cpu.py` and `gpu.py`."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import cxx
from kernels.common.compiled_check import CompiledCheck
from kernels.reduce.partial import Partial, empty

SOURCE = Path(__file__).with_suffix(".cpp")


class ReduceCheck(CompiledCheck):
    """Reduces samples.

    Parameters
    ----------
    functions
        Those of check.cpp.
    dtype
        Any integer or float dtype.
    parts
        One of ``kernels.reduce.partial.PARTS``.
    """

    def __init__(self, functions: ctypes.CDLL, dtype: np.dtype[Any], parts: int) -> None:
        self._sums = np.zeros(_declared(functions), np.complex128)  # at a multiple of 16 bytes
        self._partial, self._functions, state = empty(dtype, parts, 0), functions, self._sums.ctypes.data
        functions.begin(state, self._partial.ctypes.data)
        super().__init__(functions.add_samples, state, dtype, self._sums.nbytes + self._partial.nbytes)

    def partial(self) -> Partial:
        """Partial so far."""
        self._functions.finish(self._state)
        return self._partial.copy()


@lru_cache(maxsize=2)
def _declared(functions: ctypes.CDLL) -> int:
    """16-byte units of a state; declares the types of the functions, which takes longer than 1024 samples."""
    functions.state_bytes.restype = ctypes.c_size_t
    functions.begin.argtypes, functions.begin.restype = (ctypes.c_void_p,) * 2, None
    functions.finish.argtypes, functions.finish.restype = (ctypes.c_void_p,), None
    units: int = -(-functions.state_bytes() // 16)
    return units


def reduce_check(dtype: np.dtype[Any], parts: int) -> ReduceCheck | None:
    """A check of samples of a dtype; None without a compiler."""
    functions = cxx.library(SOURCE)
    return None if functions is None else ReduceCheck(functions, dtype, parts)
