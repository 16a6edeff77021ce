"""Sliding windows along the rows of an array: what comes out of them, and how a CPU computes it.

A window has 2 * radius + 1 elements. Its plain sum is exact and rounded at most once; a weighted sum is rounded after
each multiplication and each addition, from the first element to the last. So neither depends on how the array was cut,
on the number of threads, or on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.stencil.compiled import TYPES, sum_natively
from kernels.stencil.cpu_exact import exact_sums, window_sums

# What is taken for elements outside of a row: 0, the row's first or last one, or its elements from there backwards.
OUTSIDE = ("zero", "nearest", "reflect")
Weights = NDArray[np.floating[Any]]

STEP = 2**15  # elements that are computed at a time: few enough for the cache of a core
_HALF = 2**32 - 1


def box_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What plain sums are: int64, uint64 of uint64, float64 of floats."""
    if dtype.kind == "f":
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if dtype == np.uint64 else np.int64)


def weighted_dtype(dtype: np.dtype[Any], weights: np.dtype[Any]) -> np.dtype[Any]:
    """What weighted sums are computed in: float32 where elements and weights are float32 or float16, else float64."""
    narrow = all(kind.kind == "f" and kind.itemsize <= 4 for kind in (dtype, weights))
    return np.dtype(np.float32 if narrow else np.float64)


def to_rows(x: Any, axis: int) -> Any:
    """An array, on either device, as rows of what lies along an axis: shape (rows, length), C-contiguous."""
    last = x.swapaxes(axis, -1)
    return last.reshape(-1, last.shape[-1]) if last.flags.c_contiguous else last.copy("C").reshape(-1, last.shape[-1])


def from_rows(rows: Any, shape: tuple[int, ...], axis: int) -> Any:
    """The array of a shape that has these rows along an axis."""
    turned = list(shape)
    turned[axis], turned[-1] = turned[-1], turned[axis]
    return rows.reshape(turned).swapaxes(axis, -1)


def box_cpu(x: NDArray[Any], radius: int, before: int = 0, after: int = 0, outside: str = "zero") -> NDArray[Any]:
    """Sums of all windows that lie within a row and what is taken for its neighbourhood.

    Parameters
    ----------
    x : array of integers or floats, shape (rows, length)
    radius
    before, after
        How many elements before the first and behind the last there are; for ``"reflect"`` at most `length`.
    outside
        What they are, one of `OUTSIDE`.

    Returns
    -------
    array of `box_dtype`, shape (rows, before + length + after - 2 * radius)

    Raises
    ------
    OverflowError
        If a sum of int64 or uint64 does not fit. (Sums of narrower integers fit for a radius below 2**30.)
    """
    width = 2 * radius + 1
    x = extended(x, before, after, outside)
    if x.dtype.kind == "f":
        return _float_sums(x, width)
    if x.dtype.itemsize == 8:
        return _in_steps(x, width, x.dtype, lambda part: _long_sums(part, width))
    return _in_steps(x, width, np.dtype(np.int64), lambda part: window_sums(part, width))


def _float_sums(x: NDArray[Any], width: int) -> NDArray[np.float64]:
    def by_numpy(rows: NDArray[Any]) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            return _in_steps(rows, width, np.dtype(np.float64), lambda part: exact_sums(part.astype(np.float64), width))

    found = sum_natively(x, width) if x.dtype.name in TYPES else None
    if found is None:
        return by_numpy(x)
    sums, done = found
    if not done.all():
        sums[~done] = by_numpy(x[~done])
    return sums


def extended(x: NDArray[Any], before: int, after: int, outside: str) -> NDArray[Any]:
    """An array with so many elements more on both sides of each row."""
    if not before and not after:
        return x
    if outside == "zero":
        sides = [np.zeros((len(x), count), x.dtype) for count in (before, after)]
    elif outside == "nearest":
        sides = [np.repeat(end, count, axis=1) for end, count in ((x[:, :1], before), (x[:, -1:], after))]
    else:
        sides = [x[:, :before][:, ::-1], x[:, x.shape[1] - after :][:, ::-1]]
    return np.concatenate([sides[0], x, sides[1]], axis=1)


def _long_sums(x: NDArray[Any], width: int) -> NDArray[Any]:
    """In two halves of 32 bits each, whose sums fit."""
    low = window_sums(x & x.dtype.type(_HALF), width)
    high = window_sums(x >> x.dtype.type(32), width)
    high += low >> 32
    low &= _HALF
    limits = np.iinfo(x.dtype)
    wrong = (high < limits.min >> 32) | (high > limits.max >> 32)
    if wrong.any():
        first = tuple(np.argwhere(wrong)[0])
        raise OverflowError(overflow(x.dtype, (int(high[first]) << 32) + int(low[first])))
    return (high << 32 | low).view(x.dtype)


def overflow(dtype: np.dtype[Any], value: int) -> str:
    """What to say of a sum that is too large."""
    return f"expected sums that {dtype.name} holds, got {value}; take a smaller radius"


def weighted_cpu(
    x: NDArray[Any], weights: Weights, before: int = 0, after: int = 0, outside: str = "zero"
) -> NDArray[Any]:
    """Weighted sums of the windows of `box_cpu`, weight k with the element k places after the first.

    Parameters
    ----------
    x, before, after, outside
        As for `box_cpu`.
    weights : array of floats, shape (2 * radius + 1,)

    Returns
    -------
    array of `weighted_dtype`, shape (rows, before + length + after - 2 * radius)
        One NaN for all. Elements and weights are converted to this dtype first.
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


def _in_steps(
    x: NDArray[Any], width: int, dtype: np.dtype[Any], sums: Callable[[NDArray[Any]], NDArray[Any]]
) -> NDArray[Any]:
    """Several rows at a time, or a part of one: at least so long that halos do not matter."""
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
