"""Sums of sliding windows on the CPU: floats by cpu.cpp, everything else, and all without a compiler, by NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.stencil.cpu_exact import exact_sums, window_sums
from kernels.stencil.windows import Weights, extended, weighted_dtype

SOURCE = Path(__file__).with_suffix(".cpp")

STEP = 2**15  # elements computed at a time: few enough for the cache of a core
_LOW_HALF = 2**32 - 1


def box_cpu(x: NDArray[Any], radius: int, before: int = 0, after: int = 0, outside: str = "zero") -> NDArray[Any]:
    """Sums of all windows that lie within a row and its boundary.

    Parameters
    ----------
    x : array of integers or floats, shape (rows, length)
    radius
    before, after
        Number of boundary elements before the first and after the last element of a row; at most `length` for
        ``"reflect"``.
    outside
        What these elements are, one of `OUTSIDE`.

    Returns
    -------
    array of `box_dtype`, shape (rows, before + length + after - 2 * radius)

    Raises
    ------
    OverflowError
        If a sum of int64 or uint64 does not fit. (Sums of narrower integers fit for any radius below 2**30.)
    """
    width = 2 * radius + 1
    x = extended(x, before, after, outside)
    if x.dtype.kind == "f":
        return _float_sums(x, width)
    if x.dtype.itemsize == 8:
        return _in_steps(x, width, x.dtype, lambda part: _long_sums(part, width))
    return _in_steps(x, width, np.dtype(np.int64), lambda part: window_sums(part, width))


def weighted_cpu(
    x: NDArray[Any], weights: Weights, before: int = 0, after: int = 0, outside: str = "zero"
) -> NDArray[Any]:
    """Weighted sums of the windows of `box_cpu`: weight k times the element k places after the first of a window.

    Parameters
    ----------
    x, before, after, outside
        As for `box_cpu`.
    weights : array of floats, shape (2 * radius + 1,)

    Returns
    -------
    array of `weighted_dtype`, shape (rows, before + length + after - 2 * radius)
        Elements and weights are converted to this dtype first. Every NaN has the same bits.
    """
    x = extended(x, before, after, outside)
    dtype = weighted_dtype(x.dtype, weights.dtype)
    factors = list(weights.astype(dtype))

    def sums(part: NDArray[Any]) -> NDArray[Any]:
        part = part.astype(dtype, copy=False)
        length = part.shape[1] - len(factors) + 1
        with np.errstate(all="ignore"):
            total: NDArray[Any] = part[:, :length] * factors[0]
            product = np.empty_like(total)
            for k, factor in enumerate(factors[1:], 1):
                total += np.multiply(part[:, k : k + length], factor, out=product)
        total[np.isnan(total)] = np.nan
        return total

    return _in_steps(x, len(factors), dtype, sums)


def compiled_sums(x: NDArray[Any], width: int) -> NDArray[np.float64] | None:
    """Sum of each `width` consecutive floats of a row, exact and rounded once, by cpu.cpp.

    Parameters
    ----------
    x : array of floats, shape (rows, length), length >= width >= 1
    width
        At most 2**31.

    Returns
    -------
    float64 array, shape (rows, length - width + 1)
        As of `kernels.stencil.cpu_exact.exact_sums`.
    None
        On a machine without a C++ compiler.
    """
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        x = np.require(x, np.float64 if x.dtype == np.float64 else np.float32, ["C", "A"])
    sums = np.empty((len(x), x.shape[1] - width + 1))
    function, size, address = getattr(functions, f"sum_{x.dtype.name}"), ctypes.c_size_t, ctypes.c_void_p
    function.argtypes, function.restype = (address, size, size, size, address), None
    function(x.ctypes.data, *sums.shape, width, sums.ctypes.data)
    return sums


def _float_sums(x: NDArray[Any], width: int) -> NDArray[np.float64]:
    sums = compiled_sums(x, width)
    if sums is not None:
        return sums
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return _in_steps(x, width, np.dtype(np.float64), lambda part: exact_sums(part.astype(np.float64), width))


def _long_sums(x: NDArray[Any], width: int) -> NDArray[Any]:
    """Sums of 64-bit integers from those of their 32-bit halves, which cannot overflow."""
    low = window_sums(x & x.dtype.type(_LOW_HALF), width)
    high = window_sums(x >> x.dtype.type(32), width)
    high += low >> 32
    low &= _LOW_HALF
    limits = np.iinfo(x.dtype)
    overflows = (high < limits.min >> 32) | (high > limits.max >> 32)
    if overflows.any():
        first = tuple(np.argwhere(overflows)[0])
        value = (int(high[first]) << 32) + int(low[first])
        raise OverflowError(f"expected sums that fit into {x.dtype.name}, got {value}; choose a smaller radius")
    return (high << 32 | low).view(x.dtype)


def _in_steps(
    x: NDArray[Any], width: int, dtype: np.dtype[Any], sums: Callable[[NDArray[Any]], NDArray[Any]]
) -> NDArray[Any]:
    """Several rows at a time, or part of one: at least four windows long, so that halos hardly matter."""
    rows, length = x.shape
    out = np.empty((rows, length - width + 1), dtype)
    for these, (start, stop) in _steps(rows, length - width + 1, max(STEP, 4 * width)):
        out[these, start:stop] = sums(x[these, start : stop + width - 1])
    return out


def _steps(rows: int, length: int, step: int) -> Iterator[tuple[slice, tuple[int, int]]]:
    together = max(1, step // max(1, length))
    for row in range(0, rows, together):
        for start in range(0, length, step):
            yield slice(row, row + together), (start, min(start + step, length))
