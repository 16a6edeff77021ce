"""Linear maps from samples to positions (linear_map.cuh), and how far bins lie from their exact positions.

The maps are monotonic, so over a bin the position is smallest for the first sample and largest for the last. Both are
evaluated here in the arithmetic of the kernel: what holds for these two holds for all samples of the bin.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Binning

# Keys are samples in the type in which they are compared: 16-bit samples are widened.
KEYS = {"int16": np.int32, "uint16": np.int32, "float16": np.float32}
BITS = {"f4": 23, "f8": 32, "i4": 32, "u4": 32, "i8": 32, "u8": 32}  # of a position, by key type
ORIGIN = {4: 2.0**23, 8: 2.0**52}  # where floats of this many bytes are one apart
MAX_UNCERTAIN = 1 / 16  # fraction of all positions; above it a search is faster than the map


@dataclass(frozen=True)
class LinearMap:
    """Maps keys to positions.

    Attributes
    ----------
    start
        Key that distances are counted from.
    reach
        Last key mapped: its distance for integers, its position for floats.
    scale, offset
        position = distance * scale + offset, rounded down: for 32-bit integers in fixed point, in units of 2**-32; for
        all others in floating point, with ORIGIN included in the offset.
    """

    start: Any
    reach: Any
    scale: Any
    offset: Any

    def positions(self, keys: NDArray[Any]) -> NDArray[np.int64]:
        """Positions of any floats, or of integer keys at or above `start`; 2**62 beyond the map, -1 before it."""
        if keys.dtype.kind != "f" and keys.itemsize == 4:
            fixed = _distance(keys, self.start).astype(np.uint64) * np.uint64(self.scale) + self.offset
            return np.asarray(fixed >> np.uint64(32)).astype(np.int64)
        with np.errstate(all="ignore"):
            far = keys - self.start if keys.dtype.kind == "f" else _distance(keys, self.start).astype(np.float64)
            place = np.floor(far * self.scale).astype(np.float64) + (float(self.offset) - ORIGIN[keys.itemsize])
        return np.where(place < 2.0**62, np.maximum(place, -1.0), 2.0**62).astype(np.int64)


def _most(key: np.dtype[Any]) -> float:
    return float(np.finfo(key).max)


def _distance(keys: NDArray[Any], start: Any) -> NDArray[Any]:
    unsigned = np.dtype(f"u{keys.itemsize}")
    return np.asarray(keys.view(unsigned) - np.asarray(start).view(unsigned))


def make_map(start: Any, last: Any, scale: Fraction, offset: Fraction, positions: int) -> LinearMap | None:
    """The map up to the key `last`, in the keys' arithmetic; None if that arithmetic cannot represent it."""
    key = np.asarray(start).dtype
    origin = ORIGIN[key.itemsize]
    if key.kind == "f":
        if abs(scale) > _most(key) or abs(offset) > origin / 2:
            return None
        return LinearMap(start, np.uint32(positions - 1), key.type(float(scale)), key.type(origin + round(offset)))
    far = int(last) - int(start)
    if key.itemsize == 8:
        if scale > _most(np.dtype(np.float64)) or offset > origin / 2:
            return None
        return LinearMap(start, np.uint64(far), np.float64(scale), np.float64(origin + round(offset)))
    fixed, shift = int(scale * 2**32), int(offset * 2**32)
    if not 0 <= fixed < 2**32 or not 0 <= shift < 2**63 or far * fixed + shift >= 2**64:
        return None
    return LinearMap(start, np.uint32(far), np.uint32(fixed), np.uint64(shift))


@dataclass(frozen=True)
class RegularMap:
    """Evenly spaced bins on a linear map, 2**fraction positions each: see Regular in locate.cuh."""

    line: LinearMap
    fraction: int
    below: int
    uncertain: int


