"""How two arrays of one dtype differ: how many samples, the first of them, and the largest distance in ulp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

STEP = 2**16  # samples compared at a time: what NumPy makes of them stays in the cache


@dataclass(frozen=True)
class Difference:
    """Where samples differ.

    Attributes
    ----------
    differing
        Number of samples that differ.
    first
        Index of the first of them; None if none does.
    ulp
        Largest distance between two that differ, in units in the last place: how many values of the dtype further one
        is, so 1 is the next one, and the plain difference of integers. -0 and 0 are 0 apart. None if no pair that
        differs has a distance.
    nan
        Number of pairs that differ and have no distance, because one of them, or both, is NaN.
    """

    differing: int = 0
    first: int | None = None
    ulp: int | None = None
    nan: int = 0

    def then(self, other: Difference, start: int) -> Difference:
        """These samples and others, whose first one has the index `start`."""
        first = self.first if self.first is not None or other.first is None else start + other.first
        distances = [ulp for ulp in (self.ulp, other.ulp) if ulp is not None]
        return Difference(self.differing + other.differing, first, max(distances, default=None), self.nan + other.nan)


def difference(a: NDArray[Any], b: NDArray[Any], as_values: bool) -> Difference:
    """Compare two arrays.

    Parameters
    ----------
    a, b : arrays of one integer or float dtype, each in either byte order, shape (n,)
    as_values
        Whether NaN equals NaN and -0 equals 0; otherwise samples are equal if all of their bits are.
    """
    total = Difference()
    for start in range(0, len(a), STEP):
        total = total.then(_difference(a[start : start + STEP], b[start : start + STEP], as_values), start)
    return total


def _difference(a: NDArray[Any], b: NDArray[Any], as_values: bool) -> Difference:
    a, b = (np.ascontiguousarray(one.astype(one.dtype.newbyteorder("="), copy=False)) for one in (a, b))
    words = f"u{a.itemsize}"
    places = np.flatnonzero(a.view(words) != b.view(words))
    if not len(places):
        return Difference()
    a, b, nan = a[places], b[places], np.zeros(len(places), bool)
    if a.dtype.kind == "f":
        nan_of_a, nan_of_b = _is_nan(a), _is_nan(b)
        if as_values:
            differ = ~(nan_of_a & nan_of_b) & ((_key(a) != _key(b)) | nan_of_a | nan_of_b)
            places, a, b, nan_of_a, nan_of_b = (one[differ] for one in (places, a, b, nan_of_a, nan_of_b))
        nan = nan_of_a | nan_of_b
    if not len(places):
        return Difference()
    keys_of_a, keys_of_b = _key(a[~nan]), _key(b[~nan])
    # Modulo 2^64, which no distance reaches, whatever the signs.
    apart = np.maximum(keys_of_a, keys_of_b).view(np.uint64) - np.minimum(keys_of_a, keys_of_b).view(np.uint64)
    return Difference(len(places), int(places[0]), int(apart.max()) if len(apart) else None, int(nan.sum()))


def _is_nan(samples: NDArray[Any]) -> NDArray[np.bool_]:
    """By bits: a signalling NaN sets no flag."""
    magnitude = samples.view(f"u{samples.itemsize}") & _most(samples.dtype)
    return np.asarray(magnitude > np.array(np.inf, samples.dtype).view(magnitude.dtype))


def _most(dtype: np.dtype[Any]) -> Any:
    """All bits but the sign."""
    unsigned = np.dtype(f"u{dtype.itemsize}").type
    return unsigned(2 ** (8 * dtype.itemsize - 1) - 1)


def _key(samples: NDArray[Any]) -> NDArray[Any]:
    """64-bit integers in the order of the samples, 1 apart if these are neighbours; the same for -0 and 0."""
    if samples.dtype.kind == "u":
        return samples.astype(np.uint64)
    if samples.dtype.kind == "i":
        return samples.astype(np.int64)
    bits = samples.view(f"i{samples.itemsize}").astype(np.int64)
    magnitude = bits & np.int64(_most(samples.dtype))
    return np.where(bits < 0, -magnitude, magnitude)
