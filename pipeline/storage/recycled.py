"""Memory of arrays that are gone, for the next ones: the kernel clears each page of fresh memory at its first use."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike, NDArray

SMALL = 2**18  # bytes that malloc itself keeps for the next array


class Recycled:
    """Allocates arrays, in the memory of earlier ones of as many bytes; several threads may at a time."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[NDArray[np.uint8]]] = defaultdict(list)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """As `numpy.empty`."""
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < SMALL:
            return np.empty(shape, dtype)
        free = self._free[nbytes]
        try:
            memory = free.pop()
        except IndexError:
            memory = np.empty(nbytes, np.uint8)
        # Views of this array keep it, and not `memory`, because its base is no array.
        array = np.frombuffer(memory.data, dtype)
        finalize(array, free.append, memory).atexit = False
        return array.reshape(shape)
