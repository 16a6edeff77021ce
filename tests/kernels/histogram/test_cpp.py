"""Compiled counting: which function is chosen, all of them against NumPy, and the fallback to NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import kernels.histogram.cpu
from kernels.common import cxx
from kernels.histogram.binning import MAX_BINS, Binning, Edges
from kernels.histogram.cpu import (
    COUNTER_TABLES,
    SOURCE,
    _compiled_function,
    _method,
    count_compiled,
    count_turns,
    histogram_cpu,
)
from tests.cases import cpp as native_cases
from tests.cases.histogram import DTYPES, EDGES, among, irregular, nasty, nearly_even, oracle


@pytest.fixture(autouse=True)
def plans(compiled: Any) -> Iterator[None]:
    """Clear the cached functions, since a test may change their inputs."""
    _compiled_function.cache_clear()
    yield
    _compiled_function.cache_clear()


def binning_of(dtype: str, edges: Any) -> Binning:
    return Binning(np.dtype(dtype), np.asarray(edges, np.float64), False)


def check(samples: NDArray[Any], edges: Edges) -> None:
    got = count_compiled(samples, binning_of(samples.dtype.name, edges))
    assert got is not None and got.dtype == np.int64
    np.testing.assert_array_equal(got, oracle(samples, edges))


def test_what_numpy_counts() -> None:
    """Of every dtype and kind of edges, in arrays of all sizes, that begin anywhere and have gaps."""
    assert native_cases.check_histogram() == len(DTYPES) * len(EDGES) * len(native_cases.SIZES) * 2 + 104


@pytest.mark.parametrize(
    ("dtype", "edges", "name"),
    [
        ("uint8", np.arange(0, 257, 2.0), "patterns"), ("int16", np.linspace(0, 1000, 78), "patterns"),
        ("float16", np.linspace(0, 1, 11), "patterns"), ("int16", np.arange(-512, 513, 2.0), "shifted"),
        ("int32", np.arange(1025.0), "shifted"), ("uint64", np.linspace(0, 2.0**40, 1025), "shifted"),
        ("int32", np.linspace(0, 1000, 78), "guessed"), ("float32", np.linspace(-1, 1, 1025), "guessed"),
        ("float64", np.linspace(-1e300, 1e300, 12), "guessed"), ("int64", np.linspace(-9e18, 9e18, 1000), "guessed"),
        ("float64", [-1.7e308, 0, 1.7e308], "searched"), ("float32", irregular(1, 300, -500, 500), "searched"),
        ("int32", irregular(2, 300, -1e9, 1e9), "searched"), ("uint32", [1e30, 2e30], "searched"),
        ("float64", np.geomspace(1e-30, 1e30, 200), "searched"),
    ],
)  # fmt: skip
def test_method(dtype: str, edges: Any, name: str) -> None:
    functions: Any = cxx.library(SOURCE)
    assert _method(functions, binning_of(dtype, edges))[0].__name__ == f"count_{name}"


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(["int32", "uint64", "float32", "float64"]),
    bins=st.integers(1, 200),
    jitter=st.sampled_from([0, 1e-9, 0.3, 0.49, 0.5, 0.51, 0.9]),
    lower=st.sampled_from([-1e15, -1000.7, 0.0, 3e9]),
    width=st.sampled_from([1e-6, 0.4, 1.0, 7.3, 1e6]),
    seed=st.integers(0, 2**32 - 1),
)
def test_edges_that_are_nearly_even(
    dtype: str, bins: int, jitter: float, lower: float, width: float, seed: int
) -> None:
    """A linear map is used if no edge is half a bin away from it, otherwise a search."""
    edges = nearly_even(bins, jitter, lower, width, seed)
    if len(edges) > 1:
        check(nasty(dtype, 3000, edges, seed), edges)


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32", "float64"])
@pytest.mark.parametrize(
    "bins", sorted({1, MAX_BINS, *(most - 3 + more for most, _ in COUNTER_TABLES for more in (0, 1))})
)
def test_numbers_of_bins(dtype: str, bins: int) -> None:
    """Sizes for each number of tables; samples in one bin, in all bins in turn, in random order."""
    upper = 30_000.0 if dtype == "int16" else float(bins)
    for edges in (np.linspace(0, upper, bins + 1), irregular(3, bins, 0, upper)):
        for samples in among(min(bins, 30_000)):
            check(samples.astype(dtype), edges)


def test_more_bins_than_values() -> None:
    edges = np.arange(-(2.0**15), 2.0**17)
    functions: Any = cxx.library(SOURCE)
    assert _method(functions, binning_of("int16", edges))[0].__name__ == "count_shifted"
    check(np.arange(-(2**15), 2**15).astype(np.int16), edges)


@pytest.mark.parametrize("dtype", DTYPES)
def test_more_samples_than_counters_hold(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = np.linspace(-50, 200, 33)
    samples = nasty(dtype, 10_000, edges)
    for name in ("MAX_SAMPLES", "COPIED_SAMPLES"):
        monkeypatch.setattr(kernels.histogram.cpu, name, 999)
    check(samples, edges)
    check(samples[::2], edges)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_of_every_kind(dtype: str) -> None:
    """Quiet and signalling, of both signs, with any payload; also alone, and with bins that begin at 0."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    infinite = np.array(np.inf, dtype).view(unsigned)
    random = np.random.default_rng(1).integers(1, 2**20, 5000).astype(unsigned)
    signs = np.where(np.arange(5000) % 2, unsigned.type(1) << unsigned.type(8 * unsigned.itemsize - 1), 0)
    nan = (infinite + random | signs.astype(unsigned)).view(dtype)
    assert np.isnan(nan).all()
    for edges in (np.linspace(0, 1, 11), np.array([-3.0, 0, 1e10])):
        check(nan, edges)
        check(np.concatenate((nan, np.array([0, -0.0, 1, -1, np.inf, -np.inf], dtype), nan[:7])), edges)


