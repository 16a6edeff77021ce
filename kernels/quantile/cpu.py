"""Counts keys of samples on the CPU: by the functions of `cpu.cpp`, or by NumPy where there is no compiler."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.quantile.cells import Cells, combined, gathered
from kernels.quantile.keys import nan_key, to_keys

SOURCE = Path(__file__).with_suffix(".cpp")

# As cpu.cpp numbers them.
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
MOST = 2**31  # samples of a call: counters have 32 bits
TABLES = ((2**12, 8), (2**14, 4))  # counters at most, tables of them to count in by turns; of more there are 2
FEW_KEYS = 12  # up to so many, comparing with each takes less time than searching
NUMPY_BYTES = 2**20  # samples that NumPy counts at a time

Counts = NDArray[np.int64]

_pointer, _word = ctypes.c_void_p, ctypes.c_uint64
_TABLES = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Cells(ctypes.Structure):
    _fields_ = (("starts", _pointer), ("step", _word), ("number", _word), ("firsts", _pointer), ("sizes", _pointer),
                ("shifts", _pointer), ("bases", _pointer))  # fmt: skip


class _Tables:
    """Tables to count in."""

    def __init__(self, slots: int) -> None:
        number = next((number for most, number in TABLES if slots <= most), 2)
        # Not a multiple of 4 KiB apart, or the counters of a slot would share a cache set.
        stride = -(-slots // 16) * 16 + 16
        self._slots, self._counters = slots, np.zeros((number, stride), np.uint32)
        self.arguments = self._counters.ctypes.data, stride, number

    def sums(self) -> Counts:
        counts: Counts = self._counters[:, : self._slots].sum(axis=0, dtype=np.int64)
        return counts


def count_cells(samples: NDArray[Any], cells: Cells) -> Counts:
    """Count samples in the slots of cells, or gather their keys.

    Parameters
    ----------
    samples : array of any integer or float dtype, native byte order, shape (n,), n >= 1
    cells
        Of keys of this size.

    Returns
    -------
    int64 array, shape (cells.size,)
        As `kernels.quantile.cells.Cells` describes it.
    """
    total: Counts | None = None
    for start in range(0, len(samples), MOST):
        part = samples[start : start + MOST]
        counts = _count_compiled(part, cells)
        if counts is None:
            return count_cells_numpy(samples, cells)
        total = counts if total is None else combined(total, counts)
    assert total is not None
    return total


def _count_compiled(samples: NDArray[Any], cells: Cells) -> Counts | None:
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    samples = np.require(samples, requirements=["C", "A"])
    tables = _Tables(1 if cells.gathered else cells.slots)
    where = TYPES.index(samples.dtype.name), samples.ctypes.data, len(samples)
    if cells.everything:
        functions.count_top.argtypes = (ctypes.c_int, _pointer, ctypes.c_size_t, ctypes.c_int, *_TABLES)
        functions.count_top.restype = None
        functions.count_top(*where, int(cells.shifts[0]), *tables.arguments)
    else:
        lookup = cells.lookup
        arrays = [array.ctypes.data for array in (lookup.firsts, lookup.sizes, lookup.shifts, lookup.bases)]
        described = _Cells(lookup.starts.ctypes.data, lookup.step, len(cells.firsts), *arrays)
        keys = np.empty(min(cells.gathered, len(samples)), f"u{samples.itemsize}")
        functions.count_cells.argtypes = (ctypes.c_int, _pointer, ctypes.c_size_t, ctypes.POINTER(_Cells), _pointer,
                                          ctypes.c_size_t, *_TABLES)  # fmt: skip
        functions.count_cells.restype = ctypes.c_size_t
        number = functions.count_cells(*where, ctypes.byref(described), keys.ctypes.data if cells.gathered else None,
                                       len(keys), *tables.arguments)  # fmt: skip
        if cells.gathered:
            return gathered(keys[:number], cells.size, number)
    return tables.sums()


def count_cells_numpy(samples: NDArray[Any], cells: Cells) -> Counts:
    """Count samples as `count_cells` does, by NumPy."""
    total = gathered(np.empty(0, np.uint64), cells.size, 0) if cells.gathered else np.zeros(cells.size, np.int64)
    step = NUMPY_BYTES // samples.itemsize
    for start in range(0, len(samples), step):
        keys = to_keys(samples[start : start + step]).astype(np.uint64)
        cell = np.searchsorted(cells.firsts, keys, "right") - 1
        keys, cell = keys[cell >= 0], cell[cell >= 0]
        offsets = keys - cells.firsts[cell]
        inside = offsets >> np.minimum(cells.bits[cell], np.uint64(63)) == 0
        inside |= cells.everything
        if cells.gathered:
            total = combined(total, gathered(keys[inside], cells.size, int(inside.sum())))
            continue
        offsets, cell = offsets[inside], cell[inside]
        slots = (cell << cells.slot_bits) + (offsets >> cells.shifts[cell]).astype(np.int64)
        total += np.bincount(slots, minlength=cells.slots)
    return total


def count_around(samples: NDArray[Any], keys: NDArray[Any]) -> Counts:
    """Count samples below, between, above, and equal to given keys, and NaN.

    Parameters
    ----------
    samples : array of any integer or float dtype of 32 or 64 bits, native byte order, shape (n,), n >= 1
    keys : array of unsigned integers of that size, ascending, shape (m,)
        None of them is that of NaN.

    Returns
    -------
    int64 array, shape (2 m + 2,)
        Below the first key, equal to it, between it and the second one, …, above the last one, NaN.
    """
    total = np.zeros(2 * len(keys) + 2, np.int64)
    for start in range(0, len(samples), MOST):
        part = samples[start : start + MOST]
        if not _count_around_compiled(part, keys, total):
            return count_around_numpy(samples, keys)
    return total


def _count_around_compiled(samples: NDArray[Any], keys: NDArray[Any], total: Counts) -> bool:
    functions = cxx.library(SOURCE)
    if functions is None:
        return False
    samples, keys = (np.require(array, requirements=["C", "A"]) for array in (samples, keys))
    few = len(keys) <= FEW_KEYS
    tables = _Tables(1 if few else len(total))
    functions.count_around.argtypes = (ctypes.c_int, _pointer, ctypes.c_size_t, _pointer, ctypes.c_size_t, _pointer,
                                       *_TABLES)  # fmt: skip
    functions.count_around.restype = None
    functions.count_around(TYPES.index(samples.dtype.name), samples.ctypes.data, len(samples), keys.ctypes.data,
                           len(keys), total.ctypes.data if few else None, *tables.arguments)  # fmt: skip
    if not few:
        total += tables.sums()
    return True


def count_around_numpy(samples: NDArray[Any], keys: NDArray[Any]) -> Counts:
    """Count samples as `count_around` does, by NumPy."""
    total = np.zeros(2 * len(keys) + 2, np.int64)
    step = NUMPY_BYTES // samples.itemsize
    nan = nan_key(samples.dtype)
    for start in range(0, len(samples), step):
        of_samples = to_keys(samples[start : start + step])
        less, upto = (np.searchsorted(keys, of_samples, side) for side in ("left", "right"))
        slots = less + upto  # 2 j between keys, 2 j + 1 on key j
        if nan is not None:
            slots += of_samples == nan
        total += np.bincount(slots, minlength=len(total))
    return total
