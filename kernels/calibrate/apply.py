"""Calibrated samples, for NumPy and CuPy arrays: the same bits on both.

On a device every operation is a kernel of CuPy's own, so that no product and sum are fused; in float64 these round as
IEEE 754 says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.calibrate.calibration import LOGS, Calibration
from kernels.calibrate.logarithm import logarithm
from kernels.common.arrays import array_module, converted

FUNCTIONS = {"abs": "absolute", "square": "square", "sqrt": "sqrt"}
STEP = 2**15  # samples at a time on a CPU: they and what is computed of them stay in its caches


def calibrate(samples: Any, calibration: Calibration) -> Any:
    """Samples of any integer or float dtype, shape (n,), as float64 numbers of the same kind, shape (n,)."""
    if not isinstance(samples, np.ndarray):
        return _calibrated(samples, calibration)
    numbers = np.empty(len(samples))
    with np.errstate(all="ignore"):
        for start in range(0, len(samples), STEP):
            numbers[start : start + STEP] = _calibrated(samples[start : start + STEP], calibration)
    return numbers


def _calibrated(samples: Any, calibration: Calibration) -> Any:
    if calibration.transform in LOGS and samples.dtype.kind in "iu" and len(samples):
        least, most = int(samples.min()), int(samples.max())
        if most - least < len(samples) // 4:  # as of recorders: the logarithm of each value is computed once
            first, word = samples.dtype.type(least), np.dtype(f"u{samples.dtype.itemsize}")
            values = array_module(samples).arange(most - least + 1).astype(samples.dtype) + first  # modulo 2**bits
            return _mapped(values, calibration)[(samples - first).view(word).astype(np.int64)]
    return _mapped(samples, calibration)


def _mapped(samples: Any, calibration: Calibration) -> Any:
    numbers = converted(samples, np.dtype(np.float64)) * calibration.gain + calibration.bias
    if calibration.transform in LOGS:
        return logarithm(numbers, calibration.transform)
    if calibration.transform == "none":
        return numbers
    return getattr(array_module(samples), FUNCTIONS[calibration.transform])(numbers)
