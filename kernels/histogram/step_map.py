"""Guesses of slots of evenly spaced edges: `histogram_steps` in gpu.cu.

A guess is right or one too low, which one comparison with a threshold finds out.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.guess import Guess, key_of, make_guess, steps_of


@dataclass(frozen=True)
class StepMap:
    """How slots are guessed: clamped to `least` and to the last of `steps`, with which samples are compared."""

    guess: Guess
    least: int
    steps: NDArray[Any]

    def guesses(self, keys: NDArray[Any]) -> NDArray[np.int64]:
        """Guesses of keys that are not NaN."""
        return np.clip(self.guess.positions(keys), self.least, len(self.steps) - 1)


def step_map(binning: Binning) -> StepMap | None:
    """The guess of evenly spaced edges; None if it would be wrong by more than it may be, or there is no threshold."""
    thresholds, key = binning.thresholds, key_of(binning.dtype)
    if not len(thresholds):
        return None
    lower, upper = Fraction(float(binning.edges[0])), Fraction(float(binning.edges[-1]))
    width = (upper - lower) / binning.bins
    # Thresholds are guessed in the middle between two slots, where a guess may be off by half a slot either way.
    start, scale = lower - width / 2, 1 / width
    if key.kind == "u" and start < 0:
        # No key lies there. From 0 on guesses are a slot lower, so rounding must not lower them.
        start, scale = Fraction(0), scale * (1 + Fraction(1, 2**21))
    guess = make_guess(start, scale, key)
    if guess is None:
        return None
    steps, least = steps_of(thresholds)
    line = StepMap(guess, least, steps)
    beside = np.concatenate((thresholds[least:].astype(key), steps[least:-1]))
    with np.errstate(invalid="ignore"):
        short = np.searchsorted(thresholds.astype(key), beside, side="right") - line.guesses(beside)
    return line if ((short == 0) | (short == 1)).all() else None
