"""Room on the current device, or how much of it is missing."""

from __future__ import annotations

from typing import Any

import numpy as np


def empty(job: str, shape: int | tuple[int, ...], dtype: Any) -> Any:
    """A CuPy array of this shape and dtype, C-contiguous, without values.

    Raises
    ------
    MemoryError
        Of this job, with what it needs and what is free.
    """
    return _made("empty", job, shape, dtype)


def zeros(job: str, shape: int | tuple[int, ...], dtype: Any) -> Any:
    """The same of zeros."""
    return _made("zeros", job, shape, dtype)


def _made(name: str, job: str, shape: int | tuple[int, ...], dtype: Any) -> Any:
    import cupy

    try:
        return getattr(cupy, name)(shape, dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        free, _ = cupy.cuda.runtime.memGetInfo()
        raise MemoryError(f"{job}: needs {nbytes} bytes of device memory, {free} are free") from error
