"""Memory that a thread uses again, for what it holds only for a moment.

Fresh memory comes from the system page by page, and is given back to it: in both the threads of a process wait for each
other, longer than it takes to look at what was read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOM = 5 * 2**24  # bytes that a thread keeps: a piece of a check, and its halo; those that it never used are none
ALIGNED = 64  # bytes: a line of the cache

Allocate = Callable[..., NDArray[Any]]

_own = threading.local()


@contextmanager
def scratch() -> Iterator[Allocate]:
    """Memory of this thread, to be used until the end.

    Yields
    ------
    Makes an array of a shape and dtype like `numpy.empty`, which does it where there is no room left.
    """
    memory: NDArray[np.uint8] | None = getattr(_own, "memory", None)
    _own.memory = None  # whoever asks meanwhile gets memory of his own
    if memory is None:
        memory = np.empty(ROOM, np.uint8)
    used = 0

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        nonlocal used
        nbytes = prod(shape) * dtype.itemsize
        if used + nbytes > ROOM:
            return np.empty(shape, dtype)
        array: NDArray[Any] = np.ndarray(shape, dtype, memory, used)
        used += -(-nbytes // ALIGNED) * ALIGNED
        return array

    try:
        yield allocate
    finally:
        _own.memory = memory
