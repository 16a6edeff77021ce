"""Results from the exact sums in lines, each rounded once, and whether the sums of each agree: by compiled C++."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernels.common import rounded
from kernels.reduce.lines import SUMS, Lines, columns, windows_of
from kernels.reduce.partial import CODE, DTYPES

OPERATIONS = "sum", "mean", "var", "std", "norm", "skewness", "kurtosis"


class _Place(ctypes.Structure):
    _fields_ = (("column", ctypes.c_int64), ("words", ctypes.c_int64), ("low", ctypes.c_int64))


class _Lines(ctypes.Structure):
    _fields_ = (("lines", ctypes.c_void_p), ("rows", ctypes.c_uint64), ("width", ctypes.c_uint64),
                ("kind", ctypes.c_uint64), ("sums", _Place * 4))  # fmt: skip


def _described(lines: Lines) -> _Lines:
    windows = windows_of(lines[0])
    places = [
        _Place(column.start, column.stop - column.start, first - bits // 64)
        for column, (first, _), (_, bits) in zip(columns(windows), windows, SUMS, strict=False)
    ]
    sample = rounded.kind_of(np.dtype(DTYPES[lines[0, CODE]]))
    return _Lines(lines.ctypes.data, len(lines), lines.shape[1], sample, (_Place * 4)(*places))


def finished(lines: Lines, names: Sequence[str], omit: bool, ddof: int) -> list[NDArray[np.float64]] | None:
    """The results of some of `OPERATIONS` on each line, at least one, as float64; None without a compiler.

    Parameters
    ----------
    lines
        With the parts that the operations need.
    names
    omit
        As if NaN were not there; else one makes results NaN.
    ddof
        Variances divide by the number of samples minus this.
    """
    functions = rounded.functions()
    if functions is None:
        return None
    numbers = np.array([OPERATIONS.index(name) for name in names], np.int64)
    results = np.empty((len(names), len(lines)))
    function = functions.finish_lines
    function.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    function.restype = None
    lines = np.ascontiguousarray(lines)
    described = _described(lines)
    function(ctypes.addressof(described), omit, ddof, numbers.ctypes.data, len(names), results.ctypes.data)
    return list(results)


def first_apart(lines: Lines) -> int | None:
    """The first line, of at least one, whose sums and extremes cannot be of the same samples, or their number; None
    without a compiler."""
    functions = rounded.functions()
    if functions is None:
        return None
    functions.first_apart.argtypes, functions.first_apart.restype = (ctypes.c_void_p,), ctypes.c_uint64
    lines = np.ascontiguousarray(lines)
    described = _described(lines)
    return int(functions.first_apart(ctypes.addressof(described)))
