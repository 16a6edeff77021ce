"""Checks that are C++ functions: they get samples array by array, or from whoever reads a file without the GIL."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 2**31  # samples of a call: counters and sums of one call have room for so many
COPIED = 2**17  # samples at a time of an array that is swapped, unaligned or has gaps


class CompiledCheck(ABC):
    """Recomputes the partial of samples that come one array after another.

    Parameters
    ----------
    function
        ``void function(state, samples, n)`` adds n samples, at most `MOST`, of the native dtype.
    state
        Address of what it keeps, which has to live as long as this object.
    dtype
    """

    def __init__(self, function: Any, state: int, dtype: np.dtype[Any]) -> None:
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), None
        self._function, self._state, self._dtype = function, state, dtype.newbyteorder("=")

    @property
    def addresses(self) -> tuple[int, int]:
        """Of the function and of its state."""
        return ctypes.cast(self._function, ctypes.c_void_p).value or 0, self._state

    def add(self, samples: NDArray[Any]) -> None:
        """Add samples in either byte order, shape (n,)."""
        whole = samples.dtype == self._dtype and samples.flags.c_contiguous and samples.flags.aligned
        step = MOST if whole else COPIED
        for start in range(0, len(samples), step):
            part = np.require(samples[start : start + step], self._dtype, ["C", "A"])
            self._function(self._state, part.ctypes.data, len(part))

    @abstractmethod
    def partial(self) -> NDArray[Any]:
        """The partial of all samples so far; positions count from the first of them."""