@pytest.mark.parametrize(
    ("dtype", "table"), [("int16", "slot_of_pattern"), ("float32", "thresholds"), ("int64", "thresholds")]
)
def test_a_function_keeps_its_tables(dtype: str, table: str) -> None:
    """From Python 3.12 on two threads may both compute a cached property; the second one replaces that of the first."""
    binning = binning_of(dtype, [-3.0, 0.0, 7.0, 90.0])
    count = _compiled_function(binning)
    assert count is not None
    first = ref(binning.__dict__.pop(table))
    slots = np.zeros(binning.slots, np.int64)
    samples = np.arange(-100, 100).astype(dtype)
    assert first() is not None, "the counting function has the address of freed memory"
    count(samples, slots[None], 0)
    np.testing.assert_array_equal(slots, oracle(samples, binning.edges))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 16])
def test_rows_that_take_turns(dtype: str, rows: int) -> None:
    """Each row by itself, whichever the first sample belongs to, also where pieces end."""
    for edges in (np.arange(0, 129, 2.0), np.linspace(-3, 70, 23), np.array([-3.0, 0.0, 7.0, 90.0])):
        samples = nasty(dtype, 3001, edges)
        for first, number in ((0, 1), (rows - 1, 1025), (1, 3001)):
            got = count_turns(samples[:number], binning_of(dtype, edges), rows, first)
            assert got is not None and got.shape == (rows, len(edges) + 2)
            for row in range(rows):
                np.testing.assert_array_equal(got[row], oracle(samples[:number][(row - first) % rows :: rows], edges))


def test_rows_whose_counters_do_not_fit_a_cache() -> None:
    samples, binning = np.zeros(100, np.float32), binning_of("float32", np.linspace(0, 1, 1025))
    assert count_turns(samples, binning, 100, 0) is not None and count_turns(samples, binning, 200, 0) is None


def test_without_a_compiler_numpy_counts(monkeypatch: pytest.MonkeyPatch, count_calls: Any) -> None:
    samples, binning = np.arange(5000, dtype=np.int32), binning_of("int32", np.arange(1025.0))
    asked = count_calls(kernels.histogram.cpu, "histogram_numpy")
    expected = histogram_cpu(samples, binning)
    assert not asked
    _compiled_function.cache_clear()
    monkeypatch.setattr(cxx, "library", lambda stem: None)
    np.testing.assert_array_equal(histogram_cpu(samples, binning), expected)
    assert len(asked) == 1
