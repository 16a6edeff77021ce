"""Two lines of check.cpp between which the slots of evenly spaced bins lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Of a bin, between each line and the exact one: more than lines round, and little enough that they agree nearly always.
LEAST_SLACK, MOST_SLACK = 2.0**-20, 2.0**-10


@dataclass(frozen=True)
class Bracket:
    """A slot is at least ``sample * scale + low`` and at most ``sample * scale + high``, both truncated.

    So it is for all samples clipped to [first, last], in the arithmetic that was asked for: both lines rise with the
    sample, however they round, so what holds for the first and the last number of a slot holds for all. The lower one
    is less by one at most.
    """

    scale: float
    low: float
    high: float
    first: float
    last: float


def bracket_of(bounds: NDArray[np.float64], real: Any = np.float64) -> Bracket | None:
    """The bracket of slots, of which slot i ends before bounds[i]; None if they are not spaced evenly enough.

    Parameters
    ----------
    bounds : float64 array, shape (bins + 1,)
    real
        Dtype of the arithmetic and of the samples: float64 or float32.
    """
    bins = len(bounds) - 1
    with np.errstate(all="ignore"):
        width = (bounds[-1] - bounds[0]) / bins
        middle = 1 - bounds[0] / width
        slack = max(LEAST_SLACK, 2 * np.finfo(real).eps * (bins + 2 + abs(middle)))
        # Samples outside are counted half a bin away, where the lines agree.
        ends = bounds[0] - width / 2, bounds[-1] + width / 2
        numbers = np.array([1 / width, middle - slack, middle + slack, *ends], real)
        starts = bounds.astype(real)
        starts = np.where(starts < bounds, np.nextafter(starts, real(np.inf)), starts)
        if not (slack <= MOST_SLACK and np.isfinite(numbers).all() and np.isfinite(starts).all()):
            return None
        scale, low, high, first, last = numbers
        before = np.nextafter(starts, real(-np.inf))  # the last number of each slot but the last slot
        if not (first <= before[0] and starts[-1] <= last):
            return None
        slot = np.arange(bins + 1)
        holds = (
            (_on_line(before.clip(first, last), scale, low) <= slot)
            & (_on_line(starts.clip(first, last), scale, low) >= slot)
            & (_on_line(starts.clip(first, last), scale, high) >= slot + 1)
        )
        outside = [_on_line(numbers[3:], scale, offset).tolist() == [0, bins + 1] for offset in (low, high)]
    return Bracket(*map(float, numbers)) if holds.all() and all(outside) else None


def _on_line(numbers: NDArray[Any], scale: Any, offset: Any) -> NDArray[np.int64]:
    return np.asarray(numbers * scale + offset).astype(np.int64)
