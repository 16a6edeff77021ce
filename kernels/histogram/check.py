"""Counts of a histogram for verification: compiled, by another way than `cpu.py` and `gpu.py`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.histogram.leaves import LEAVES, Leaves, leaves_of
from kernels.histogram.reference import histogram_reference

SOURCE = Path(__file__).with_suffix(".cpp")

# Numbered as in check.cpp.
TYPES = ("int32", "uint32", "int64", "uint64", "float32", "float64")
MOST = 2**31  # samples of a call: counters have 32 bits
COPIED = 2**17  # samples at a time of an array that is swapped, unaligned or has gaps
# Tables that samples are counted in by turns, so that equal neighbours do not wait for each other, as long as all of
# them fit the cache: (counters at most, tables).
TABLES = ((2**13, 4), (2**15, 2))


class _Leaves(ctypes.Structure):
    """As check.cpp declares it."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("origin", "last", "nan", "shift")),
        *((name, ctypes.c_void_p) for name in ("cells", "low", "high", "bounds", "counters")),
        ("table", ctypes.c_uint64 * 4),
    )


def histogram_check(samples: NDArray[Any], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Counts of samples; without a compiler those of the reference.

    Parameters
    ----------
    samples : array of any integer or float dtype in either byte order, shape (n,)
    edges : float64 array, shape (bins + 1,), strictly ascending

    Returns
    -------
    int64 array, shape (bins + 3,)
        Underflow, the bins, overflow, NaN.
    """
    functions = cxx.library(SOURCE)
    dtype = samples.dtype.newbyteorder("=")
    if functions is None or dtype.itemsize <= 2:
        return histogram_reference(samples, edges)
    leaves = leaves_of(edges.tobytes(), dtype)
    counts = _count(functions, samples, dtype, leaves)
    slots = len(edges) + 2
    if leaves.what != LEAVES:
        return counts[:slots]
    total = np.zeros(slots, np.int64)
    np.add.at(total, leaves.low, counts)
    return total


def _count(
    functions: ctypes.CDLL, samples: NDArray[Any], dtype: np.dtype[Any], leaves: Leaves
) -> NDArray[np.int64]:
    """How often each leaf, or each slot, is hit."""
    number = len(leaves.low) if leaves.what == LEAVES else len(leaves.bounds)
    tables = next((tables for most, tables in TABLES if number <= most), 1)
    stride = -(-number // 16) * 16 + 16  # not a multiple of 4 KiB: these would share cache sets
    counters = np.zeros((tables, stride), np.uint32)
    argument = _Leaves(
        leaves.origin, leaves.last, leaves.nan, leaves.shift,
        leaves.cells.ctypes.data if len(leaves.cells) else None, leaves.low.ctypes.data, leaves.high.ctypes.data,
        leaves.bounds.ctypes.data, counters.ctypes.data, tuple(turn % tables * stride for turn in range(4)),
    )  # fmt: skip
    function, integer = functions.count_leaves, ctypes.c_int
    function.argtypes = (integer, integer, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(_Leaves))
    function.restype = None
    whole = samples.dtype == dtype and samples.flags.c_contiguous and samples.flags.aligned
    total = np.zeros(number, np.int64)
    for start in range(0, len(samples), MOST):
        many = samples[start : start + MOST]
        for at in range(0, len(many), MOST if whole else COPIED):
            part = np.require(many if whole else many[at : at + COPIED], dtype, ["C", "A"])
            function(TYPES.index(dtype.name), leaves.what, part.ctypes.data, len(part), ctypes.byref(argument))
        total += counters.sum(axis=0, dtype=np.int64)[:number]
        counters[:] = 0
    return total
