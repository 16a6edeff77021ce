"""Counts of samples around values for verification: compiled, by other ways than `cpu.py` and `gpu.py`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.compiled_check import CompiledCheck

SOURCE = Path(__file__).with_suffix(".cpp")

TYPES = ("int32", "uint32", "int64", "uint64", "float32", "float64")  # numbered as in check.cpp, after the patterns


class _State(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint64), ("number", ctypes.c_uint64), ("values", ctypes.c_void_p),
                ("counts", ctypes.c_void_p))  # fmt: skip


class AroundCheck(CompiledCheck):
    """Counts samples of 32 or 64 bits below, between, above and equal to values, and NaN.

    Parameters
    ----------
    functions
        Those of check.cpp.
    values : array of the samples' dtype, ascending, without NaN
    """

    def __init__(self, functions: ctypes.CDLL, values: NDArray[Any]) -> None:
        self._values, self._counts = np.ascontiguousarray(values), np.zeros(2 * len(values) + 2, np.int64)
        type_ = 2 + TYPES.index(values.dtype.name)
        self._around = _State(type_, len(values), self._values.ctypes.data, self._counts.ctypes.data)
        nbytes = self._values.nbytes + self._counts.nbytes
        super().__init__(functions.add_samples, ctypes.addressof(self._around), values.dtype, nbytes)

    def partial(self) -> NDArray[np.int64]:
        """Counts so far: as of `kernels.quantile.cpu.count_around`."""
        return self._counts.copy()


class PatternsCheck(CompiledCheck):
    """Counts samples of 8 or 16 bits by their values.

    Parameters
    ----------
    functions
        Those of check.cpp.
    dtype
    gathered
        As of `kernels.quantile.cells.Cells`.
    """

    def __init__(self, functions: ctypes.CDLL, dtype: np.dtype[Any], gathered: int = 0) -> None:
        self._gathered = gathered
        self._counts = np.zeros((2, 256**dtype.itemsize), np.int64)
        self._patterns = _State(dtype.itemsize - 1, 0, None, self._counts.ctypes.data)
        super().__init__(functions.add_samples, ctypes.addressof(self._patterns), dtype, self._counts.nbytes)

    def partial(self) -> NDArray[np.int64]:
        """Counts so far, in the order of the values, or the keys, as of `kernels.quantile.cpu.count_cells`."""
        patterns = np.arange(self._counts.shape[1])
        slots, half = patterns, len(patterns) // 2
        if self._dtype.kind == "i":
            slots = np.where(patterns < half, patterns + half, patterns - half)
        elif self._dtype.kind == "f":
            slots = np.where(patterns < half, half + patterns, 2 * half - patterns)  # both zeros: half
            slots[np.isnan(patterns.astype(np.uint16).view(np.float16))] = 2 * half - 1
        counts = np.zeros(len(patterns), np.int64)
        np.add.at(counts, slots, self._counts.sum(axis=0))
        if not self._gathered:
            return counts
        partial = np.full(1 + self._gathered, -1, np.int64)
        partial[0] -= counts.sum()
        keys = np.repeat(patterns, counts)[: self._gathered]
        partial[1 : 1 + len(keys)] = keys
        return partial


def around_check(values: NDArray[Any]) -> AroundCheck | None:
    """A check of samples of the values' dtype; None without a compiler."""
    functions = cxx.library(SOURCE)
    return None if functions is None else AroundCheck(functions, values)


def patterns_check(dtype: np.dtype[Any], gathered: int = 0) -> PatternsCheck | None:
    """A check of samples of a dtype of 8 or 16 bits; None without a compiler."""
    functions = cxx.library(SOURCE)
    return None if functions is None else PatternsCheck(functions, dtype, gathered)
