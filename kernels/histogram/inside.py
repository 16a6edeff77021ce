"""Which samples lie in a range, on the device that holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def inside(samples: Any, lower: float, upper: float) -> Any:
    """The samples x with lower <= x <= upper as float64, contiguous; NaN is not among them.

    Parameters
    ----------
    samples : NumPy or CuPy array of any integer or float dtype, native byte order, shape (n,)
    lower, upper
        Finite.
    """
    first, last = _first_key(samples.dtype, lower, False), _first_key(samples.dtype, upper, True) - 1
    if first > last:
        return samples[:0]
    keys = samples if samples.dtype.kind != "f" else _keys(samples)
    return samples[(keys >= keys.dtype.type(first)) & (keys <= keys.dtype.type(last))]


def _keys(samples: Any) -> Any:
    """Integers in the order of floats. CuPy's own comparisons flush float32 subnormals to zero."""
    size = samples.dtype.itemsize
    bits = samples.view(f"i{size}")
    return bits ^ (bits >> (8 * size - 1) & int(np.iinfo(bits.dtype).max))


def _first_key(dtype: np.dtype[Any], bound: float, beyond: bool) -> int:
    """The least key of a sample at or above a bound, or beyond it; one more than the last key if there is none."""
    bits = np.dtype(f"i{dtype.itemsize}") if dtype.kind == "f" else dtype
    highest = int(np.iinfo(bits).max)
    if dtype.kind == "f":
        end = int(np.array(np.inf, dtype).view(bits)) + 1
        low = -end
    else:
        low, end = int(np.iinfo(bits).min), highest + 1

    def sample(key: int) -> float:
        if dtype.kind != "f":
            return float(key)
        return float(np.array(key if key >= 0 else key ^ highest, bits).view(dtype))

    while low < end:
        middle = (low + end) // 2
        value = sample(middle)
        if value > bound or (value == bound and not beyond):
            end = middle
        else:
            low = middle + 1
    return low


def inside_reference(samples: NDArray[Any], lower: float, upper: float) -> NDArray[Any]:
    """The same on the CPU by comparing float64 numbers: plain, and independent of `inside`."""
    with np.errstate(invalid="ignore"):  # converting a signalling NaN would warn
        numbers = samples.astype(np.float64)
    return samples[(numbers >= lower) & (numbers <= upper)]
