"""Compiled checks of rows that take turns, sample by sample, as one check of all samples."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import cxx
from kernels.common.compiled_check import CompiledCheck, calls_of

SOURCE = Path(__file__).with_suffix(".cpp")
LINE_SAMPLES = 2**12  # that a check gets at a time
MOST_BYTES = 2**26  # of the lines and the checks of all rows

_word, _index, _pointer = ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p


class _Turns(ctypes.Structure):
    _fields_ = (
        ("checks", _pointer), ("rows", _word), ("itemsize", _word), ("lines", _pointer), ("capacity", _word),
        ("start", _index), ("begin", _index), ("end", _index), ("samples", _pointer),
    )  # fmt: skip


def fits(rows: int, dtype: np.dtype[Any], check_bytes: int) -> bool:
    """Whether there is room for a line and a check of each row, and a compiler."""
    of_row = LINE_SAMPLES * dtype.itemsize + check_bytes
    return rows * of_row <= MOST_BYTES and cxx.library(SOURCE) is not None


class TurnsCheck(CompiledCheck):
    """Gives sample i to the check of row ``i % len(checks)``, with the index ``i // len(checks)``.

    Parameters
    ----------
    checks
        Of each row; `fits` holds for as many.
    dtype
        Of one, two, four or eight bytes.
    """

    def __init__(self, checks: Sequence[CompiledCheck], dtype: np.dtype[Any]) -> None:
        functions = cxx.library(SOURCE)
        assert functions is not None
        self._give = functions.give_lines
        self._give.argtypes, self._give.restype = (_pointer,), None
        self.checks, self._calls = checks, calls_of(checks)
        self._lines = np.empty(len(checks) * LINE_SAMPLES, dtype)
        self._samples = np.zeros(len(checks), np.uint64)
        self._turns = _Turns(ctypes.addressof(self._calls), len(checks), dtype.itemsize, self._lines.ctypes.data,
                             LINE_SAMPLES, samples=self._samples.ctypes.data)  # fmt: skip
        nbytes = self._lines.nbytes + sum(check.nbytes for check in checks)
        super().__init__(functions.add_turns, ctypes.addressof(self._turns), dtype, nbytes)

    def count_from(self, start: int) -> bool:
        self._turns.start = start
        return True

    def samples(self) -> list[int]:
        """Samples so far of each row, whose checks have all of them now."""
        self._give(self._state)
        return self._samples.tolist()
