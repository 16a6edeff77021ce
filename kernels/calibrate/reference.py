"""The reference for calibrated samples: NumPy's own functions; logarithms number by number in decimal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.calibrate.calibration import Calibration

CONTEXT = Context(prec=50)
FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "none": np.array, "abs": np.fabs, "square": lambda z: z * z, "sqrt": np.sqrt,
}  # fmt: skip


def calibrate_reference(samples: NDArray[Any], calibration: Calibration) -> NDArray[np.float64]:
    """Samples in either byte order, shape (n,), as native float64 numbers, shape (n,)."""
    with np.errstate(all="ignore"):
        numbers = samples.astype(np.float64) * calibration.gain + calibration.bias
        if calibration.transform in FUNCTIONS:
            return np.asarray(FUNCTIONS[calibration.transform](numbers), np.float64)
    values, places = np.unique(numbers, return_inverse=True)
    logs = np.array([_logarithm(value, calibration.transform) for value in values.tolist()])
    return logs[places.reshape(-1)]


def _logarithm(value: float, name: str) -> float:
    if not 0 < value < math.inf:
        return -math.inf if value == 0 else value if value > 0 else math.nan
    exact = Decimal(value)
    natural = exact.ln(CONTEXT)
    if name == "log10":
        return float(exact.log10(CONTEXT))
    if name == "log":
        return float(natural)
    mantissa, exponent = math.frexp(value)
    return float(exponent - 1) if mantissa == 0.5 else float(CONTEXT.divide(natural, Decimal(2).ln(CONTEXT)))
