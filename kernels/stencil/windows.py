"""Sliding windows along the rows of an array: result dtypes, rows along an axis, boundaries.

A window has 2 * radius + 1 elements. Its plain sum is exact and rounded at most once; a weighted sum is rounded after
each multiplication and each addition, from the first element to the last. So the result depends neither on how the
array was cut into regions, nor on the number of threads, nor on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# What stands for elements beyond the ends of a row: 0, the first or last element, or the row mirrored at its ends.
OUTSIDE = ("zero", "nearest", "reflect")
Weights = NDArray[np.floating[Any]]


def box_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype of plain sums: float64 of floats, uint64 of uint64, int64 of other integers."""
    if dtype.kind == "f":
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if dtype == np.uint64 else np.int64)


def weighted_dtype(dtype: np.dtype[Any], weights: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype of weighted sums: float32 where elements and weights are float32 or float16, else float64."""
    narrow = all(kind.kind == "f" and kind.itemsize <= 4 for kind in (dtype, weights))
    return np.dtype(np.float32 if narrow else np.float64)


def to_rows(x: Any, axis: int) -> Any:
    """A NumPy or CuPy array as rows along an axis: shape (rows, length), C-contiguous."""
    last = x.swapaxes(axis, -1)
    return last.reshape(-1, last.shape[-1]) if last.flags.c_contiguous else last.copy("C").reshape(-1, last.shape[-1])


def from_rows(rows: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Inverse of `to_rows`: the array of this shape with these rows along the axis."""
    swapped = list(shape)
    swapped[axis], swapped[-1] = swapped[-1], swapped[axis]
    return rows.reshape(swapped).swapaxes(axis, -1)


def extended(x: NDArray[Any], before: int, after: int, outside: str) -> NDArray[Any]:
    """Rows with this many elements of the boundary added at either end."""
    if not before and not after:
        return x
    if outside == "zero":
        sides = [np.zeros((len(x), count), x.dtype) for count in (before, after)]
    elif outside == "nearest":
        sides = [np.repeat(end, count, axis=1) for end, count in ((x[:, :1], before), (x[:, -1:], after))]
    else:
        sides = [x[:, :before][:, ::-1], x[:, x.shape[1] - after :][:, ::-1]]
    return np.concatenate([sides[0], x, sides[1]], axis=1)
