"""Rows of samples as places in an array: where each begins, and where it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
