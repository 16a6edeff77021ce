"""Two lines of check.cpp between which the slots of evenly spaced bins lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SLACK = 2.0**-20  # of a bin, between each line and the exact one: much more than lines round, much less than a bin


@dataclass(frozen=True)
class Bracket:
    """A slot is at least ``sample * scale + low`` and at most ``sample * scale + high``, both clipped and truncated.

    So it is for all float64 samples, in float64 arithmetic: both lines rise with the sample, however they round, so
    what holds for the first and the last number of a slot holds for all. The lower one is less by one at most.
    """

    scale: float
    low: float
    high: float


def bracket_of(bounds: NDArray[np.float64]) -> Bracket | None:
    """The bracket of slots, of which slot i ends before bounds[i]; None if they are not spaced evenly enough."""
    bins = len(bounds) - 1
    first, last = float(bounds[0]), float(bounds[-1])
    with np.errstate(all="ignore"):
        scale = bins / (last - first)
        middle = 1 - first * scale
        bracket = Bracket(scale, middle - SLACK, middle + SLACK)
        if not np.isfinite([scale, middle]).all():
            return None
        slot = np.arange(bins + 2)
        ends = np.nextafter(bounds, -np.inf)  # the last number of each slot but the last slot
        lowest, highest = (
            (numbers * scale + offset).clip(0, bins + 1).astype(np.int64)
            for numbers, offset in ((ends, bracket.low), (bounds, bracket.high))
        )
        lowest_at_start = (bounds * scale + bracket.low).clip(0, bins + 1).astype(np.int64)
    holds = (lowest <= slot[:-1]).all() and (highest >= slot[1:]).all() and (lowest_at_start >= slot[:-1]).all()
    return bracket if holds else None
