"""What NumPy and CuPy arrays share: their module, and exact conversion."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


def array_module(array: Any) -> Any:
    """The module, numpy or cupy, that an array belongs to."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def converted(array: Any, dtype: np.dtype[Any]) -> Any:
    """``array.astype(dtype, copy=False)``, exact on a device too.

    CuPy compiles its own kernels with ``-ftz=true``, which flushes float32 subnormals to zero.
    """
    result = array.astype(dtype, copy=False)
    if array.dtype != np.float32 or result.dtype != np.float64 or isinstance(array, np.ndarray):
        return result
    bits = array.reshape(-1).view(np.uint32)
    small = (bits & 0x7F800000) == 0
    if small.any():
        of_small = bits[small]
        magnitude = (of_small & 0x7FFFFF).astype(np.float64) * 2.0**-149
        result.reshape(-1)[small] = magnitude * (1 - 2 * (of_small >> 31).astype(np.float64))
    return result


def in_order(
    begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """Begins and ends of runs, which do not overlap, ascending, and their order; None if it was that already."""
    begins, ends = np.ascontiguousarray(begins, np.int64), np.ascontiguousarray(ends, np.int64)
    if (begins[1:] >= ends[:-1]).all():
        return None, begins, ends
    order = np.lexsort((ends, begins))
    return order, begins[order], ends[order]


def as_matrix(
    samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], filler: Any
) -> tuple[NDArray[Any], NDArray[np.bool_]]:  # fmt: skip
    """Rows of samples, each from its begin to its end, as lines of a matrix as wide as the longest; shorter ones are
    filled up. And which entries are samples."""
    lengths = ends - begins
    columns = np.arange(lengths.max(initial=0))
    inside = columns < lengths[:, None]
    if inside.all() and np.array_equal(begins, len(columns) * np.arange(len(begins))):
        return samples[: inside.size].reshape(inside.shape).copy(), inside
    matrix = np.full(inside.shape, filler, samples.dtype)
    matrix[inside] = samples[(begins[:, None] + columns)[inside]]
    return matrix, inside
