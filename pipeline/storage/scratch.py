"""Memory to read files into: aligned, and reused for short-lived arrays.

Fresh memory is faulted in and returned to the kernel page by page. In both the threads of a process wait for each
other, longer than it takes to check what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT_BYTES = 5 * 2**24  # per user: a piece of a check and its halo; untouched pages cost nothing
ALIGNED = 64  # bytes: a cache line

Allocate = Callable[..., NDArray[Any]]

_spare: list[NDArray[np.uint8]] = []  # of which the last one is used next, so that few have ever been written to


def aligned_empty(shape: int | tuple[int, ...], dtype: Any = np.uint8) -> NDArray[Any]:
    """`numpy.empty`, at the beginning of a cache line.

    NumPy and Python begin large arrays 16 bytes after that. An AMD EPYC then copied 2 GB/s from the page cache, not 8.
    """
    nbytes = prod(np.atleast_1d(shape).tolist()) * np.dtype(dtype).itemsize
    memory = np.empty(nbytes + ALIGNED, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % ALIGNED)


@contextmanager
def scratch() -> Iterator[Allocate]:
    """Memory of one user at a time, for use within the context; kept until `forget`.

    Yields
    ------
    A function that makes arrays like `numpy.empty`, to which it falls back once the memory is used up.
    """
    try:
        memory = _spare.pop()
    except IndexError:
        memory = aligned_empty(KEPT_BYTES)
    used = 0

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        nonlocal used
        nbytes = prod(shape) * dtype.itemsize
        if used + nbytes > KEPT_BYTES:
            return aligned_empty(shape, dtype)
        array: NDArray[Any] = np.ndarray(shape, dtype, memory, used)
        used += -(-nbytes // ALIGNED) * ALIGNED
        return array

    try:
        yield allocate
    finally:
        _spare.append(memory)


def forget() -> None:
    """Free what nobody uses."""
    _spare.clear()
