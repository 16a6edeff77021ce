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
    # Floats compare by their bits: CuPy's own comparisons flush float32 subnormals to zero. As signed integers positive
    # ones have their order, as unsigned ones negative ones the opposite order, above all positive ones.
    size = samples.dtype.itemsize
    bits, words = samples.view(f"i{size}"), samples.view(f"u{size}")
    magnitudes = int(np.iinfo(bits.dtype).max)
    infinite = int(np.array(np.inf, samples.dtype).view(bits.dtype))
    least, most, first, last = (int(end) for end in (bits.min(), bits.max(), words.min(), words.max()))
    low, high = (last if least < 0 else least), (most if most >= 0 else first)
    if most >= infinite or last - magnitudes - 1 >= infinite:
        keys = bits ^ (bits >> (8 * size - 1) & magnitudes)
        finite = -((bits & magnitudes) < infinite).astype(bits.dtype)  # all bits or none; faster than where
        if not finite.any():
            return xp.asarray([np.inf, -np.inf])
        ends = (keys & finite | ~finite & magnitudes).min(), (keys & finite | ~finite & -magnitudes - 1).max()
        low, high = (key ^ magnitudes if key < 0 else key for key in map(int, ends))
    unsigned = [end & (2 * magnitudes + 1) for end in (low, high)]
    return xp.asarray(np.array(unsigned, words.dtype).view(samples.dtype).astype(np.float64))


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
