"""Counts of a histogram for verification: compiled, by other ways than `cpu.py` and `gpu.py`."""

from __future__ import annotations

import ctypes
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.compiled_check import MOST, CompiledCheck, PutTogether
from kernels.common.row_places import in_order
from kernels.histogram.bracket import bracket_of
from kernels.histogram.leaves import LEAVES, leaves_of

SOURCE = Path(__file__).with_suffix(".cpp")

# Numbered as in check.cpp.
TYPES = ("int32", "uint32", "int64", "uint64", "float32", "float64")
WAYS = ("values", "bracketed", "leaves")
TURNS = 4
# Tables that samples are counted in by turns, so that equal neighbours do not wait for each other, as long as all of
# them fit a cache: (counters at most, tables).
TABLES = ((2**13, 4), (2**16, 2))
TURNS_BYTES = 2**19  # of the tables of rows that take turns: half of a typical L2 cache
# Integers in bins that are whole numbers of cells: up to so many, cells are counted without looking at bounds.
MOST_CELLS = 2**13

_double, _word, _pointer = ctypes.c_double, ctypes.c_uint64, ctypes.c_void_p


class _Bracket(ctypes.Structure):
    _fields_ = (
        *((name, _double) for name in ("scale", "low", "high", "first", "last")), ("nan", _word), ("bounds", _pointer),
    )  # fmt: skip


class _Leaves(ctypes.Structure):
    _fields_ = (
        *((name, _word) for name in ("origin", "last", "nan", "shift")),
        *((name, _pointer) for name in ("first", "leaf_shift", "low", "high", "bounds")),
    )


class _Counting(ctypes.Structure):
    _fields_ = (
        ("way", _word), ("type", _word), ("what", _word), ("bracket", _Bracket), ("leaves", _Leaves),
        ("counters", _pointer), ("table", _word * TURNS), ("number", _word), ("counted", _word), ("most", _word),
        ("totals", _pointer), ("slot_of", _pointer), ("used", _word), ("stride", _word), ("slots", _word),
        ("rows", _word), ("start", ctypes.c_int64), ("turn", _word),
        *((name, _pointer) for name in ("begins", "ends", "of_rows")),
    )  # fmt: skip