def regular_map(binning: Binning) -> RegularMap | None:
    """Map of evenly spaced bins; None if too few positions determine their bin."""
    key = np.dtype(KEYS.get(binning.dtype.name, binning.dtype))
    bins, keys = binning.bins, binning.thresholds.astype(key)
    if not len(keys) or not keys[0] < keys[-1]:
        return None
    lower, upper = Fraction(float(binning.edges[0])), Fraction(float(binning.edges[-1]))
    per_unit = bins / (upper - lower)
    fraction = BITS[key.str[1:]] - bins.bit_length()
    ends = len(keys) > bins and key.kind != "f"
    last = keys[-1] - key.type(1) if ends else _greatest(binning.dtype, key)
    if key.kind == "f":
        if abs(lower) > _most(key):
            return None
        start = key.type(float(lower))
        shift = (Fraction(float(start)) - lower) * per_unit
    else:
        start = keys[0]
        if key.itemsize == 4:  # adjacent keys are less than one position apart, so the scale fits 32 bits
            fraction = min(fraction, (int(1 / per_unit) + 1).bit_length() - 1)
            while fraction >= 0 and per_unit * 2**fraction >= 1:
                fraction -= 1
            if fraction < 0:
                return None
        # An edge halfway between two integers is safe from rounding.
        shift = max((int(start) - lower) * per_unit + _slack(binning, per_unit), Fraction(0))
    line = make_map(start, last, per_unit * 2**fraction, shift * 2**fraction, bins << fraction)
    return None if line is None else _measured(binning, keys, line, fraction)


def _greatest(dtype: np.dtype[Any], key: np.dtype[Any]) -> Any:
    return key.type(np.inf) if dtype.kind == "f" else key.type(np.iinfo(dtype).max)


def _slack(binning: Binning, per_unit: Fraction) -> Fraction:
    """How far to shift a map of integers so that edges lie halfway between adjacent samples."""
    first = binning.thresholds[: binning.bins]
    inner = first > np.iinfo(binning.dtype).min  # the smallest integer is also the threshold of edges far below it
    above = (first.astype(np.float64) - binning.edges[: len(first)])[inner]  # distance from an edge to its threshold
    if not len(above):
        return Fraction(0)
    return Fraction(float(1 - above.max() - above.min()) / 2) * per_unit


def _measured(binning: Binning, keys: NDArray[Any], line: LinearMap, fraction: int) -> RegularMap | None:
    bins, key = binning.bins, keys.dtype
    starts = keys[:bins]
    number = np.arange(len(starts), dtype=np.int64) << fraction
    if key.kind == "f":
        ends = _before(binning.thresholds[1 : bins + 1], key)
        overflow = int(line.positions(keys[bins:])[0]) if len(keys) > bins else bins << fraction
        reach = min(bins << fraction, overflow) - 1
        if reach < 0:
            return None
        line = LinearMap(line.start, np.uint32(reach), line.scale, line.offset)
    else:
        # The map ends with the last bin, which includes its upper edge.
        if int(line.positions(keys[:1])[0]) >= bins << fraction:
            return None
        line = _shortened(line, (bins << fraction) - 1)
        furthest = np.asarray(int(line.start) + int(line.reach), key)
        ends = np.minimum(np.append(keys[1 : bins + 1] - key.type(1), furthest)[: len(starts)], furthest)
    places = line.positions(starts)
    last = np.minimum(line.positions(ends), (bins << fraction) - 1)
    reached = np.append(keys[1 : bins + 1] > keys[: len(keys[1 : bins + 1])], True)[: len(starts)]
    below = int(np.max(number - places, initial=0, where=reached))
    above = int(np.max(last - number - (1 << fraction) + 1, initial=0, where=reached))
    if key.kind == "f":
        above = max(above, int(line.positions(_before(binning.thresholds[:1], key))[0]) + 1)
    uncertain = below + above
    return RegularMap(line, fraction, below, uncertain) if uncertain <= MAX_UNCERTAIN * 2**fraction else None


def _before(values: NDArray[Any], key: np.dtype[Any]) -> NDArray[Any]:
    """The next smaller samples, as keys."""
    with np.errstate(over="ignore"):
        return np.asarray(np.nextafter(values, values.dtype.type(-np.inf)).astype(key))


def _shortened(line: LinearMap, most: int) -> LinearMap:
    """A map of integers, cut off after the last key whose position is at most `most`."""
    low, high = 0, int(line.reach)
    while low < high:
        middle = (low + high + 1) // 2
        key = np.asarray(int(line.start) + middle, np.asarray(line.start).dtype)
        low, high = (middle, high) if int(line.positions(key[None])[0]) <= most else (low, middle - 1)
    return LinearMap(line.start, type(line.reach)(low), line.scale, line.offset)


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
    offset = (1 - lower * per_unit + _slack(binning, per_unit)) * 2**fraction
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
