"""The check of histograms against numpy.histogram, boost-histogram and the reference, and of finite ranges."""

from __future__ import annotations

import math
from typing import Any

import boost_histogram as bh
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import kernels.common.compiled_check
import kernels.histogram.check
from kernels.common import cxx
from kernels.histogram.binning import MAX_BINS, Edges
from kernels.histogram.bracket import bracket_of
from kernels.histogram.check import SOURCE as SOURCE
from kernels.histogram.check import WAYS, HistogramCheck, plan
from kernels.histogram.check_range import finite_range_check
from kernels.histogram.reference import histogram_reference
from tests.cases import cpp as cpp_cases
from tests.cases.aggregation_checks import checked, count_checked
from tests.cases.histogram import DTYPES, EDGES, GUESSED, among, irregular, nasty, nearly_even, oracle
from workflows.histogram import FINITE_RANGE, HISTOGRAM, HistogramOptions

pytestmark = pytest.mark.usefixtures("compiled")

REGULAR = {
    "default": np.linspace(0, 1024, 1025),
    "odd": np.linspace(-1.3, 2.7, 1001),
    "wide": np.linspace(-3e4, 3e4, 78),
}


def check(samples: NDArray[Any], edges: Any) -> None:
    """Those of the oracle and of the reference, in either byte order and at any address."""
    edges = np.asarray(edges, np.float64)
    expected = oracle(samples, edges)
    np.testing.assert_array_equal(histogram_reference(samples, edges), expected)
    swapped = samples.astype(samples.dtype.newbyteorder())
    unaligned = np.frombuffer(b"x" + samples.tobytes(), samples.dtype, offset=1)
    for array in (samples, swapped, unaligned, samples[::-1]):
        counts = count_checked(edges, array)
        assert counts.dtype == np.int64
        np.testing.assert_array_equal(counts, expected)


def method(dtype: str, edges: Any) -> tuple[str, int]:
    planned = plan(np.asarray(edges, np.float64), np.dtype(dtype))
    assert planned is not None
    return WAYS[planned.counting.way], planned.counting.what


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 16])
def test_rows_that_take_turns(dtype: str, rows: int) -> None:
    """Their samples are told apart by their indices, in parts that begin anywhere and come in any order."""
    for edges in (np.arange(0, 129, 2.0), np.linspace(-3, 70, 23), np.array([-3.0, 0.0, 7.0, 90.0])):
        samples, start = nasty(dtype, 3001, edges), rows + 1
        planned = plan(edges, np.dtype(dtype))
        assert planned is not None
        check = HistogramCheck(planned).in_turns(rows, lambda counts: counts)
        if check is None:
            assert np.dtype(dtype).itemsize == 2  # 2**16 counters for each row
            continue
        assert check.count_from(start)
        for part in (slice(1030, 3001), slice(0, 1), slice(1, 1030)):
            check.add(samples[part], part.start)
        counts = check.partial()
        assert counts.shape == (rows, len(edges) + 2)
        for row in range(rows):
            np.testing.assert_array_equal(counts[row], oracle(samples[(row - start) % rows :: rows], edges))


def test_what_numpy_counts() -> None:
    """Of every dtype and kind of edges, in arrays of all sizes, that begin anywhere and have gaps; and all ranges."""
    assert cpp_cases.check_counts() > len(DTYPES) * len(EDGES) * len(cpp_cases.SIZES) * 2


@pytest.mark.parametrize(
    ("dtype", "edges", "expected"),
    [
        ("uint8", np.linspace(0, 1000, 78), ("values", 0)), ("float16", [0.0, 1, 7], ("values", 0)),
        ("float32", np.linspace(-1, 1, 1025), ("bracketed", 1)),
        ("float32", np.linspace(2000.3, 2001.3, 1025), ("bracketed", 0)),
        ("int64", np.linspace(0, 1000, 78), ("bracketed", 0)),
        ("int32", np.arange(1025.0), ("leaves", 0)), ("uint64", np.arange(0, 2049, 2.0), ("leaves", 0)),
        ("int32", irregular(1, 300, -500, 500), ("leaves", 0)), ("float64", [-1.0, 0, 4], ("leaves", 1)),
        ("float32", irregular(1, 300, -500, 500), ("leaves", 1)), ("int32", [0, 4, 8, 1e30], ("leaves", 2)),
        ("float64", np.concatenate((1 + np.arange(9) * 2.0**-52, [1e300])), ("leaves", 2)),
    ],
)  # fmt: skip
def test_method(dtype: str, edges: Any, expected: tuple[str, int]) -> None:
    """Each of them, with leaves in one slot, in two and in many."""
    assert method(dtype, edges) == expected
    check(nasty(dtype, 5001, np.asarray(edges, np.float64)), edges)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1023, 1025, 4097, 69_999])
