"""Sums of sliding windows along any axis, on the device that holds the array: the entry to the stencil kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.stencil import box as _box
from kernels.stencil import weighted as _weighted
from kernels.stencil.box import box
from kernels.stencil.cpu import box_cpu, weighted_cpu
from kernels.stencil.weighted import weighted
from kernels.stencil.windows import Weights, from_rows, to_rows, weighted_dtype

INSTANCES = (*_box.INSTANCES, *_weighted.INSTANCES)


def slide(
    blocks: Sequence[Any], axis: int, radius: int, weights: Weights | None, before: int, after: int, outside: str
) -> Any:
    """Sums of the windows along an axis of an array that comes in pieces, on the device that holds them.

    Parameters
    ----------
    blocks : NumPy or CuPy arrays of integers or floats
        Consecutive along the axis.
    axis
    radius, before, after, outside
        As for `kernels.stencil.cpu.box_cpu`.
    weights : NumPy array, shape (2 * radius + 1,)
        None for plain sums.

    Returns
    -------
    array of the same kind, C-contiguous
    """
    where = (before, after, outside)
    if isinstance(blocks[0], np.ndarray):
        x = np.concatenate(blocks, axis) if len(blocks) > 1 else blocks[0]
        rows = to_rows(x, axis)
        sums: Any = box_cpu(rows, radius, *where) if weights is None else weighted_cpu(rows, weights, *where)
        return np.ascontiguousarray(from_rows(sums, _shape(x, axis, sums), axis))
    import cupy

    x = cupy.concatenate(blocks, axis) if len(blocks) > 1 else blocks[0]
    rows = to_rows(x, axis)
    if weights is None:
        sums = box(rows, radius, *where)
    else:
        factors = cupy.asarray(weights.astype(weighted_dtype(x.dtype, weights.dtype)))
        sums = weighted(rows, factors, *where)
    return cupy.ascontiguousarray(from_rows(sums, _shape(x, axis, sums), axis))


def _shape(x: Any, axis: int, sums: Any) -> tuple[int, ...]:
    shape = list(x.shape)
    shape[axis] = int(sums.shape[1])
    return tuple(shape)
