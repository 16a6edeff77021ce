"""Calibrated samples for verification: compiled, and logarithms by another way than `logarithm.py`."""

from __future__ import annotations

import ctypes
import math
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.calibrate.calibration import Calibration
from kernels.common import cxx

SOURCE = Path(__file__).with_suffix(".cpp")

# Numbered as in check.cpp.
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
FUNCTIONS = ("none", "abs", "square", "sqrt", "log", "log2", "log10")
BASES = {"log": None, "log2": 2, "log10": 10}
CONTEXT = Context(prec=70)
SPREAD = 0.25  # of integers that are looked up in a table: its length by their number


class CalibratedSamples:
    """Calibrates samples.

    Parameters
    ----------
    functions
        Those of check.cpp.
    calibration
    dtype
        Native.
    """

    def __init__(self, functions: ctypes.CDLL, calibration: Calibration, dtype: np.dtype[Any]) -> None:
        self._calibration, self._dtype = calibration, dtype
        self._function = functions.calibrate_samples
        pointer, double = ctypes.c_void_p, ctypes.c_double
        self._function.argtypes = (
            ctypes.c_int, pointer, ctypes.c_size_t, double, double, ctypes.c_int, pointer, pointer,
        )  # fmt: skip
        self._function.restype = ctypes.c_size_t

    @staticmethod
    def of(calibration: Calibration, dtype: np.dtype[Any]) -> CalibratedSamples | None:
        """For samples of a dtype; None without a compiler."""
        functions = cxx.library(SOURCE)
        return None if functions is None else CalibratedSamples(functions, calibration, dtype)

    def of_samples(self, samples: NDArray[Any]) -> NDArray[np.float64]:
        """Samples in either byte order, shape (n,), calibrated, shape (n,)."""
        native = np.require(samples, self._dtype, ["C", "A"])
        looked_up = self._calibration.transform in BASES and self._dtype.kind != "f" and self._dtype.itemsize <= 4
        if not looked_up or not len(native):
            return self._of(native)
        wide = native.astype(np.int64)
        first, number = int(wide.min()), int(np.ptp(wide)) + 1
        if number > SPREAD * len(wide):
            return self._of(native)
        values = np.bincount(wide - first).nonzero()[0] + first  # logarithms take long: of each value only one
        table = np.zeros(number)
        table[values - first] = self._of(values.astype(self._dtype))
        return table.take(wide - first)

    def _of(self, native: NDArray[Any]) -> NDArray[np.float64]:
        numbers, unsure = np.empty(len(native)), np.empty(len(native), np.int64)
        gain, bias, transform = self._calibration.gain, self._calibration.bias, self._calibration.transform
        count = self._function(
            TYPES.index(self._dtype.name), native.ctypes.data, len(native), gain, bias, FUNCTIONS.index(transform),
            numbers.ctypes.data, unsure.ctypes.data,
        )  # fmt: skip
        known: dict[float, float] = {}
        for place in unsure[:count].tolist():
            number = float(numbers[place])
            if number not in known:
                known[number] = _by_powers(number, BASES[transform])
            numbers[place] = known[number]
        return numbers


def _by_powers(number: float, base: int | None) -> float:
    """The nearest float64 to a logarithm: the power of the middle between two of them is compared with the number."""
    guess = math.log(number) if base is None else math.log2(number) if base == 2 else math.log10(number)
    low = guess
    while _power((Decimal(math.nextafter(low, -math.inf)) + Decimal(low)) / 2, base) > Decimal(number):
        low = math.nextafter(low, -math.inf)
    while _power((Decimal(low) + Decimal(math.nextafter(low, math.inf))) / 2, base) < Decimal(number):
        low = math.nextafter(low, math.inf)
    return low


def _power(exponent: Decimal, base: int | None) -> Decimal:
    factor = Decimal(1) if base is None else Decimal(base).ln(CONTEXT)
    return CONTEXT.multiply(exponent, factor).exp(CONTEXT)
