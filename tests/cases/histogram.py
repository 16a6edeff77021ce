"""Hard samples and edges for histograms, with the expected counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from kernels.common import device
from kernels.histogram.binning import Binning, Edges
from kernels.histogram.cpu import histogram_cpu, histogram_numpy
from kernels.histogram.gpu import histogram
from kernels.histogram.launch import C_TYPES
from kernels.histogram.reference import histogram_reference
from workflows.histogram import HistogramOptions

DTYPES = tuple(C_TYPES)
HUGE = float(np.finfo(np.float64).max)
TINY = float(np.nextafter(0.0, 1.0))

bounded = settings(max_examples=25, deadline=None)


def irregular(seed: int, bins: int, lower: float, upper: float) -> Edges:
    """Edges anywhere between two numbers."""
    inner = np.random.default_rng(seed).uniform(lower, upper, 2 * bins)
    return np.unique(inner)[: bins + 1]


def nearly_even(bins: int, jitter: float, lower: float, width: float, seed: int) -> Edges:
    """Edges, each up to `jitter` widths away from where it would be if all were even."""
    random = np.random.default_rng(seed)
    return np.unique(lower + width * (np.arange(bins + 1) + jitter * random.uniform(-1, 1, bins + 1)))


def among(bins: int) -> Iterator[NDArray[np.int64]]:
    """Numbers below `bins`: all in turn, one alone, all in a random order."""
    some = np.arange(20_003) % bins
    yield from (some, np.full(20_003, bins // 2), np.random.default_rng(0).permutation(some))


EDGES: dict[str, tuple[Any, bool]] = {  # name: (edges, evenly spaced)
    "default": (np.linspace(0, 1024, 1025), True),
    "one bin": ([0, 100], True),
    "two values wide": (np.arange(-512, 513, 2), True),
    "over the ends of 8 bits": (np.arange(-300, 301, 4), True),
    "over the ends of 32 bits": (np.arange(-(2**33), 2**33 + 1, 2**26), True),
    "past the end of 32 bits": (np.arange(0, 2**32 + 1, 2**22), True),
    "fractions": (np.linspace(-1000.5, 999.25, 78), True),
    "between two integers": (np.linspace(0.1, 0.9, 4), True),
    "last bin ends early": (np.linspace(0, 6.5, 3), True),
    "last bin narrow": ([0, 4, 8, 9], False),
    "last bin wide": ([0, 4, 8, 100], False),
    "last bin past the end of integers": ([0, 4, 8, 1e30], False),
    "last bin without integers": ([0.5, 1.5, 1.7], False),
    "irregular": (irregular(1, 300, -500, 500), False),
    "geometric": (np.geomspace(1e-30, 1e30, 200), False),
    "all int64": (np.linspace(-(2.0**63), 2.0**63, 257), True),
    "upper half of uint64": (np.linspace(2.0**63, 2.0**64, 1001), True),
    "beyond 2**53": (np.linspace(2.0**60, 2.0**60 + 2**12, 9), True),
    "ulps of float64": (np.linspace(1e15, 1e15 + 0.875, 6), True),
    "ulps of float32": (np.linspace(1, 1 + 7 * 2.0**-23, 6), True),
    "ulps of float16": (np.linspace(1, 1 + 7 * 2.0**-10, 6), True),
    "subnormal float64": (np.linspace(-10 * TINY, 10 * TINY, 11), True),
    "subnormal float32": (np.linspace(-1e-43, 1e-43, 37), True),
    "subnormal float16": (np.linspace(0, 2.0**-14, 100), True),
    "far above": (np.linspace(1e300, 2e300, 5), True),
    "far below": (np.linspace(-2e300, -1e300, 5), True),
    "huge bins": (np.linspace(-1e300, 1e300, 12), True),
    "all float64": ([-HUGE, -1.0, 0.0, 1.0, HUGE], False),
}


def oracle(samples: NDArray[Any], edges: Edges) -> NDArray[np.int64]:
    """Slots by numpy.histogram alone: bins for underflow and overflow are added, the last edge is moved by one ulp."""
    with np.errstate(all="ignore"):
        values = samples.astype(np.float64)
        around = np.concatenate(([-np.inf], edges[:-1], [np.nextafter(edges[-1], np.inf), np.inf]))
    numbers = values[~np.isnan(values)]
    return np.append(np.histogram(numbers, around)[0], len(values) - len(numbers)).astype(np.int64)


def points(dtype: np.dtype[Any], edges: Edges, at_most: int = 100) -> NDArray[Any]:
    """Values on at most so many of the edges, next to them, and at the ends of the dtype."""
    some = edges[np.unique(np.linspace(0, len(edges) - 1, at_most).astype(int))]
    if dtype.kind == "f":
        info = np.finfo(dtype)
        special = [np.nan, np.inf, 0.0, -0.0, info.max, info.tiny, info.smallest_subnormal, 1.0]
        with np.errstate(all="ignore"):
            on = np.concatenate((some.astype(dtype), np.array(special, dtype), -np.array(special, dtype)))
            return np.concatenate((on, np.nextafter(on, dtype.type(np.inf)), np.nextafter(on, dtype.type(-np.inf))))
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    steps = (-513, -512, -2, -1, 0, 1, 2, 511, 512, 1025)
    around = [int(edge) + step for edge in (*some.tolist(), low, high, 0) for step in steps]
    return np.array([min(max(value, low), high) for value in around], dtype)


def beside(binning: Binning) -> NDArray[Any]:
    """Every threshold, its neighbours on either side, and the ends of the dtype; no NaN."""
    values = binning.thresholds
    if binning.dtype.kind == "f":
        ends = np.array([-np.inf, np.inf, 0.0, -0.0], binning.dtype)
        with np.errstate(all="ignore"):
            near = [np.nextafter(values, binning.dtype.type(way)) for way in (-np.inf, np.inf)]
        return np.concatenate((values, *near, ends))
    low, high = np.iinfo(binning.dtype).min, np.iinfo(binning.dtype).max
    one = binning.dtype.type(1)
    ends = np.array([low, low + 1, high - 1, high], binning.dtype)
    return np.concatenate((values, values[values > low] - one, values[values < high] + one, ends))


def nasty(dtype: str | np.dtype[Any], size: int, edges: Edges, seed: int = 0) -> NDArray[Any]:
    """Samples in random order: a third on and next to edges, a third between them, a third random bits."""
    dtype, rng = np.dtype(dtype), np.random.default_rng(seed)
    patterns = np.frombuffer(rng.bytes(size * dtype.itemsize), dtype)
    low, high = float(edges[0]), float(edges[-1])
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            among = (low + (high / 2 - low / 2) * rng.uniform(-0.1, 2.1, size)).astype(dtype)
    else:
        first, last = (min(max(int(end), int(np.iinfo(dtype).min)), int(np.iinfo(dtype).max)) for end in (low, high))
        among = rng.integers(first, last, size, dtype, endpoint=True)
    which = rng.integers(0, 3, size)
    return np.where(which == 0, rng.choice(points(dtype, edges), size), np.where(which == 1, among, patterns))


def assert_counts(samples: NDArray[Any], edges: Any, regular: bool) -> None:
    """The CPU counterpart (compiled and NumPy) and the reference agree with numpy.histogram."""
    edges = np.asarray(edges, np.float64)
    expected = oracle(samples, edges)
    native = samples.dtype.newbyteorder("=")
    binning = Binning(native, edges, regular)
    ways = (histogram_cpu(samples, binning), histogram_numpy(samples, binning), histogram_reference(samples, edges))
    for got in ways:
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, expected)
    assert expected.sum() == len(samples)


# Evenly spaced, so that a bin is guessed by a multiplication, which is most often wrong at the ends of a bin.
GUESSED = {
    "10 bits": np.linspace(0, 1023, 1001),
    "narrow": np.linspace(-0.7, 0.9, 1001),
    "far from zero": np.linspace(20_000.3, 30_000.7, 997),
    "below zero": np.linspace(-30_000.7, -11_000.1, 3001),
    "wide": np.linspace(-2e9, 1.9e9, 4001),
    "wider": np.linspace(-9e18, 1.7e19, 1003),
    "widest": np.linspace(-3e38, 2.9e38, 1003),
}


ONE_BLOCK = device.Limits(1, 1024, 1024, 65536, 102400, 101376)


def gpu_edges(dtype: str, stem: str, bins: int) -> tuple[Edges, bool]:
    """Edges over most of a dtype for which the wrapper picks a given kernel."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        lower, upper = {2: (-6e4, 6.5e4), 4: (-1e30, 2e30), 8: (-1e100, 1e100)}[kind.itemsize]
    else:
        lower, upper = float(np.iinfo(kind).min) * 0.9, float(np.iinfo(kind).max) * 0.95
    if stem == "histogram_linear":
        return 17 + (2**21 // bins | 1) * np.arange(bins + 1.0), True  # an odd width
    if stem == "histogram_shift":
        # Bins one value wide at least; within 2**53, since beyond it edges that float64 holds are not exact thresholds.
        k = max(0, min(kind.itemsize * 8, 53) - (bins + 2).bit_length())
        start = max(int(np.iinfo(kind).min), -(bins << k) // 2 // 2**k * 2**k)
        return start + np.arange(bins + 1) * 2.0**k, True
    if stem == "histogram_narrow":
        width = 3 if bins <= 4096 else 1
        return np.arange(bins + 1) * width - bins * width // 2 + (32768 - 0.5 if kind.kind == "u" else -0.5), True
    if stem == "histogram_search":
        return irregular(bins, bins, lower, upper), False
    if stem == "histogram_steps" and kind.kind in "iu" and kind.itemsize == 4:  # too narrow for a linear map
        return 17.3 + 0.61 * np.arange(bins + 1), True
    return np.linspace(lower, upper, bins + 1), True


def stems(dtype: str, bins: int = 1024) -> Iterator[str]:
    """The kernels that count a dtype."""
    if np.dtype(dtype).itemsize == 1:
        yield "histogram_bytes"
        return
    if np.dtype(dtype).kind in "iu" and np.dtype(dtype).itemsize == 2 and 1 < bins <= 2**15:
        yield "histogram_narrow"
    if np.dtype(dtype).kind in "iu" and bins > 1:  # one bin has no width to shift by
        yield "histogram_shift"
    if np.dtype(dtype).kind in "iu" and np.dtype(dtype).itemsize == 4:
        yield "histogram_linear"
    yield from ("histogram_steps", "histogram_search")


def kernels_for(dtype: str, stem: str, bins: int) -> set[str]:
    """The kernel that edges were made for, or its fallback."""
    search = {"histogram_search"}  # takes any edges
    if np.dtype(dtype).kind not in "iu" or np.dtype(dtype).itemsize != 2:
        return {stem} | (search if stem == "histogram_steps" else set())
    if stem == "histogram_shift":  # where all counters fit a block, and where they do not
        return {"histogram_narrow"} if bins <= 4096 else {"histogram_narrow", stem} if bins <= 2**16 else {stem}
    if stem == "histogram_steps":
        return {stem, "histogram_narrow", "histogram_linear"} | search
    # Bins one value wide are shifted by nothing.
    return {stem, "histogram_narrow"} | ({"histogram_shift"} if bins > 4096 else set())


CASES = [(dtype, stem) for dtype in DTYPES for stem in stems(dtype)]


def assert_refused(make: Callable[[Any, Any], Any]) -> None:
    """The wrapper refuses arrays that a kernel would misread; make(values, dtype) makes an array."""
    binning = HistogramOptions().binning(np.dtype(np.int32))
    with pytest.raises(TypeError, match="expected samples of int32, got uint32; convert them first"):
        histogram(make(range(8), np.uint32), binning)
    with pytest.raises(TypeError, match="expected samples of int32, got float64"):
        histogram(make(range(8), np.float64), binning)
    square = make(range(16), np.int32).reshape(4, 4)
    with pytest.raises(ValueError, match=r"expected one contiguous dimension, got shape \(4, 4\)"):
        histogram(square, binning)
    with pytest.raises(ValueError, match=r"got shape \(4,\), strides \(16,\); pass cupy.ascontiguousarray"):
        histogram(square[:, 1], binning)
    with pytest.raises(ValueError, match=r"strides \(-4,\)"):
        histogram(square[0][::-1], binning)
