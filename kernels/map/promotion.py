"""Elementwise operations on arrays of different dtypes and shapes, promoted and broadcast as NumPy does it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from kernels.common.arrays import converted
from kernels.map.cpu import elementwise_cpu
from kernels.map.gpu import elementwise


def combine(arrays: Sequence[Any], operation: str) -> Any:
    """Apply an operation to arrays as NumPy would, on the device that holds them.

    Parameters
    ----------
    arrays : NumPy or CuPy arrays of integers or floats, of shapes that broadcast
    operation
        A name in `kernels.map.gpu.OPERATIONS`.

    Returns
    -------
    array of the same kind
        Of the broadcast shape and the promoted dtype; the same bits on every device.
    """
    # Pairwise, as in a * b + c: promoted all at once, int8, uint8 and float16 would give float16.
    dtype = reduce(np.promote_types, (array.dtype for array in arrays))
    if operation == "multiply_add" and np.promote_types(arrays[0].dtype, arrays[1].dtype) != dtype:
        # As in a * b + c, the product has the dtype promoted from its own operands.
        return combine((combine(arrays[:2], "multiply"), arrays[2]), "add")
    alike = [converted(array, dtype) for array in arrays]
    shape = np.broadcast_shapes(*(array.shape for array in alike))
    if isinstance(alike[0], np.ndarray):
        # NumPy's operations return scalars for arrays without axes.
        spread = [np.atleast_1d(np.broadcast_to(array, shape)) for array in alike]
        return elementwise_cpu(*spread, operation=operation).reshape(shape)
    spread = [_spread_on_device(array, shape).reshape(-1) for array in alike]
    return elementwise(*spread, operation=operation).reshape(shape)


def _spread_on_device(array: Any, shape: tuple[int, ...]) -> Any:
    """The array broadcast to a shape and made C-contiguous, as kernels need it."""
    if array.shape == shape:
        return array
    import cupy

    spread = cupy.empty(shape, array.dtype)
    spread[...] = array
    return spread
