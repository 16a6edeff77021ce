"""Samples that the histogram's kernels are measured on: each distribution is what its name says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.benchmarks.distributions import DISTRIBUTIONS, LANES, OF_FLOATS, samples_of
from tests.benchmarks.histogram_kernel import CASES, distributions_of, options_of

COUNT = 2**14
# Wide enough for each property to be seen, and within every dtype; of both signs, and above zero.
EDGES = {
    "int32": np.arange(-2048.0, 2049, 4),
    "uint16": np.arange(2048.0, 6145, 4),
    "float32": np.linspace(-2, 2, 1025),
    "float64": np.linspace(1, 3, 1001),
}
Numbers = NDArray[np.float64]


def drawn(distribution: str, dtype: str) -> tuple[Numbers, Numbers, Numbers]:
    """Samples as float64, their edges, and the bin of each sample, -1 below and `bins` above."""
    edges = EDGES[dtype]
    samples = samples_of(distribution, dtype, edges, COUNT)
    assert samples.dtype == dtype and samples.shape == (COUNT,)
    numbers = samples.astype(np.float64)
    return numbers, edges, np.searchsorted(edges, numbers, side="right") - 1.0


def kinds(distribution: str) -> list[str]:
    return [dtype for dtype in EDGES if distribution not in OF_FLOATS or np.dtype(dtype).kind == "f"]


def share(condition: Any) -> float:
    return float(np.mean(condition))


def outside(numbers: Numbers, edges: Numbers) -> Any:
    return (numbers < edges[0]) | (numbers > edges[-1])


@pytest.mark.parametrize(
    "distribution", ["uniform", "sorted", "ramp across lanes", "one bank", "two far bins", "zipf", "hot"]
)
def test_all_inside(distribution: str) -> None:
    for dtype in kinds(distribution):
        numbers, edges, _ = drawn(distribution, dtype)
        assert not outside(numbers, edges).any()


@pytest.mark.parametrize("dtype", EDGES)
def test_spread_over_the_bins(dtype: str) -> None:
    bins = len(EDGES[dtype]) - 1
    _, _, uniform = drawn("uniform", dtype)
    assert len(np.unique(uniform)) > 0.99 * bins and np.bincount(uniform.astype(int)).max() < 0.01 * COUNT
    assert (np.diff(drawn("sorted", dtype)[0]) >= 0).all() and len(np.unique(drawn("sorted", dtype)[2])) > 0.99 * bins
    assert len(np.unique(drawn("constant", dtype)[0])) == 1
    gaussian = drawn("gaussian", dtype)[2]
    assert 0.6 < share(abs(gaussian - bins / 2) < bins / 8) < 0.75
    zipf = np.bincount(drawn("zipf", dtype)[2].astype(int))
    assert zipf[0] > 1.7 * zipf[1] > 2.5 * zipf[3]
    hot = np.sort(np.bincount(drawn("hot", dtype)[2].astype(int)))[::-1]
    assert 0.92 < hot[:8].sum() / COUNT < 0.96 and hot[8] < 0.01 * COUNT


@pytest.mark.parametrize("dtype", EDGES)
def test_outside_of_the_range(dtype: str) -> None:
    for distribution, least, most in (
        ("half outside", 0.45, 0.55),
        ("all outside", 0.999, 1),
        ("normal, half outside", 0.45, 0.55),
    ):
        numbers, edges, _ = drawn(distribution, dtype)
        assert least <= share(outside(numbers, edges)) <= most
        assert share(numbers < edges[0]) > 0.2 and share(numbers > edges[-1]) > 0.2
    numbers, edges, _ = drawn("saturated", dtype)
    assert share(numbers == edges[0]) > 0.2 and share(numbers == edges[-1]) > 0.2


@pytest.mark.parametrize("dtype", EDGES)
def test_beside_edges(dtype: str) -> None:
    kind, edges = np.dtype(dtype), EDGES[dtype]
    on = edges.astype(kind)
    assert np.isin(samples_of("on edges", dtype, edges, COUNT), on).all()
    before = np.nextafter(on, kind.type(-np.inf)) if kind.kind == "f" else on - kind.type(1)
    below = samples_of("below edges", dtype, edges, COUNT)
    assert np.isin(below, before).all() and len(np.unique(below)) > 0.9 * len(edges)
    numbers, _, bins = drawn("eighths of bins", dtype)
    width = edges[1] - edges[0]
    eighths = (numbers - edges[0]) / width * 8
    if kind.kind == "f":
        assert abs(eighths - np.round(eighths)).max() < 1e-2
        assert len(np.unique(np.round(eighths) % 8)) == 8
    assert len(np.unique(bins)) > 0.99 * (len(edges) - 1)


@pytest.mark.parametrize("dtype", EDGES)
def test_where_lanes_meet(dtype: str) -> None:
    edges, bins = EDGES[dtype], len(EDGES[dtype]) - 1
    ramp = drawn("ramp across lanes", dtype)[2]
    assert (ramp == np.arange(COUNT) % LANES).all()
    assert (drawn("one bank", dtype)[2] % LANES == 0).all() and len(
        np.unique(drawn("one bank", dtype)[2])
    ) == bins // LANES
    far = np.unique(drawn("two far bins", dtype)[2])
    assert len(far) == 2 and far[1] - far[0] == len(edges) // 2


def test_of_both_signs() -> None:
    for dtype in ("int32", "float32"):
        numbers, _, _ = drawn("alternating signs", dtype)
        assert (numbers[::2] >= 0).all() and (numbers[1::2] <= 0).all() and share(numbers != 0) > 0.99


def test_floats_alone() -> None:
    for dtype in ("float32", "float64"):
        assert 0.45 < share(np.isnan(samples_of("half NaN", dtype, EDGES[dtype], COUNT))) < 0.55
        subnormal = samples_of("subnormal", dtype, EDGES[dtype], COUNT)
        assert (abs(subnormal) < np.finfo(dtype).tiny).all()
        assert share(subnormal > 0) > 0.4 and share(subnormal < 0) > 0.4


@pytest.mark.parametrize("dtype", EDGES)
def test_recording_fills_the_range(dtype: str) -> None:
    numbers, edges, bins = drawn("recording", dtype)
    assert not outside(numbers, edges).any() and len(np.unique(bins)) > 50
    assert abs(np.diff(numbers)).mean() < 0.2 * np.ptp(edges)  # a signal, not noise


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_same_for_every_case(name: str) -> None:
    """Any dtype and number of bins that is measured; the same samples each time."""
    for dtype, bins, limits in CASES:
        if name in distributions_of(dtype, bins):
            edges = options_of(bins, limits).all_edges
            first, second = (samples_of(name, dtype, edges, 1000) for _ in range(2))
            assert first.dtype == dtype and first.shape == (1000,)
            assert first.tobytes() == second.tobytes()
            assert name == "half NaN" or not np.isnan(first.astype(np.float64)).any()