def test_sizes(dtype: str, size: int) -> None:
    for edges in (REGULAR["odd"], irregular(2, 50, -300, 300)):
        check(nasty(dtype, size, edges, seed=size), edges)


def distributions(dtype: str, edges: Edges) -> dict[str, NDArray[Any]]:
    kind = np.dtype(dtype)
    info: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    inside = np.clip(edges, float(info.min), float(info.max) / 2).astype(kind)
    found = {"equal": np.full(3001, inside[len(inside) // 3]), "alternating": np.resize(inside[[1, -2]], 3001),
             "on edges": np.resize(inside, 3001), "ends": np.resize(np.array([info.min, info.max], kind), 3001),
             "zeros": np.zeros(3001, kind)}  # fmt: skip
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            beside = np.concatenate([np.nextafter(inside, kind.type(end)) for end in (np.inf, -np.inf)])
        tiny = np.arange(3001).astype(f"u{kind.itemsize}").view(kind)
        found |= {name: np.full(3001, value, kind) for name, value in
                  (("NaN", np.nan), ("-NaN", -np.nan), ("inf", np.inf), ("-inf", -np.inf), ("-0.0", -0.0))}  # fmt: skip
        found |= {"subnormal": np.concatenate((tiny, -tiny)), "beside edges": beside}
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*REGULAR, "zero", "irregular", "subnormal", "int64"])
def test_distributions(dtype: str, name: str) -> None:
    others = {"zero": np.array([-1.0, 0, 1]), "irregular": irregular(3, 200, -100, 100),
              "subnormal": np.array([-5e-324, 0, 5e-324, 1e-310, 1e-40, 1e-7]),
              "int64": np.array([-(2.0**63), -(2.0**53) - 2, 0, 2.0**53 + 2, 2.0**63, 2.0**64])}  # fmt: skip
    edges = {**REGULAR, **others}[name]
    for samples in distributions(dtype, edges).values():
        check(samples, edges)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("bins", [1, 8189, 8190, 65_533, 65_534, MAX_BINS])
def test_numbers_of_bins(dtype: str, bins: int) -> None:
    """As many as are counted in each number of tables; in one bin, in all in turns, in a random order."""
    for edges in (np.linspace(0, bins, bins + 1), irregular(3, bins, 0, float(bins))):
        for numbers in among(bins):
            samples = numbers.astype(dtype)
            np.testing.assert_array_equal(count_checked(edges, samples), oracle(samples, edges))


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    bins=st.integers(1, 200),
    jitter=st.sampled_from([0, 1e-16, 1e-9, 1e-6, 2e-6, 0.3, 0.9]),
    lower=st.sampled_from([-1e15, -1000.7, 0.0, 3e9, 1e-310]),
    width=st.sampled_from([1e-312, 1e-6, 0.4, 1.0, 7.3, 1e6, 1e305]),
    seed=st.integers(0, 2**32 - 1),
)
def test_edges_that_are_nearly_even(
    dtype: str, bins: int, jitter: float, lower: float, width: float, seed: int
) -> None:
    """Lines bracket the slots where each edge is nearly where it would be if all were even."""
    edges = nearly_even(bins, jitter, lower, width, seed)
    if len(edges) > 1 and np.isfinite(edges).all():
        check(nasty(dtype, 3000, edges, seed), edges)


