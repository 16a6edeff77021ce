"""What NumPy and CuPy arrays share: their module, and exact conversion."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


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
