"""Counts samples that are kept by ranges of values, with the ordinary kernels: bins are cut where a range ends.

Slots of the finer bins are then added up, those of samples that are left out in one number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.gpu import histogram
from kernels.histogram.monotone import GivenBinning, first_samples
from kernels.histogram.step_map import step_map

EVEN = 2**14  # bins of equal width, which are counted as fast as few
UNEVEN = 2**12  # others

Holds = Callable[[NDArray[Any]], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class RefinedBinning:
    """Finer bins.

    Attributes
    ----------
    binning
    group : int64 array, shape (slots,)
        For each slot of the binning 0 if its samples are left out, else their slot in the bins that were asked for,
        plus 1.
    groups
    """

    binning: Binning
    group: NDArray[np.int64]
    groups: int

    def count(self, samples: Any) -> Any:
        """Number of samples that are left out, then underflow, the bins, overflow and NaN of the others.

        Parameters
        ----------
        samples : CuPy array, as of `histogram`

        Returns
        -------
        CuPy int64 array, shape (bins + 4,)
            On the current stream.
        """
        import cupy

        order, ends = _sorted(self, int(cupy.cuda.runtime.getDevice()))
        up_to = cupy.zeros(len(order) + 1, np.int64)
        up_to[1:] = histogram(samples, self.binning)[order].cumsum()
        return up_to[ends[1:]] - up_to[ends[:-1]]


@lru_cache(maxsize=8)
def _sorted(refined: RefinedBinning, device: int) -> tuple[Any, Any]:
    """Slots in the order of their groups, and where each group begins and the last one ends; on a device."""
    import cupy

    order = np.argsort(refined.group, kind="stable")
    ends = np.searchsorted(refined.group[order], np.arange(refined.groups + 1))
    return cupy.asarray(order), cupy.asarray(ends)


def refined_binning(binning: Binning, changes: Sequence[Holds], keeps: Holds) -> RefinedBinning | None:
    """Bins cut where samples are no longer, or again, kept; None if counting in these takes long.

    Parameters
    ----------
    binning
    changes
        Conditions that hold from some sample on: between those where one of them begins to hold, all samples are kept
        or all are left out.
    keeps
        Whether samples of the binning's dtype are kept, NaN included.
    """
    thresholds, dtype = binning.thresholds, binning.dtype
    least = np.array([-np.inf if dtype.kind == "f" else np.iinfo(dtype).min], dtype)

    def groups(starts: NDArray[Any]) -> NDArray[np.int64]:
        """Of the least sample and of these."""
        samples = np.concatenate([least, starts])
        return np.where(keeps(samples), 1 + binning.find(samples), 0)

    begins = np.unique(np.concatenate([thresholds, *(first_samples(dtype, holds, 1) for holds in changes)]))
    begins = begins[np.diff(groups(begins)) != 0]
    finer = (
        binning if np.isin(begins, thresholds).all() else _even(begins) or _on_line(binning, begins) or _uneven(begins)
    )
    if finer is None:
        return None
    of_starts, group = groups(finer.thresholds), np.zeros(finer.slots, np.int64)
    group[: len(of_starts)] = of_starts
    if dtype.kind == "f" and keeps(np.array([np.nan], dtype))[0]:
        group[-1] = binning.slots
    return RefinedBinning(finer, group, binning.slots + 1)


def _even(begins: NDArray[Any]) -> Binning | None:
    """Bins of equal width that begin wherever these integers are; None if there are too many."""
    if begins.dtype.kind == "f" or not 1 < len(begins) <= EVEN:
        return None
    first, *others = begins.tolist()
    width = gcd(*(number - first for number in others))
    if (others[-1] - first) // width >= EVEN:
        return None
    even = np.array(range(first, others[-1] + 1, width), begins.dtype)
    edges = even.astype(np.float64)
    return GivenBinning(begins.dtype, edges, True, even) if (np.diff(edges) > 0).all() else None


def _on_line(binning: Binning, begins: NDArray[Any]) -> Binning | None:
    """Bins as wide as those that were asked for, but for the first and the last: off by less than half a bin."""
    if not binning.regular or len(begins) < 2:
        return None
    width, numbers = (binning.edges[-1] - binning.edges[0]) / binning.bins, np.arange(float(len(begins)))
    with np.errstate(all="ignore"):
        starts = begins.astype(np.float64) - width * numbers
        edges = (starts.min() + starts.max()) / 2 + width * numbers
    if not (starts.max() - starts.min() < width and edges[0] < edges[-1] < np.inf):
        return None
    line = GivenBinning(begins.dtype, edges, True, begins)
    return line if step_map(line) else None


def _uneven(begins: NDArray[Any]) -> Binning | None:
    if len(begins) > UNEVEN:
        return None
    starts = begins if len(begins) > 1 else begins.repeat(2)  # there is a bin
    return GivenBinning(starts.dtype, np.arange(float(len(starts))), False, starts)
