"""The reference for histograms: NumPy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Edges


def histogram_reference(samples: NDArray[Any], edges: Edges) -> NDArray[np.int64]:
    """Count samples with NumPy's own histogram: plain, and independent of everything else here.

    Parameters
    ----------
    samples : array of any supported dtype and byte order, shape (n,)
    edges : float64 array, shape (bins + 1,), strictly ascending

    Returns
    -------
    int64 array, shape (bins + 3,)
        Underflow, the bins, overflow, NaN (see ``kernels.histogram.binning``).
    """
    # NumPy compares numbers of up to 32 bits with edges as the float64 numbers that they are, and sorts them faster.
    narrow = samples.dtype.kind in "iu" and samples.itemsize <= 4
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
        values = samples.astype(samples.dtype.newbyteorder("=") if narrow else np.float64)
    inside, _ = np.histogram(values, edges)
    below = np.count_nonzero(values < edges[0])
    above = np.count_nonzero(values > edges[-1])
    return np.concatenate(([below], inside, [above], [np.count_nonzero(np.isnan(values))])).astype(np.int64)
