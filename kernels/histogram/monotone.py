"""Bins of a monotone function of the samples: its edges become thresholds among the samples, so counting costs no more.

For a function f that never falls, as computed, f(x) >= edge holds from one sample on: bisection over all values of the
dtype finds it. For one that never rises the bins lie the other way round. Samples of which the function is NaN lie at
one end: one threshold more separates them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module
from kernels.histogram.binning import Binning, Edges

Function = Callable[[NDArray[Any]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class GivenBinning(Binning):
    """Bins between given thresholds, shape (at most bins + 1,), ascending; `edges` only guess where they lie."""

    given: NDArray[Any]

    @property
    def thresholds(self) -> NDArray[Any]:
        """Those that are given."""
        return self.given


@dataclass(frozen=True)
class MonotoneBinning:
    """How samples are counted into bins of a function of them.

    Attributes
    ----------
    binning
        Of the samples.
    rising
        Whether the function never falls.
    limited
        Whether one slot of the binning, the first or the one after underflow, holds samples without a value.
    bins
        Number of bins of the function.
    """

    binning: Binning
    rising: bool
    limited: bool
    bins: int

    def regrouped(self, counted: Any) -> Any:
        """Counts by bins of the function, of those by slots of the binning, both on one device; along the first axis.

        Returns
        -------
        int64 array, shape (bins + 3, ...)
            Underflow, the bins, overflow, NaN.
        """
        inside = self.bins + 2
        slots = array_module(counted).empty((inside + 1, *counted.shape[1:]), np.int64)
        slots[inside:] = counted[-1:]
        if self.rising:
            slots[:inside] = counted[self.limited : self.limited + inside]
            if self.limited:
                slots[inside:] += counted[:1]
        else:
            slots[:inside] = counted[:inside][::-1]
            if self.limited:
                slots[inside:] += counted[inside : inside + 1]
        return slots


def monotone_binning(
    dtype: np.dtype[Any], edges: Edges, function: Function, *, rising: bool, limited: bool, guess: Edges | None = None
) -> MonotoneBinning:
    """The bins of a function.

    Parameters
    ----------
    dtype
        Native dtype of the samples.
    edges : float64 array, shape (bins + 1,), strictly ascending
        Of the function.
    function
        Of samples, monotone as computed where it is not NaN.
    rising
        Whether it never falls; otherwise it never rises.
    limited
        Whether it may be NaN, of the least samples if it rises, else of the greatest.
    guess : shape (bins + 1,)
        Where the edges lie among the samples, about, if they are evenly spaced there.
    """
    with np.errstate(over="ignore"):  # the last bin includes its upper edge
        targets = np.append(edges[:-1], np.nextafter(edges[-1], np.inf))
    if rising:
        thresholds = first_samples(dtype, lambda samples: function(samples) >= targets, len(targets))
        if limited:
            thresholds = np.append(first_samples(dtype, lambda samples: ~np.isnan(function(samples)), 1), thresholds)
    else:
        falling = targets[::-1]
        thresholds = first_samples(dtype, lambda samples: ~(function(samples) >= falling), len(falling))
        if limited:
            thresholds = np.append(thresholds, first_samples(dtype, lambda samples: np.isnan(function(samples)), 1))
    about, regular = guess, True
    if about is None or limited or not (np.isfinite(about).all() and (about[1:] > about[:-1]).all()):
        about, regular = _spread(thresholds, len(targets) + limited), False
    return MonotoneBinning(GivenBinning(dtype, about, regular, thresholds), rising, limited, len(edges) - 1)


def _spread(thresholds: NDArray[Any], number: int) -> Edges:
    """As many numbers between the first and the last threshold, or any others if there is nothing between them."""
    finite = thresholds[np.isfinite(thresholds)].astype(np.float64)
    lower, upper = (float(finite[0]), float(finite[-1])) if len(finite) else (0.0, 0.0)
    return np.linspace(lower, upper, number) if lower < upper < np.inf else np.arange(float(number))


def first_samples(
    dtype: np.dtype[Any], holds: Callable[[NDArray[Any]], NDArray[np.bool_]], number: int
) -> NDArray[Any]:
    """The least sample for which each of so many conditions holds, which then hold for all greater ones.

    Conditions that hold for none are left out; these are the last ones.
    """
    least, greatest = _key(dtype, False), _key(dtype, True)
    low, high = np.full(number, least, np.uint64), np.full(number, greatest, np.uint64)
    with np.errstate(all="ignore"):
        some = holds(_sample(high, dtype))
        for _ in range(8 * dtype.itemsize):
            middle = low + (high - low) // np.uint64(2)
            held = holds(_sample(middle, dtype))
            high = np.where(held, middle, high)
            low = np.where(held, low, middle + np.uint64(1))
        first = _sample(high, dtype)[some]
    first += first.dtype.type(0)  # zero instead of -0.0, which is equal
    return first


def _key(dtype: np.dtype[Any], greatest: bool) -> np.uint64:
    """The key of the least or the greatest sample, infinities included."""
    if dtype.kind != "f":
        return np.uint64(2 ** (8 * dtype.itemsize) - 1 if greatest else 0)
    infinity = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))
    sign = 2 ** (8 * dtype.itemsize - 1)
    return np.uint64(sign + infinity if greatest else sign - 1 - infinity)


def _sample(keys: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The samples of keys, which count them in ascending order."""
    word, sign = np.dtype(f"u{dtype.itemsize}"), np.uint64(2 ** (8 * dtype.itemsize - 1))
    if dtype.kind == "f":
        bits = np.where(keys >= sign, keys - sign, ~keys)
    else:
        bits = keys ^ sign if dtype.kind == "i" else keys
    return bits.astype(word).view(dtype)
