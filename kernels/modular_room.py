"""Room on a device for an exact product: how much of it, and getting it."""

from __future__ import annotations

from typing import Any

import numpy as np


def matrices_of(stack: Any) -> int:
    """How many a stack holds."""
    return int(np.prod(stack.shape[:-2], dtype=np.int64))


def numbered(matrices: int, own: tuple[int, ...], batch: tuple[int, ...]) -> Any:
    """Of each matrix of the product, which of a stack it comes from."""
    return np.broadcast_to(np.arange(matrices, dtype=np.int32).reshape(own), batch).reshape(-1)


def ceil_div(a: int, b: int) -> int:
    """Their quotient, rounded up."""
    return -(-a // b)


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """Room on the device.

    Raises
    ------
    MemoryError
        With what is missing.
    """
    import cupy

    try:
        return cupy.empty(shape, dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        free, _ = cupy.cuda.runtime.memGetInfo()
        raise MemoryError(f"matmul: needs {nbytes} bytes of device memory, {free} are free") from error
