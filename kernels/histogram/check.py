"""Counts of a histogram for verification: compiled, by other ways than `cpu.py` and `gpu.py`."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.histogram.bracket import bracket_of
from kernels.histogram.leaves import LEAVES, leaves_of
from kernels.histogram.reference import histogram_reference

SOURCE = Path(__file__).with_suffix(".cpp")

# Numbered as in check.cpp.
TYPES = ("int32", "uint32", "int64", "uint64", "float32", "float64")
MOST = 2**31  # samples of a call: counters have 32 bits
COPIED = 2**17  # samples at a time of an array that is swapped, unaligned or has gaps
TURNS = 4
# Tables that samples are counted in by turns, so that equal neighbours do not wait for each other, as long as all of
# them fit a cache: (counters at most, tables).
TABLES = ((2**13, 4), (2**16, 2))
# Integers in bins that are whole numbers of cells: up to so many, cells are counted without looking at bounds.
MOST_CELLS = 2**13

_double, _word, _pointer = ctypes.c_double, ctypes.c_uint64, ctypes.c_void_p


class _Counters(ctypes.Structure):
    _fields_ = (("counters", _pointer), ("table", _word * TURNS))


class _Bracket(ctypes.Structure):
    _fields_ = (*((name, _double) for name in ("scale", "low", "high", "top")), ("bounds", _pointer))


class _Leaves(ctypes.Structure):
    _fields_ = (
        *((name, _word) for name in ("origin", "last", "nan", "shift")),
        *((name, _pointer) for name in ("first", "leaf_shift", "low", "high", "bounds")),
    )


class HistogramCheck:
    """Counts samples of a dtype into the same bins, again and again.

    Parameters
    ----------
    edges : float64 array, shape (bins + 1,), strictly ascending
    dtype
        Any integer or float dtype, in native byte order.
    """

    def __init__(self, edges: NDArray[np.float64], dtype: np.dtype[Any]) -> None:
        self._edges, self._dtype = edges, dtype
        functions = cxx.library(SOURCE)
        self._plan = None if functions is None else _plan(functions, edges, dtype)

    def __call__(self, samples: NDArray[Any]) -> NDArray[np.int64]:
        """Counts of samples in either byte order, shape (n,); without a compiler those of the reference.

        Returns
        -------
        int64 array, shape (bins + 3,)
            Underflow, the bins, overflow, NaN.
        """
        return histogram_reference(samples, self._edges) if self._plan is None else self._slots(self._plan, samples)

    def _slots(self, plan: _Plan, samples: NDArray[Any]) -> NDArray[np.int64]:
        number = len(plan.slot_of)
        tables = next((tables for most, tables in TABLES if number <= most), 1)
        stride = -(-number // 16) * 16 + 16  # not a multiple of 4 KiB: these would share cache sets
        counters = np.zeros((tables, stride), np.uint32)
        to = _Counters(counters.ctypes.data, tuple(turn % tables * stride for turn in range(TURNS)))
        whole = samples.dtype == self._dtype and samples.flags.c_contiguous and samples.flags.aligned
        slots = np.zeros(len(self._edges) + 2, np.int64)
        for start in range(0, len(samples), MOST):
            many = samples[start : start + MOST]
            for at in range(0, len(many), MOST if whole else COPIED):
                part = np.require(many if whole else many[at : at + COPIED], self._dtype, ["C", "A"])
                plan.function(*plan.before, part.ctypes.data, len(part), *plan.after, ctypes.byref(to))
            counts = counters.sum(axis=0, dtype=np.int64)[:number]
            if plan.counts_slots:
                slots += counts
            else:
                np.add.at(slots, plan.slot_of, counts)
            counters[:] = 0
        return slots


@dataclass(frozen=True)
class _Plan:
    """A function of check.cpp, its arguments before and after the samples, and the arrays that these point to.

    `slot_of`, int64 array, shape (counters,), has the slot of each of its counters; `counts_slots`: its own number.
    """

    function: Any
    before: tuple[int, ...]
    after: tuple[Any, ...]
    slot_of: NDArray[np.int64]
    arrays: tuple[NDArray[Any], ...] = ()
    counts_slots: bool = False


def _plan(functions: ctypes.CDLL, edges: NDArray[np.float64], dtype: np.dtype[Any]) -> _Plan:
    # Slot i ends before bounds[i]; the last bin includes its upper edge, so it ends before the next float64.
    with np.errstate(over="ignore"):
        bounds = np.append(edges[:-1], np.nextafter(edges[-1], np.inf))
    slots = np.arange(len(bounds) + 2)
    if dtype.itemsize <= 2:
        return _typed(_Plan(functions.count_values, (dtype.itemsize,), (), _slots_of_values(bounds, dtype)))
    type_, bracket = TYPES.index(dtype.name), bracket_of(bounds)
    all_bounds = np.append(bounds, [np.nan, np.nan])  # overflow and NaN do not end
    whole_cells = dtype.kind != "f" and len(bounds) <= MOST_CELLS  # perhaps
    leaves = leaves_of(bounds, dtype) if bracket is None or whole_cells else None
    if bracket is not None and (leaves is None or leaves.what != LEAVES or len(leaves.low) > MOST_CELLS):
        line = _Bracket(bracket.scale, bracket.low, bracket.high, len(bounds), all_bounds.ctypes.data)
        return _typed(_Plan(functions.count_bracketed, (type_,), (line,), slots, (all_bounds,), True))
    assert leaves is not None
    arrays = leaves.first, leaves.leaf_shift, leaves.low, leaves.high, all_bounds
    pointers = [array.ctypes.data if len(array) else None for array in arrays]
    cut = _Leaves(leaves.origin, leaves.last, leaves.nan, leaves.shift, *pointers)
    in_slots = leaves.what != LEAVES
    slot_of = slots if in_slots else leaves.low.astype(np.int64)
    return _typed(_Plan(functions.count_leaves, (type_, leaves.what), (cut,), slot_of, arrays, in_slots))


def _typed(plan: _Plan) -> _Plan:
    """The plan, its function told the types of its arguments."""
    after = [ctypes.POINTER(type(argument)) for argument in (*plan.after, _Counters())]
    plan.function.argtypes = (*[ctypes.c_int] * len(plan.before), _pointer, ctypes.c_size_t, *after)
    plan.function.restype = None
    return plan


def _slots_of_values(bounds: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.int64]:
    """Slot of each bit pattern of one or two bytes."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
        values = np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype).astype(np.float64)
    return np.where(np.isnan(values), len(bounds) + 1, np.searchsorted(bounds, values, side="right"))
