"""Maps of integers to counters, clamped: `Shift`, `Linear` and `Narrow` in locate.cuh.

Each never decreases from a sample to the next larger one. It is used only if the samples on both sides of every
threshold get the right counter; then all others do, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.guess import key_of


@dataclass(frozen=True)
class Clamps:
    """What samples outside of the bins count as.

    Attributes
    ----------
    low
        What samples below the first threshold count as: the sample before it, or the smallest of all if that is in the
        first bin.
    last, beyond
        Samples above `last`, the last one in the bins, count as `beyond`. Of no meaning if there are none.
    bins
        Counters up to this one are as many slots; the next ones come one after theirs, because the upper edge, which is
        in the last bin, has a counter of its own.
    skipped
        Slots before the first counter.
    """

    low: int
    last: int
    beyond: int
    bins: int
    skipped: int = 0

    def __call__(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(samples > self.last, self.beyond, np.maximum(samples, self.low))


@dataclass(frozen=True)
class ShiftMap:
    """Counter of a sample: its distance from `base`, shifted."""

    clamps: Clamps
    base: int
    shift: int


@dataclass(frozen=True)
class FixedMap:
    """Counter of a sample: ((sample - low) * scale + offset) >> (32 + fraction), in 64 bits."""

    clamps: Clamps
    scale: int
    offset: int
    fraction: int

    def counters(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counters of samples of up to 32 bits."""
        far = (self.clamps(samples) - self.clamps.low).astype(np.uint64)
        fixed = far * np.uint64(self.scale) + np.uint64(self.offset)
        return (fixed >> np.uint64(32 + self.fraction)).astype(np.int64)


def shift_map(binning: Binning) -> ShiftMap | None:
    """The map of integers in bins that are all 2**k values wide; None if they are not."""
    if binning.shift is None:
        return None
    bounds, first, width = np.iinfo(binning.dtype), int(binning.thresholds[0]), 1 << binning.shift
    end = first + binning.bins * width  # the upper edge
    last = int(binning.thresholds[-1]) - 1 if len(binning.thresholds) > binning.bins else int(bounds.max)
    low = max(first - 1, int(bounds.min))
    # Bins one value wide are not compared with `last`: the samples above it begin at `end` if the upper edge lies
    # between two samples. Their counters begin with the lowest sample, which may be in the first bin.
    open_end = width == 1 and last == end - 1 < bounds.max
    clamps = Clamps(low, last, end + width - open_end, binning.bins + open_end, int(width == 1 and low == first))
    # The upper edge, and what the last bin may have beyond it, come one counter after it.
    if last >= end + width or (last < bounds.max and clamps.beyond > _most(binning)):
        return None
    if binning.bins + 3 << binning.shift > 2 ** (8 * key_of(binning.dtype).itemsize):
        return None  # distances would wrap around
    return ShiftMap(clamps, first - width, binning.shift)


def fixed_map(binning: Binning) -> FixedMap | None:
    """The map of integers of up to 32 bits to counters of evenly spaced bins; None if the one tried is not right."""
    keys, bounds = binning.thresholds.astype(np.int64), np.iinfo(binning.dtype)
    if binning.dtype.itemsize > 4 or not len(keys) or not keys[0] < keys[-1]:
        return None
    lower, upper = Fraction(float(binning.edges[0])), Fraction(float(binning.edges[-1]))
    per_unit = binning.bins / (upper - lower)
    last = int(keys[-1]) - 1 if len(keys) > binning.bins else int(bounds.max)
    low = max(int(keys[0]) - 1, int(bounds.min))
    fraction = 32 - (binning.bins + 3).bit_length()
    while fraction >= 0 and round(per_unit * 2 ** (32 + fraction)) >= 2**32:
        fraction -= 1
    start = 1 - (lower - low) * per_unit + slack(binning, per_unit)
    if fraction < 0 or start < 0:
        return None
    unit = 2 ** (32 + fraction)
    scale, offset = round(per_unit * unit), round(start * unit)
    if not scale:
        return None
    beyond = low - (offset - (binning.bins + 2) * unit) // scale  # the first that counts two after the last bin
    if last < bounds.max and beyond > _most(binning):
        return None
    line = FixedMap(Clamps(low, last, beyond, binning.bins), scale, offset, fraction)
    ends = np.array([bounds.min, bounds.max, low, last, min(last + 1, int(bounds.max))])
    beside = np.concatenate((keys, np.maximum(keys - 1, bounds.min), ends))
    counters = line.counters(beside)
    slots = counters - (counters > binning.bins)
    right = np.searchsorted(keys, beside, side="right")
    return line if (slots == right).all() and counters.max() <= binning.bins + 2 else None


def _most(binning: Binning) -> int:
    """The greatest key, which may be above all samples."""
    return int(np.iinfo(key_of(binning.dtype)).max)


def slack(binning: Binning, per_unit: Fraction) -> Fraction:
    """How far to shift a map of integers so that edges lie halfway between adjacent samples."""
    first = binning.thresholds[: binning.bins]
    above = first.astype(np.float64) - binning.edges[: len(first)]  # distance from an edge to its threshold
    inner = above[first > np.iinfo(binning.dtype).min]  # no sample lies below the smallest integer
    if not len(inner):
        return Fraction(0)
    return Fraction(float(1 - inner.max() - above.min()) / 2) * per_unit


@dataclass(frozen=True)
class NarrowMap:
    """A map from 16-bit integers to counters: see Narrow in locate.cuh.

    Attributes
    ----------
    low, last, beyond
        Samples below `low` count as `low`, those above `last` as `beyond`.
    scale, offset, fraction
        counter = (sample * scale + offset) >> fraction, modulo 2**32.
    slot_of : uint32 array
        Slot of each counter.
    """

    low: int
    last: int
    beyond: int
    scale: np.uint32
    offset: np.uint32
    fraction: int
    slot_of: NDArray[np.uint32]


def narrow_map(binning: Binning) -> NarrowMap | None:
    """Map on which every counter belongs to one slot; None if the one tried has a counter that belongs to two."""
    keys = binning.thresholds.astype(np.int64)
    if not len(keys) or not keys[0] < keys[-1]:
        return None
    bounds = np.iinfo(binning.dtype)
    low, last = max(int(keys[0]) - 1, int(bounds.min)), int(bounds.max)
    if len(keys) > binning.bins:
        last = int(keys[-1]) - 1
    lower, upper = Fraction(float(binning.edges[0])), Fraction(float(binning.edges[-1]))
    per_unit = binning.bins / (upper - lower)
    fraction = 31 - (binning.bins + 2).bit_length()
    offset = (1 - lower * per_unit + slack(binning, per_unit)) * 2**fraction
    scale = round(per_unit * 2**fraction)
    beyond = last + 2 + int(1 / per_unit)
    if scale >= 2**31 or beyond >= 2**31:
        return None
    values = np.arange(int(bounds.min), int(bounds.max) + 1)
    counters = (
        np.where(values > last, beyond, np.maximum(values, low)) * scale + round(offset) % 2**32
    ) % 2**32 >> fraction
    slots = binning.slot_of_pattern[values % 2**16]
    slot_of = np.zeros(int(counters.max()) + 1, np.uint32)
    slot_of[counters] = slots
    if len(slot_of) > 2 * binning.slots or (slot_of[counters] != slots).any():
        return None
    return NarrowMap(low, last, beyond, np.uint32(scale), np.uint32(round(offset) % 2**32), fraction, slot_of)
