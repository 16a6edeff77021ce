"""Partials of reduce on the CPU: by compiled C++, or by NumPy where there is no compiler."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.reduce import exact_sum
from kernels.reduce.exact_sum import SQUARE_WORDS, STEP, SUM_WORDS
from kernels.reduce.partial import (
    DTYPES,
    EXTREMES,
    FIRST_NAN,
    MAX_AT,
    MAX_KEY,
    MIN_AT,
    MIN_KEY,
    NAN,
    NEGATIVE,
    NOWHERE,
    POSITIVE,
    SQUARES,
    SQUARES_AT,
    SUM,
    SUM_AT,
    Partial,
    combine,
    empty,
    place,
    to_key,
)

SOURCE = Path(__file__).with_suffix(".cpp")

MOST = 2**29  # samples of a call: the digit counters of cpu.cpp hold the sums of so many


def reduce_cpu(samples: NDArray[Any], parts: int) -> Partial:
    """Partial of samples on the CPU: by a compiled function, or by NumPy where there is no compiler.

    Parameters
    ----------
    samples : array of any integer or float dtype, native byte order, shape (n,), n >= 1
    parts
        One of PARTS: what to compute; the rest stays empty.
    """
    total: Partial | None = None
    for start in range(0, len(samples), MOST):
        part = samples[start : start + MOST]
        partial = empty(samples.dtype, parts, len(part))
        if not _fill_compiled(partial, part, parts):
            return reduce_numpy(samples, parts)
        total = partial if total is None else combine(total, place(partial, start))
    assert total is not None
    return total


def reduce_numpy(samples: NDArray[Any], parts: int) -> Partial:
    """Partial of samples as of `reduce_cpu`, by NumPy, a cache-sized step at a time."""
    partial = empty(samples.dtype, parts, len(samples))
    total = squares = 0
    for start in range(0, len(samples), STEP):
        values = samples[start : start + STEP]
        if values.dtype.kind == "f":
            # A NaN or an infinity makes the sum nonfinite. So does overflow; then neither is present.
            with np.errstate(over="ignore", invalid="ignore"):
                wide = values.astype(np.float64)
                regular = np.isfinite(wide.sum())
            if not regular:
                _count_special(partial, wide, start, parts)
                finite = np.isfinite(wide)
            if parts & SUM:
                wide = wide if regular else wide[finite]
                total += exact_sum.sum_floats(wide)
                if parts & SQUARES:
                    squares += exact_sum.sum_squares_of_floats(wide, values.itemsize < 8)
        elif parts & SUM:
            total += exact_sum.sum_integers(values) << exact_sum.SUM_BITS
            if parts & SQUARES:
                squares += exact_sum.sum_squares_of_integers(values) << exact_sum.SQUARE_BITS
    if parts & EXTREMES:
        _find_extremes(partial, samples)
    partial[SUM_AT] = exact_sum.to_words(total, SUM_WORDS)
    partial[SQUARES_AT] = exact_sum.to_words(squares, SQUARE_WORDS)
    return partial


def _count_special(partial: Partial, values: NDArray[np.float64], start: int, parts: int) -> None:
    nan = np.isnan(values)
    partial[[NAN, POSITIVE, NEGATIVE]] += [np.count_nonzero(x) for x in (nan, values == np.inf, values == -np.inf)]
    if parts & EXTREMES and partial[FIRST_NAN] == NOWHERE and nan.any():
        partial[FIRST_NAN] = 2 * (start + int(nan.argmax()))


def _find_extremes(partial: Partial, samples: NDArray[Any]) -> None:
    """The first of the least and of the greatest samples; NaN is neither."""
    numbers: NDArray[Any] | None = None
    if partial[NAN]:
        numbers = np.flatnonzero(~np.isnan(samples))
        if not len(numbers):
            return
        samples = samples[numbers]
    if samples.dtype == np.float16:
        samples = samples.astype(np.float32)  # NumPy compares float32 ten times as fast
    for find, at, key in ((np.argmin, MIN_AT, MIN_KEY), (np.argmax, MAX_AT, MAX_KEY)):
        first = int(find(samples))
        value = samples[first]
        partial[key] = to_key(value, samples.dtype)
        index = first if numbers is None else int(numbers[first])
        partial[at] = 2 * index + bool(samples.dtype.kind == "f" and value == 0 and np.signbit(value))


def _fill_compiled(partial: Partial, samples: NDArray[Any], parts: int) -> bool:
    """Fill the empty partial of at most MOST samples by `cpu.cpp`; False where there is no compiler."""
    functions = cxx.library(SOURCE)
    if functions is None:
        return False
    samples = np.require(samples, requirements=["C", "A"])
    function = functions.reduce_samples
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    function.restype = None
    function(DTYPES.index(samples.dtype.name), parts, samples.ctypes.data, len(samples), partial.ctypes.data)
    return True
