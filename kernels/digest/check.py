"""Partials of a digest for verification: compiled, by other ways than `cpu.py` and `gpu.py`."""

from __future__ import annotations

import ctypes
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import cxx
from kernels.common.compiled_check import CompiledCheck
from kernels.digest.partial import DTYPES, HEADER, Partial

SOURCE = Path(__file__).with_suffix(".cpp")
STATE_BYTES = 2**12  # about, of samples that follow each other

_TYPES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "begin": ((ctypes.c_uint64,), ctypes.c_void_p), "count_from": ((ctypes.c_void_p, ctypes.c_int64), None),
    "discard": ((ctypes.c_void_p,), None),
    "measure": ((ctypes.c_void_p,) * 2, None), "copy_out": ((ctypes.c_void_p,) * 4, None),
}  # fmt: skip


class DigestCheck(CompiledCheck):
    """Digests samples.

    Parameters
    ----------
    functions
        Those of check.cpp.
    dtype
        Any integer or float dtype. Indices of samples are those in the content.
    """

    def __init__(self, functions: ctypes.CDLL, dtype: np.dtype[Any]) -> None:
        for name, (arguments, returned) in _TYPES.items():
            getattr(functions, name).argtypes, getattr(functions, name).restype = arguments, returned
        self._functions, self._name = functions, dtype.name
        self._nodes = functions.begin(dtype.itemsize)
        weakref.finalize(self, functions.discard, self._nodes)
        super().__init__(functions.add_samples, self._nodes, dtype, STATE_BYTES)

    def count_from(self, start: int) -> bool:
        """Let what comes from now on with the index 0 have this one in the content."""
        self._functions.count_from(self._nodes, start)
        return True

    def partial(self) -> Partial:
        """Partial so far."""
        sizes = np.empty(2, np.int64)
        self._functions.measure(self._nodes, sizes.ctypes.data)
        nodes, words = sizes.tolist()
        partial = np.zeros(HEADER + 2 * nodes + words, np.int64)
        partial[:HEADER] = DTYPES.index(self._name), nodes
        starts = partial[HEADER:].ctypes.data
        self._functions.copy_out(self._nodes, starts, starts + 8 * nodes, starts + 16 * nodes)
        return partial


def digest_check(dtype: np.dtype[Any]) -> DigestCheck | None:
    """A check of samples of a dtype; None without a compiler."""
    functions = cxx.library(SOURCE)
    return None if functions is None else DigestCheck(functions, dtype)
