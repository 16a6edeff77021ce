"""Samples that kernels are measured on: what users have, and what is known to be slow somewhere.

Each function returns `count` numbers for given edges, as float64, before `samples_of` gives them the dtype of the case.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

COUNT = 2**20  # samples that are generated; the device repeats them
LANES = 32

Numbers = NDArray[np.float64]
Make = Callable[[np.random.Generator, Numbers, int], Numbers]

RECORDING = Path(__file__).parents[2] / "data" / "ecg.npy"


def _span(edges: Numbers) -> tuple[float, float, float]:
    """Lower and upper edge, and the width between them."""
    return float(edges[0]), float(edges[-1]), float(edges[-1] - edges[0])


def _uniform(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    low, high, _ = _span(edges)
    return random.uniform(low, high, count)


def _gaussian(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    low, high, width = _span(edges)
    return np.clip(random.normal((low + high) / 2, width / 8, count), low, high)


def _in_bins(bins: NDArray[np.integer[Any]], edges: Numbers) -> Numbers:
    """The middle of each of some bins."""
    bins = bins % (len(edges) - 1)
    return np.asarray((edges[bins] + edges[bins + 1]) / 2)


def _zipf(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    weights = np.cumsum(1 / np.arange(1.0, len(edges)))
    return _in_bins(np.searchsorted(weights, random.uniform(0, weights[-1], count)), edges)


def _hot(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    """94 % in eight bins, far apart."""
    bins = len(edges) - 1
    hot = random.integers(0, 8, count) * max(1, bins // 8) + bins // 16
    return _in_bins(np.where(random.random(count) < 16 / 17, hot, random.integers(0, bins, count)), edges)


def _mixed(outside: float, random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    """A share below and above the edges, the rest between them."""
    low, high, width = _span(edges)
    far = width * random.random(count) + 1
    far = np.where(random.random(count) < 0.5, low - far, high + far)
    return np.where(random.random(count) < outside, far, random.uniform(low, high, count))


def _saturated(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    low, high, width = _span(edges)
    return np.clip(random.normal((low + high) / 2, width, count), low, high)


def _wide(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    low, high, width = _span(edges)
    return random.normal((low + high) / 2, width / 1.35, count)


def _with_nan(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    return np.where(random.random(count) < 0.5, np.nan, _gaussian(random, edges, count))


def _on_edges(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    return random.choice(edges, count)


def _eighths(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    low, _, width = _span(edges)
    steps = 8 * (len(edges) - 1)
    return low + width / steps * random.integers(0, steps, count)


def _ramp(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    return _in_bins(np.arange(count) % LANES, edges)


def _one_bank(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    bins = len(edges) - 1
    return _in_bins(random.integers(0, max(1, bins // LANES), count) * LANES, edges)


def _two_far(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    return _in_bins(random.integers(0, 2, count) * (len(edges) // 2), edges)


def _alternating(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    low, high, _ = _span(edges)
    most = max(abs(low), abs(high))
    return np.where(np.arange(count) % 2 == 0, 1, -1) * random.uniform(0, most, count)


@cache
def _recorded() -> Numbers:
    return np.load(RECORDING).astype(np.float64).reshape(-1)


def _recording(random: np.random.Generator, edges: Numbers, count: int) -> Numbers:
    """The recording in `data/`, its values from the lowest to the highest edge."""
    low, _, width = _span(edges)
    samples = _recorded()
    return low + width * np.resize((samples - samples.min()) / np.ptp(samples), count)


DISTRIBUTIONS: dict[str, Make] = {
    "uniform": _uniform,
    "gaussian": _gaussian,
    "zipf": _zipf,
    "hot": _hot,
    "sorted": lambda random, edges, count: np.sort(_uniform(random, edges, count)),
    "constant": lambda random, edges, count: np.full(count, (edges[0] + edges[-1]) / 2),
    "half outside": lambda *given: _mixed(0.5, *given),
    "all outside": lambda *given: _mixed(1.0, *given),
    "normal, half outside": _wide,
    "saturated": _saturated,
    "half NaN": _with_nan,
    "on edges": _on_edges,
    "below edges": _on_edges,
    "eighths of bins": _eighths,
    "subnormal": _uniform,
    "one bank": _one_bank,
    "two far bins": _two_far,
    "ramp across lanes": _ramp,
    "alternating signs": _alternating,
    "recording": _recording,
}  # fmt: skip
OF_FLOATS = ("half NaN", "subnormal")


def samples_of(distribution: str, dtype: str, edges: Numbers, count: int = COUNT) -> NDArray[Any]:
    """Samples of a distribution, shape (count,), the same for the same arguments.

    Parameters
    ----------
    distribution
        One of `DISTRIBUTIONS`; those in `OF_FLOATS` only of floats.
    dtype
    edges : float64 array
        Ascending.
    count
    """
    kind, random = np.dtype(dtype), np.random.default_rng(0)
    numbers = DISTRIBUTIONS[distribution](random, edges, count)
    with np.errstate(over="ignore", invalid="ignore"):
        if kind.kind == "f":
            samples = numbers.astype(kind)
            if distribution == "below edges":
                samples = np.nextafter(samples, kind.type(-np.inf))
            if distribution == "subnormal":
                samples = (random.integers(-1000, 1000, count) * float(np.finfo(kind).smallest_subnormal)).astype(kind)
            return samples
    bounds = np.iinfo(kind)
    whole = np.ceil(numbers) - (distribution == "below edges")
    return np.clip(whole, bounds.min, np.nextafter(float(bounds.max), 0)).astype(kind)
