"""Finite minimum and maximum of samples, as float64; the same few lines for NumPy and CuPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module


def finite_range(samples: Any) -> Any:
    """Finite minimum and maximum of an array on the device that holds it.

    Parameters
    ----------
    samples : NumPy or CuPy array of any integer or float dtype, shape (n,)

    Returns
    -------
    float64 array of the same kind, shape (2,)
        (inf, -inf) where no sample is finite. Integers round to float64, which keeps their order.
    """
    xp = array_module(samples)
    if not samples.size:
        return xp.asarray([np.inf, -np.inf])
    if samples.dtype.kind != "f":
        return xp.stack((samples.min(), samples.max())).astype(np.float64)
    # Floats compare by their bits: CuPy's own comparisons flush float32 subnormals to zero.
    signed = np.dtype(f"i{samples.dtype.itemsize}")
    magnitudes, infinite = np.iinfo(signed).max, int(np.array(np.inf, samples.dtype).view(signed))
    bits = samples.view(signed)
    bits = bits[(bits & magnitudes) < infinite]
    if not bits.size:
        return xp.asarray([np.inf, -np.inf])
    keys = xp.where(bits < 0, bits ^ magnitudes, bits)
    ends = np.array([int(keys.min()), int(keys.max())], signed)
    return xp.asarray(np.where(ends < 0, ends ^ magnitudes, ends).view(samples.dtype).astype(np.float64))


def merge(a: Any, b: Any) -> Any:
    """Finite range of two arrays together, from the range of each."""
    xp = array_module(a)
    return xp.stack((xp.minimum(a[0], b[0]), xp.maximum(a[1], b[1])))


def finite_range_reference(samples: NDArray[Any]) -> NDArray[np.float64]:
    """The same on the CPU by sorting: plain, and independent of `finite_range`."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
        ordered = np.sort(samples.astype(np.float64), kind="stable")
    finite = ordered[np.isfinite(ordered)]
    return np.array([finite[0], finite[-1]] if len(finite) else [np.inf, -np.inf])
