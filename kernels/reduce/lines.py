"""Partials of many rows as one array of int64, shape (rows, entries): a line for each.

A line has the entries of a partial, but of each sum only the words that samples of the dtype can reach; those above
repeat the sign, those below are zero.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import partial as layout
from kernels.reduce import powers
from kernels.reduce.exact_sum import SQUARE_BITS, SUM_BITS
from kernels.reduce.partial import FIRST_NAN, MAX_AT, MAX_KEY, MIN_AT, MIN_KEY, NOWHERE, POSITIONS, SAMPLES, Partial
from kernels.reduce.powers import CUBE_BITS, FOURTH_BITS, POWERS

Lines = NDArray[np.int64]
# Exponent of the lowest bit of a float, and of the power of two above all.
FLOATS = {"float16": (-24, 16), "float32": (-149, 128), "float64": (-1074, 1024)}
# Place in a partial and bits after the binary point of the sum of samples, squares, cubes and fourth powers.
SUMS = ((layout.SUM_AT, SUM_BITS), (layout.SQUARES_AT, SQUARE_BITS), (powers.CUBES_AT, CUBE_BITS),
        (powers.FOURTHS_AT, FOURTH_BITS))  # fmt: skip


@lru_cache
def windows(code: int, with_powers: bool) -> tuple[slice, ...]:
    """Of each sum, the entries in a partial that a line of a dtype has."""
    dtype = np.dtype(layout.DTYPES[code])
    lowest, highest = FLOATS.get(dtype.name, (0, 8 * dtype.itemsize))
    found = []
    for power, (at, bits) in enumerate(SUMS[: 4 if with_powers else 2], 1):
        first = (bits + power * lowest) // 64
        last = (bits + power * highest + 63) // 64 + 1  # 2**63 samples and a sign
        found.append(slice(at.start + first, min(at.start + last, at.stop)))
    return tuple(found)


@lru_cache
def entries(code: int, with_powers: bool) -> NDArray[np.int64]:
    """The entries in a partial that a line of a dtype has."""
    of_sums = [np.arange(window.start, window.stop) for window in windows(code, with_powers)]
    return np.concatenate([np.arange(layout.SUM_AT.start), *of_sums])


def columns(code: int, with_powers: bool) -> list[slice]:
    """The entries of a line that belong to each sum."""
    found, start = [], layout.SUM_AT.start
    for window in windows(code, with_powers):
        found.append(slice(start, start := start + window.stop - window.start))
    return found


def of_line(line: NDArray[np.int64]) -> tuple[int, bool]:
    """Code of the dtype of a line, and whether it has sums of powers."""
    return int(line[layout.CODE]), bool(line[layout.ASKED] & POWERS)


def to_line(partial: Partial) -> NDArray[np.int64]:
    """The line of a partial."""
    return partial[entries(*of_line(partial))]


def to_partial(line: NDArray[np.int64]) -> Partial:
    """The partial of a line."""
    kind = of_line(line)
    partial = np.zeros(powers.SIZE if kind[1] else layout.SIZE, np.int64)
    partial[entries(*kind)] = line
    for window, (at, _) in zip(windows(*kind), SUMS, strict=False):
        partial[window.stop : at.stop] = partial[window.stop - 1] >> 63
    return partial


def place(lines: Lines, starts: NDArray[np.int64]) -> Lines:
    """Add a start to the indices in all positions of each line, in place."""
    positions = lines[:, POSITIONS]
    positions += (positions != NOWHERE) * 2 * starts[:, None]
    return lines


def combine(a: Lines, b: Lines) -> Lines:
    """`kernels.reduce.powers.combine` of each line with its counterpart, at least one."""
    total = a.copy()
    total[:, SAMPLES:FIRST_NAN] += b[:, SAMPLES:FIRST_NAN]
    total[:, FIRST_NAN] = np.minimum(a[:, FIRST_NAN], b[:, FIRST_NAN])
    for key, at, sign in ((MIN_KEY, MIN_AT, 1), (MAX_KEY, MAX_AT, -1)):
        ours, theirs = (a[:, key], b[:, key]) if sign > 0 else (~a[:, key], ~b[:, key])
        other = (theirs < ours) | ((theirs == ours) & (b[:, at] < a[:, at]))
        total[other, key], total[other, at] = b[other, key], b[other, at]
    ours, theirs, sums = a.view(np.uint64), b.view(np.uint64), total.view(np.uint64)
    for window in columns(*of_line(a[0])):
        carry = np.zeros(len(a), np.uint64)
        for word in range(window.start, window.stop):
            part = theirs[:, word] + carry
            sums[:, word] = ours[:, word] + part
            carry = ((part < carry) | (sums[:, word] < part)).astype(np.uint64)
    return total


def made_by(
    function: Any, samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], parts: int,
    state: NDArray[Any] | None = None,
) -> Lines:  # fmt: skip
    """The lines that a function of C++ makes of rows, each from its begin to its end, in a state that it may need."""
    samples = np.require(samples, requirements=["C", "A"])
    begins, ends = (np.ascontiguousarray(places, np.int64) for places in (begins, ends))
    code = layout.DTYPES.index(samples.dtype.name)
    chosen = entries(code, bool(parts & POWERS))
    lines = np.empty((len(begins), len(chosen)), np.int64)
    pointer = ctypes.c_void_p
    function.argtypes = (ctypes.c_int, ctypes.c_int, pointer, ctypes.c_size_t, *(pointer,) * 3, ctypes.c_size_t,
                         *(pointer,) * 2)  # fmt: skip
    function.restype = None
    function(code, parts, samples.ctypes.data, len(begins), begins.ctypes.data, ends.ctypes.data, chosen.ctypes.data,
             len(chosen), lines.ctypes.data, None if state is None else state.ctypes.data)  # fmt: skip
    return lines