class HistogramCheck(CompiledCheck):
    """Counts samples into bins.

    Parameters
    ----------
    plan
    rows
        That take turns, sample by sample.
    put_together
        What the partial is, of the counts of all rows.
    """

    def __init__(self, plan: Plan, rows: int = 1, put_together: PutTogether = lambda counts: counts[0]) -> None:
        self._plan, self._rows, self._put_together = plan, rows, put_together
        self._counting = _Counting.from_buffer_copy(plan.counting)
        if rows > 1:
            self._counting.rows, self._counting.number = rows, -(-TURNS // rows) * rows * self._counting.stride
        self._tables = np.zeros((3, self._counting.number), np.uint32)  # totals of 64 bits, then counters of 32
        self._counting.totals = self._tables.ctypes.data
        self._counting.counters = self._counting.totals + 8 * self._counting.number
        super().__init__(plan.function, ctypes.addressof(self._counting), plan.dtype, self._tables.nbytes)

    def in_turns(self, rows: int, put_together: PutTogether) -> HistogramCheck | None:
        tables = -(-TURNS // rows) * rows
        fits = 4 * tables * self._counting.stride <= TURNS_BYTES
        return HistogramCheck(self._plan, rows, put_together) if fits else None

    def count_from(self, start: int) -> bool:
        self._counting.start = start
        return True

    def partial(self) -> NDArray[np.int64]:
        """Counts so far.

        Returns
        -------
        int64 array, shape (bins + 3,)
            Underflow, the bins, overflow, NaN; of several rows, what is made of shape (rows, bins + 3).
        """
        slots = np.zeros((self._rows, self._plan.slots), np.int64)
        self._plan.collect(ctypes.addressof(self._counting), slots.ctypes.data)
        return self._put_together(slots)


def check_runs(
    plan: Plan, samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:  # fmt: skip
    """Counts of rows of samples in either byte order, each from its begin to its end, in any order.

    Returns
    -------
    int64 array, shape (rows, bins + 3)
    """
    slots = np.zeros((len(begins), plan.slots), np.int64)
    order, first, last = in_order(begins, ends)
    counting = _Counting.from_buffer_copy(plan.counting)
    counting.begins, counting.ends, counting.of_rows = first.ctypes.data, last.ctypes.data, slots.ctypes.data
    counting.rows = len(slots)
    native = np.require(samples, plan.dtype, ["C", "A"])
    plan.function.argtypes, plan.function.restype = (_pointer, _pointer, ctypes.c_size_t, ctypes.c_int64), None
    plan.function(ctypes.addressof(counting), native.ctypes.data, len(native), 0)
    return slots if order is None else slots[np.argsort(order)]


@dataclass(frozen=True)
class Plan:
    """How samples of a native dtype are counted into bins.

    Attributes
    ----------
    dtype
    slots
        Number of bins + 3.
    function, collect, counting
        Functions of check.cpp that count and add up, and their state, counters aside.
    arrays
        What the state points to.
    """

    dtype: np.dtype[Any]
    slots: int
    function: Any
    collect: Any
    counting: _Counting
    arrays: tuple[NDArray[Any], ...]


def plan(edges: NDArray[np.float64], dtype: np.dtype[Any]) -> Plan | None:
    """Plan the check of a histogram; None without a compiler.

    Parameters
    ----------
    edges : float64 array, shape (bins + 1,), strictly ascending
    dtype
        Any integer or float dtype, in native byte order.
    """
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    # Slot i ends before bounds[i]; the last bin includes its upper edge, so it ends before the next float64.
    with np.errstate(over="ignore"):
        bounds = np.append(edges[:-1], np.nextafter(edges[-1], np.inf))
    slots = np.arange(len(bounds) + 2)
    functions.collect_counts.argtypes, functions.collect_counts.restype = (_pointer, _pointer), None

    def planned(counting: _Counting, slot_of: NDArray[np.int64], arrays: tuple[NDArray[Any], ...] = ()) -> Plan:
        number = len(slot_of)
        tables = next((tables for most, tables in TABLES if number <= most), 1)
        stride = -(-number // 16) * 16 + 16  # not a multiple of 4 KiB: these would share cache sets
        counting.table[:] = [turn % tables * stride for turn in range(TURNS)]
        counting.number, counting.stride, counting.most = tables * stride, stride, MOST
        counting.slot_of, counting.used = slot_of.ctypes.data, number
        counting.slots, counting.rows = len(slots), 1
        return Plan(dtype, len(slots), functions.count_samples, functions.collect_counts, counting,
                    (slot_of, *arrays))  # fmt: skip

    if dtype.itemsize <= 2:
        return planned(_Counting(WAYS.index("values"), dtype.itemsize), _slots_of_values(bounds, dtype))
    single = bracket_of(bounds, np.float32) if dtype == np.float32 else None
    type_, bracket = TYPES.index(dtype.name), single or bracket_of(bounds)
    all_bounds = np.append(bounds, [np.nan, np.nan])  # overflow and NaN do not end
    whole_cells = dtype.kind != "f" and len(bounds) <= MOST_CELLS  # perhaps
    leaves = leaves_of(bounds, dtype) if bracket is None or whole_cells else None
    if bracket is not None and (leaves is None or leaves.what != LEAVES or len(leaves.low) > MOST_CELLS):
        line = _Bracket(*astuple(bracket), len(bounds) + 1, all_bounds.ctypes.data)
        return planned(_Counting(WAYS.index("bracketed"), type_, bool(single), line), slots, (all_bounds,))
    assert leaves is not None
    arrays = leaves.first, leaves.leaf_shift, leaves.low, leaves.high, all_bounds
    pointers = [array.ctypes.data if len(array) else None for array in arrays]
    cut = _Leaves(leaves.origin, leaves.last, leaves.nan, leaves.shift, *pointers)
    slot_of = leaves.low.astype(np.int64) if leaves.what == LEAVES else slots
    return planned(_Counting(WAYS.index("leaves"), type_, leaves.what, leaves=cut), slot_of, arrays)


def _slots_of_values(bounds: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.int64]:
    """Slot of each bit pattern of one or two bytes."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
        values = np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype).astype(np.float64)
    return np.where(np.isnan(values), len(bounds) + 1, np.searchsorted(bounds, values, side="right"))
