"""Partials of reduce with sums of powers for verification, compiled, by other ways than those that compute."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import cxx
from kernels.common.compiled_check import CompiledCheck
from kernels.reduce import partial as layout
from kernels.reduce.check import ReduceCheck, reduce_check
from kernels.reduce.exact_sum import SQUARE_BITS, SUM_BITS, from_words
from kernels.reduce.partial import Partial
from kernels.reduce.powers import CUBE_BITS, CUBE_WORDS, FOURTH_BITS, FOURTH_WORDS, POWERS, extended

SOURCE = Path(__file__).with_suffix(".cpp")


class PowersCheck(CompiledCheck):
    """Reduces samples, with sums of powers.

    Parameters
    ----------
    functions
        Those of check_powers.cpp.
    moments
        What checks everything but the sums of powers; it gets all samples, too.
    dtype
        Any integer or float dtype.
    """

    def __init__(self, functions: ctypes.CDLL, moments: ReduceCheck, dtype: np.dtype[Any]) -> None:
        functions.state_bytes.restype = ctypes.c_size_t
        self._sums = np.zeros(-(-functions.state_bytes() // 16), np.complex128)  # at a multiple of 16 bytes
        self._moments, self._functions, state = moments, functions, self._sums.ctypes.data
        functions.begin.argtypes, functions.begin.restype = (
            (ctypes.c_void_p, ctypes.c_int, *(ctypes.c_void_p,) * 2),
            None,
        )
        functions.begin(state, layout.DTYPES.index(dtype.name), moments._function, moments._state)
        super().__init__(functions.add_samples, state, dtype, self._sums.nbytes + moments.nbytes)

    def partial(self) -> Partial:
        """Partial so far."""
        moments = self._moments.partial()
        words = np.empty(CUBE_WORDS + FOURTH_WORDS, np.int64)
        self._functions.finish.argtypes, self._functions.finish.restype = (ctypes.c_void_p,) * 2, None
        self._functions.finish(self._sums.ctypes.data, words.ctypes.data)
        cubes, fourths = from_words(words[:CUBE_WORDS]), from_words(words[CUBE_WORDS:])
        if self._dtype.kind == "i":
            # C++ sums ranks, u = x + h. (u - h)**k, multiplied out, has lower powers of x + h, too.
            n, half = int(moments[layout.SAMPLES]), 2 ** (8 * self._dtype.itemsize - 1)
            total = from_words(moments[layout.SUM_AT]) >> SUM_BITS
            squares = from_words(moments[layout.SQUARES_AT]) >> SQUARE_BITS
            third = (cubes >> CUBE_BITS) - half * (3 * squares + 3 * half * total + half**2 * n)
            rest = 4 * third + 6 * half * squares + 4 * half**2 * total + half**3 * n
            cubes, fourths = third << CUBE_BITS, (((fourths >> FOURTH_BITS) - half * rest) << FOURTH_BITS)
        return extended(moments, cubes, fourths)


def reduce_check_with_powers(dtype: np.dtype[Any], parts: int) -> CompiledCheck | None:
    """A check of samples of a dtype, with sums of powers if the parts include POWERS; None without a compiler."""
    moments = reduce_check(dtype, parts & ~POWERS)
    if not parts & POWERS or moments is None:
        return moments
    functions = cxx.library(SOURCE)
    return None if functions is None else PowersCheck(functions, moments, dtype)
