"""How two blocks divide counters between them: halves.cuh."""

from __future__ import annotations

from functools import lru_cache
from math import gcd, sqrt

import numpy as np
from numpy.typing import NDArray

CIRCLE = 2**32
TURN = sqrt(2) - 1  # from one counter to the next, about: far from fractions with small denominators
ROOM = 1.03  # places for each counter: a multiplier is rounded, so that counters are not quite evenly spaced


@lru_cache(maxsize=8)
def halves(counters: int) -> tuple[int, int]:
    """Places of a half, and the multiplier with which every counter has a place of its own."""
    places = int(counters * ROOM / 2) + 1
    numbers = np.arange(counters, dtype=np.uint32)
    for turn in range(round(counters * TURN), counters):
        if gcd(turn, counters) == 1:
            multiplier = round(CIRCLE * turn / counters)
            if np.bincount(_places(numbers, multiplier, places)).max() == 1:
                return places, multiplier
    raise RuntimeError(f"expected a multiplier for {counters} counters, got none")


def half_bytes(places: int) -> int:
    """Shared memory of a half, and of the place that all counters of the other one share."""
    return 4 * (places + 1)


def _places(counters: NDArray[np.uint32], multiplier: int, places: int) -> NDArray[np.int64]:
    """The place of each counter, those of the second half after those of the first."""
    on_circle = (counters * np.uint32(multiplier)).astype(np.uint64)
    return (on_circle * np.uint64(2 * places) >> np.uint64(32)).astype(np.int64)
