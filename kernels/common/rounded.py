"""Results of exact arithmetic on integers of many words, each rounded once: by compiled C++."""

from __future__ import annotations

import ctypes
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx

SOURCE = Path(__file__).with_suffix(".cpp")
FLOAT, INTEGER, WIDE = range(3)  # kinds of samples, as rounded.cpp numbers them


def kind_of(dtype: np.dtype[Any]) -> int:
    """The kind of samples of a dtype."""
    return FLOAT if dtype.kind == "f" else WIDE if dtype == np.uint64 else INTEGER


def functions() -> Any:
    """Those of rounded.cpp; None without a compiler."""
    return cxx.library(SOURCE)


def interpolated(low: NDArray[Any], high: NDArray[Any], weight: Fraction) -> NDArray[np.float64]:
    """``low + (high - low) * weight`` of each pair of finite samples, rounded to nearest, ties to even.

    Parameters
    ----------
    low, high : arrays of the same integer or float dtype, shape (n,)
    weight
        0 to 1.
    """
    library, results = functions(), np.empty(len(low))
    if library is None or weight.denominator >= 2**64:
        pairs = zip(low.tolist(), high.tolist(), strict=True)
        exact = [Fraction(a) + (Fraction(b) - Fraction(a)) * weight for a, b in pairs]
        return np.array([one.numerator / one.denominator for one in exact])
    kind = kind_of(low.dtype)
    wide = [np.ascontiguousarray(ends, (np.float64, np.int64, np.uint64)[kind]) for ends in (low, high)]
    word, pointer = ctypes.c_uint64, ctypes.c_void_p
    library.interpolate.argtypes = word, ctypes.c_int, pointer, pointer, word, word, pointer
    library.interpolate.restype = None
    library.interpolate(len(low), kind, *(ends.ctypes.data for ends in wide), weight.numerator, weight.denominator,
                        results.ctypes.data)  # fmt: skip
    return results