@settings(max_examples=100, deadline=None)
@given(
    dtype=st.sampled_from(["int32", "uint64", "float32", "float64"]),
    edges=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=40, unique=True),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_edges(dtype: str, edges: list[float], seed: int) -> None:
    ordered = np.unique(edges)
    if len(ordered) > 1:
        check(nasty(dtype, 2000, ordered, seed), ordered)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", GUESSED)
def test_lines_bracket_slots(name: str, dtype: str) -> None:
    """By the definition: the lower line is never above the slot nor two below, the upper one never below."""
    bounds = np.append(GUESSED[name][:-1], np.nextafter(GUESSED[name][-1], np.inf))
    real: Any = np.dtype(dtype).type
    bracket = bracket_of(bounds, real)
    if dtype == "float32" and name in ("below zero", "wide"):  # many bins, or far from zero for their width
        assert bracket is None
        return
    assert bracket is not None
    samples = nasty(dtype, 50_000, GUESSED[name])
    samples = samples[~np.isnan(samples)]
    slots = np.searchsorted(bounds, samples.astype(np.float64), side="right")
    clipped = samples.clip(real(bracket.first), real(bracket.last))
    low, high = (
        (clipped * real(bracket.scale) + real(offset)).astype(np.int64) for offset in (bracket.low, bracket.high)
    )
    assert (low <= slots).all() and (slots <= high).all() and (slots <= low + 1).all()
    assert (low != high).mean() < 0.9 and low.min() >= 0
    wrong = bounds.copy()
    wrong[len(wrong) // 2] += 1e-2 * (wrong[1] - wrong[0])
    assert bracket_of(wrong, real) is None


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32", "float64"])
def test_counts_are_boost_histogram_s(dtype: str) -> None:
    """Which compares in float64; its last bin lacks the upper edge, so no sample is on that."""
    for edges in (np.arange(0, 1025.0, 8), irregular(5, 99, -20_000, 20_000)):
        samples = nasty(dtype, 50_000, edges)
        with np.errstate(invalid="ignore"):
            values = samples.astype(np.float64)
        kept = (values == values) & (values != edges[-1])
        samples, values = samples[kept], values[kept]
        boost = bh.Histogram(bh.axis.Variable(edges), storage=bh.storage.Int64())
        boost.fill(values)
        expected = np.append(boost.view(flow=True).astype(np.int64), 0)
        np.testing.assert_array_equal(count_checked(edges, samples), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_more_samples_than_counters_hold(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = np.linspace(-50, 200, 34)
    monkeypatch.setattr(kernels.histogram.check, "MOST", 999)
    for name in ("MOST", "COPIED"):
        monkeypatch.setattr(kernels.common.compiled_check, name, 999)
        check(nasty(dtype, 10_000, edges), edges)
    samples = nasty(dtype, 10_000, edges)[::3]
    finite = [value for value in samples.tolist() if math.isfinite(value)]
    assert checked(finite_range_check(samples.dtype), samples).tolist() == [float(min(finite)), float(max(finite))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_count_differs(dtype: str) -> None:
    """As the job declares it: of the right partial nothing differs, of a wrong one that slot does."""
    options = HistogramOptions(bins=32, range=(-50.0, 200.0))
    samples = nasty(dtype, 5000, options.all_edges)
    partial, expected = HISTOGRAM.compute(samples, options), checked(HISTOGRAM.check(options, samples.dtype), samples)
    np.testing.assert_array_equal(partial, expected)
    partial[7] += 1
    partial[9] -= 1
    assert np.flatnonzero(partial != expected).tolist() == [7, 9]
    ends = FINITE_RANGE.compute(samples, options)
    expected_ends = checked(FINITE_RANGE.check(options, samples.dtype), samples)
    np.testing.assert_array_equal(ends, expected_ends)
    ends[1] = ends[0]
    assert np.flatnonzero(ends != expected_ends).tolist() == [1]


def test_without_a_compiler_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference checks everything then."""
    options, dtype = HistogramOptions(), np.dtype("int32")
    assert HISTOGRAM.check(options, dtype) and FINITE_RANGE.check(options, dtype)
    monkeypatch.setattr(cxx, "library", lambda source: None)
    assert HISTOGRAM.check(HistogramOptions(), dtype) is FINITE_RANGE.check(options, dtype) is None
