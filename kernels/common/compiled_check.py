"""Checks that are C++ functions: they get samples array by array, or from whoever reads a file without the GIL."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 2**31  # samples of a call: counters and sums of one call have room for so many
COPIED = 2**17  # samples at a time of an array that is swapped, unaligned or has gaps


# (partials of all rows, int64, shape (rows, entries)) -> one
PutTogether = Callable[[NDArray[np.int64]], NDArray[np.int64]]


class _Call(ctypes.Structure):
    _fields_ = (("add", ctypes.c_void_p), ("state", ctypes.c_void_p))


class CompiledCheck(ABC):
    """Recomputes the partial of samples that come array by array, in any order.

    Parameters
    ----------
    function
        ``void function(state, samples, n, first)`` adds n samples, at most `MOST`, of the native dtype; the first one
        has the index `first`.
    state
        Address of what it keeps, which has to live as long as this object.
    dtype
    nbytes
        Memory that it takes.
    """

    def __init__(self, function: Any, state: int, dtype: np.dtype[Any], nbytes: int) -> None:
        if function.restype is not None:  # not declared yet; twice does no harm
            function.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
            function.restype = None
        self._function, self._state, self._dtype = function, state, dtype.newbyteorder("=")
        self.nbytes = nbytes

    def add(self, samples: NDArray[Any], first: int) -> None:
        """Add samples in either byte order, shape (n,), the first of which has the index `first`."""
        whole = samples.dtype == self._dtype and samples.flags.c_contiguous and samples.flags.aligned
        if whole and 0 < len(samples) <= MOST:
            self._function(self._state, samples.ctypes.data, len(samples), first)
            return
        step = MOST if whole else COPIED
        for start in range(0, len(samples), step):
            part = np.require(samples[start : start + step], self._dtype, ["C", "A"])
            self._function(self._state, part.ctypes.data, len(part), first + start)

    def count_from(self, start: int) -> bool:
        """Let what comes from now on with the index 0 have this one; returns whether it can, as only few jobs need."""
        return False

    def in_turns(self, rows: int, put_together: PutTogether) -> CompiledCheck | None:
        """A check of so many rows that take turns, sample by sample, each like the samples of this one.

        `put_together` makes its partial of those of all rows. None if it would not be faster than to gather each row.
        """
        return None

    @abstractmethod
    def partial(self) -> NDArray[Any]:
        """The partial of all samples so far; positions are their indices."""


def calls_of(checks: Sequence[CompiledCheck]) -> ctypes.Array[_Call]:
    """Functions of checks and addresses of their states, for C++; valid as long as the checks."""
    calls = ((ctypes.cast(check._function, ctypes.c_void_p).value, check._state) for check in checks)
    return (_Call * len(checks))(*(_Call(*call) for call in calls))
