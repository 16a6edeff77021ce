"""Linear maps from samples to positions: `Guess` in guess.cuh, in the same arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Keys are samples in the type in which they are compared: 16-bit samples are widened.
KEYS = {"int16": np.int32, "uint16": np.int32, "float16": np.float32}
MOST = 2**22  # positions; a guess holds 2**23, with room for rounding


@dataclass(frozen=True)
class Guess:
    """Position of a key: its distance from `start` times `scale`, rounded down.

    Attributes
    ----------
    start
        A key. Integers before it are at position 0.
    scale
        float32, or float64 for keys of 8 bytes. Then the product is rounded down to float32 first.
    """

    start: Any
    scale: Any

    def positions(self, keys: NDArray[Any]) -> NDArray[np.int64]:
        """Positions of keys that are not NaN; -1 before the first, `MOST` from there on."""
        with np.errstate(all="ignore"):
            if keys.dtype.kind == "f":
                far = keys - self.start
            else:
                unsigned = np.dtype(f"u{keys.itemsize}")
                clamped = np.maximum(keys, self.start)
                far = (clamped.view(unsigned) - np.asarray(self.start).view(unsigned)).astype(type(self.scale))
            if isinstance(self.scale, np.float32):  # products of two float32 are exact in float64
                place = far.astype(np.float64) * np.float64(self.scale)
            else:
                exact = far * self.scale
                near = exact.astype(np.float32)
                place = np.where(near > exact, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float64)
        return np.asarray(np.clip(np.floor(place), -1, MOST).astype(np.int64))


def key_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which samples are compared."""
    return np.dtype(KEYS.get(dtype.name, dtype))


def make_guess(start: Fraction, scale: Fraction, key: np.dtype[Any]) -> Guess | None:
    """The map of keys from `start` on, or from the key next to it; None if a number has no place in its type."""
    real = np.float64 if key.itemsize == 8 else np.float32
    if not scale > 0 or max(abs(start), scale) > float(np.finfo(real).max) / 2:
        return None
    if key.kind == "f":
        return Guess(key.type(float(start)), real(float(scale)))
    bounds = np.iinfo(key)
    return Guess(key.type(min(max(round(start), int(bounds.min)), int(bounds.max))), real(float(scale)))


def steps_of(thresholds: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """What samples are compared with, and the least guess.

    Returns
    -------
    steps : array of keys, shape (thresholds + 1,)
        The last sample before each threshold, and one that none is above.
    least : int
        Number of thresholds that every sample passes: before these there is none. Guesses are that number or more.
    """
    key = key_of(thresholds.dtype)
    if key.kind == "f":
        with np.errstate(over="ignore"):
            before = np.nextafter(thresholds, thresholds.dtype.type(-np.inf))
        return np.append(before.astype(key), key.type(np.inf)), 0
    least = int(np.count_nonzero(thresholds == np.iinfo(thresholds.dtype).min))
    before = thresholds[least:] - thresholds.dtype.type(1)
    return np.concatenate((np.zeros(least, key), before.astype(key), np.array([np.iinfo(key).max], key))), least
