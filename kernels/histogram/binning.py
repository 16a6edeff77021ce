"""Exact binning: float64 edges become thresholds in the sample's own dtype, so that a kernel only compares.

A sample x falls where ``numpy.histogram`` puts ``float64(x)``: in bin i when ``edges[i] <= x < edges[i + 1]``; the
last bin includes its upper edge. Conversion to float64 preserves order, so each edge has a threshold, the smallest
value of the dtype that reaches it, and the slot of a sample is the number of thresholds at or below it:

====================  =============================================
slot                  holds
====================  =============================================
0                     underflow, below ``edges[0]``
1 … bins              the bins
bins + 1              overflow, above ``edges[bins]``
bins + 2              NaN
====================  =============================================

A threshold that no value of the dtype reaches is dropped: nothing can lie above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_BINS = 2**20

Edges = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Binning:
    """The bins of a histogram for samples of one dtype.

    Attributes
    ----------
    dtype
        Native-endian dtype of the samples and of the thresholds.
    edges : float64 array, shape (bins + 1,)
        Strictly ascending and finite.
    regular
        Whether the edges are evenly spaced, up to their own rounding.
    """

    dtype: np.dtype[Any]
    edges: Edges
    regular: bool

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    @property
    def slots(self) -> int:
        """Number of slots: underflow, the bins, overflow, NaN."""
        return self.bins + 3

    @cached_property
    def thresholds(self) -> NDArray[Any]:
        """Smallest sample at or above each edge (above the last one); ascending, shape (at most bins + 1,)."""
        # The last bin includes its upper edge, so it ends at the next float64 above that edge, or at infinity.
        with np.errstate(over="ignore"):
            targets = np.append(self.edges[:-1], np.nextafter(self.edges[-1], np.inf))
        return _smallest_at_least(targets, self.dtype)

    @cached_property
    def shift(self) -> int | None:
        """k if the samples are integers and every bin is exactly 2**k values wide, else None."""
        starts = self.thresholds[: self.bins]
        if self.dtype.kind not in "iu" or len(starts) < 2:
            return None
        width = int(starts[1]) - int(starts[0])
        # 2**62 keeps offsets from the first threshold inside a signed 64-bit integer.
        if not 0 < width * self.bins <= 2**62 or width & (width - 1):
            return None
        inside = (int(np.iinfo(self.dtype).max) - int(starts[0])) // width + 1
        gaps = np.diff(starts.astype(np.int64)).view(np.uint64)  # modulo 2**64, so that no difference overflows
        even = len(starts) == min(self.bins, inside) and bool((gaps == width).all())
        # With explicit edges the last bin may be narrower than the others.
        ends = self.thresholds[self.bins :]
        even = even and not (len(ends) and int(ends[0]) < int(starts[0]) + width * self.bins)
        return width.bit_length() - 1 if even else None

    @cached_property
    def slot_of_pattern(self) -> NDArray[np.uint32]:
        """Slot of every bit pattern of a 1- or 2-byte dtype, shape (256,) or (65536,)."""
        values = np.arange(2 ** (8 * self.dtype.itemsize), dtype=f"u{self.dtype.itemsize}").view(self.dtype)
        return np.where(values == values, self.find(values), self.bins + 2).astype(np.uint32)

    def find(self, samples: NDArray[Any]) -> NDArray[np.intp]:
        """Slot of every sample by binary search; samples must not be NaN."""
        return np.searchsorted(self.thresholds, samples, side="right")


def _smallest_at_least(targets: Edges, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Smallest t of the dtype with ``float64(t) >= target``, for ascending targets; targets without one are dropped."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # past the dtype's range the result is infinity
            nearest = targets.astype(dtype)
            above = np.nextafter(nearest, dtype.type(np.inf))
        return np.where(nearest.astype(np.float64) < targets, above, nearest)
    bounds = np.iinfo(dtype)
    reachable = targets[targets <= np.float64(bounds.max)]
    if dtype.itemsize < 8:
        return np.maximum(np.ceil(reachable), bounds.min).astype(dtype)
    # 64-bit integers round on their way to float64: bisect on the definition, as an offset from the dtype's minimum.
    low = np.zeros(len(reachable), np.uint64)
    high = np.full(len(reachable), np.iinfo(np.uint64).max, np.uint64)
    minimum = np.uint64(bounds.min % 2**64)
    for _ in range(64):
        middle = low + (high - low) // np.uint64(2)
        reached = (middle + minimum).view(dtype).astype(np.float64) >= reachable
        high = np.where(reached, middle, high)
        low = np.where(reached, low, np.minimum(middle + np.uint64(1), high))
    return (high + minimum).view(dtype)
