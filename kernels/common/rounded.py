"""Results of exact arithmetic on integers of many words, each rounded once: by compiled C++."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence
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


def rounded(number: Fraction) -> float:
    """The nearest float64, to even; infinity beyond the range."""
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def functions() -> Any:
    """Those of rounded.cpp; None without a compiler."""
    return cxx.library(SOURCE)


def interpolated(
    low: NDArray[Any], high: NDArray[Any], weights: Sequence[Fraction], which: NDArray[np.intp]
) -> NDArray[np.float64]:  # fmt: skip
    """``low + (high - low) * weight`` of each pair of finite samples, rounded to nearest, ties to even.

    Parameters
    ----------
    low, high : arrays of the same integer or float dtype, shape (n,)
    weights
        Each 0 to 1.
    which : array, shape (n,)
        The weight of each pair.
    """
    library, results = functions(), np.empty(len(low))
    if library is None or any(weight.denominator >= 2**64 for weight in weights):
        pairs = zip(low.tolist(), high.tolist(), which.tolist(), strict=True)
        return _nearest(_exact(ends, weights[number]) for *ends, number in pairs)
    kind, (low, high) = _wide(low, high)
    parts = np.array([weight.numerator for weight in weights], np.uint64)[which]
    wholes = np.array([weight.denominator for weight in weights], np.uint64)[which]
    word, pointer = ctypes.c_uint64, ctypes.c_void_p
    library.interpolate.argtypes = word, ctypes.c_int, pointer, pointer, pointer, pointer, pointer
    library.interpolate.restype = None
    library.interpolate(len(low), kind, low.ctypes.data, high.ctypes.data, parts.ctypes.data, wholes.ctypes.data,
                        results.ctypes.data)  # fmt: skip
    return results


def interpolated_difference(
    low: NDArray[Any], high: NDArray[Any], low_weight: Fraction, high_weight: Fraction
) -> NDArray[np.float64]:  # fmt: skip
    """What `interpolated` rounds, of the pairs in `high` less those in `low`, rounded once.

    Parameters
    ----------
    low, high : arrays of the same integer or float dtype, shape (2, n)
    low_weight, high_weight
        0 to 1, with small denominators.
    """
    library, results = functions(), np.empty(low.shape[1])
    if library is None:
        pairs = zip(low.T.tolist(), high.T.tolist(), strict=True)
        return _nearest(_exact(upper, high_weight) - _exact(lower, low_weight) for lower, upper in pairs)
    kind, (low, high) = _wide(low, high)
    whole = math.lcm(low_weight.denominator, high_weight.denominator)
    word, pointer = ctypes.c_uint64, ctypes.c_void_p
    library.interpolate_difference.argtypes = word, ctypes.c_int, pointer, pointer, word, word, word, pointer
    library.interpolate_difference.restype = None
    library.interpolate_difference(len(results), kind, low.ctypes.data, high.ctypes.data, int(low_weight * whole),
                                   int(high_weight * whole), whole, results.ctypes.data)  # fmt: skip
    return results


def _wide(*samples: NDArray[Any]) -> tuple[int, list[NDArray[Any]]]:
    """The kind of samples of one dtype, and the samples in 64 bits."""
    kind = kind_of(samples[0].dtype)
    return kind, [np.ascontiguousarray(some, (np.float64, np.int64, np.uint64)[kind]) for some in samples]


def _exact(ends: Sequence[float], weight: Fraction) -> Fraction:
    low, high = map(Fraction, ends)
    return low + (high - low) * weight


def _nearest(numbers: Iterable[Fraction]) -> NDArray[np.float64]:
    return np.array(list(map(rounded, numbers)))
