"""Histogram counts against numpy.histogram, boost-histogram and plain Python; its options and result; its kernels."""

from __future__ import annotations

import json
import math
import operator
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boost_histogram as bh
import numpy as np
import pytest
import uhi.schema
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels import build, extent
from kernels.binning import MAX_BINS, Binning, Edges
from kernels.histogram import (
    C_TYPES,
    CACHED_BYTES,
    KEYS,
    THREADS,
    VARIANTS,
    histogram,
    histogram_cpu,
    histogram_reference,
)
from pipeline.generate import DISTRIBUTIONS, generate
from workflows import WORKFLOWS
from workflows.histogram import HISTOGRAM, HistogramOptions, HistogramResult, every_sample_counted_once

DTYPES = tuple(C_TYPES)
HUGE = float(np.finfo(np.float64).max)
TINY = float(np.nextafter(0.0, 1.0))
SOURCE, STREAM = ((build.SOURCES / name).read_text(encoding="utf-8") for name in ("histogram.cu", "stream.cuh"))

bounded = settings(max_examples=60, deadline=None)


def irregular(seed: int, bins: int, lower: float, upper: float) -> Edges:
    """Edges anywhere between two numbers."""
    inner = np.random.default_rng(seed).uniform(lower, upper, 2 * bins)
    return np.unique(inner)[: bins + 1]


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


def nasty(dtype: str | np.dtype[Any], size: int, edges: Edges, seed: int = 0) -> NDArray[Any]:
    """Samples in random order: a third on and beside edges, a third among the edges, a third any bits at all."""
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
    """The CPU counterpart and the reference both say what numpy.histogram says."""
    edges = np.asarray(edges, np.float64)
    expected = oracle(samples, edges)
    native = samples.dtype.newbyteorder("=")
    for found in (histogram_cpu(samples, Binning(native, edges, regular)), histogram_reference(samples, edges)):
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)
    assert expected.sum() == len(samples)


# --- counts on the CPU ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_are_numpy_s(dtype: str, name: str) -> None:
    edges, regular = EDGES[name]
    samples = nasty(dtype, 5000, np.asarray(edges, np.float64))
    assert_counts(samples, edges, regular)
    assert_counts(samples.astype(samples.dtype.newbyteorder()), edges, regular)


@pytest.mark.parametrize("size", [1, 31, 1023, 1024, 1025, 2**17 + 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_of_every_size(dtype: str, size: int) -> None:
    """The last size is more than the CPU takes at a time, and not a multiple of it, from 4 bytes on."""
    for name in ("default", "fractions", "irregular"):
        edges, regular = EDGES[name]
        assert_counts(nasty(dtype, size, np.asarray(edges, np.float64)), edges, regular)


@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_of_samples_on_one_side(dtype: str) -> None:
    """All below, all above, all inside, and with nothing but the closed last edge beyond what a shift places."""
    for edges in (np.arange(30, 95, 2.0), np.linspace(30, 94.5, 33)):
        for values in ([30, 50, 93], [29, 3, 0], [95, 96, 100], [30, 94], [94, 94], [29, 94], [30, 95]):
            assert_counts(np.array(values, dtype), edges, regular=True)
            assert_counts(np.array(values, dtype), edges, regular=False)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "float16"])
def test_counts_of_narrow_samples_over_several_blocks(dtype: str) -> None:
    samples = nasty(dtype, 2 * CACHED_BYTES // np.dtype(dtype).itemsize + 3, EDGES["default"][0])
    assert_counts(samples, *EDGES["default"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_of_views(dtype: str) -> None:
    """Unaligned, strided and reversed views, as a file read at any offset gives them."""
    edges, regular = EDGES["fractions"]
    samples = nasty(dtype, 3001, edges)
    unaligned = np.frombuffer(b"x" + samples.tobytes(), dtype, offset=1)
    assert unaligned.flags.aligned == (samples.itemsize == 1)
    for view in (unaligned, samples[::3], samples[::-1], samples[7:]):
        assert_counts(view, edges, regular)
    np.testing.assert_array_equal(oracle(unaligned, edges), oracle(samples, edges))


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize(("bins", "size"), [(2, 3000), (1000, 3000), (2**16, 30_000), (MAX_BINS, 30_000)])
def test_counts_in_many_bins(dtype: str, bins: int, size: int) -> None:
    upper = 60_000.0 if dtype in ("int16", "float16") else 1e9
    for edges, regular in ((np.linspace(-upper, upper, bins + 1), True), (irregular(2, bins, -upper, upper), False)):
        assert len(edges) == bins + 1
        assert_counts(nasty(dtype, size, edges), edges, regular)


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


@pytest.mark.parametrize("name", GUESSED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_on_and_beside_every_edge(dtype: str, name: str) -> None:
    edges = GUESSED[name]
    assert_counts(points(np.dtype(dtype), edges, len(edges)), edges, regular=True)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
def test_counts_of_every_distribution(tmp_path: Path, dtype: str, distribution: str) -> None:
    generate(tmp_path / "samples.bin", 20_000, dtype, distribution, seed=1)
    samples = np.fromfile(tmp_path / "samples.bin", np.dtype(dtype).newbyteorder("<"))
    options = HistogramOptions()
    expected = oracle(samples, np.linspace(0, 1024, 1025))
    np.testing.assert_array_equal(HISTOGRAM.compute(samples.astype(dtype, copy=False), options), expected)
    np.testing.assert_array_equal(HISTOGRAM.reference(samples, options), expected)
    assert expected[1:1025].sum() == 20_000


@pytest.mark.parametrize("dtype", DTYPES)
@bounded
@given(data=st.data())
def test_counts_are_the_definition(dtype: str, data: st.DataObject) -> None:
    """A few samples, placed one by one by Python's own comparisons."""
    finite = st.floats(allow_nan=False, allow_infinity=False)
    edges = data.draw(st.sets(st.one_of(finite, st.integers(-300, 300).map(float)), min_size=2, max_size=9).map(sorted))
    if dtype[0] == "f":
        values = st.floats(width=int(dtype[5:]))  # type: ignore[arg-type]
    else:
        values = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    near = points(np.dtype(dtype), np.array(edges)).tolist()
    chosen = data.draw(st.lists(st.one_of(values, st.sampled_from(near)), min_size=1, max_size=40))
    expected = [0] * (len(edges) + 2)
    for value in map(float, chosen):
        last = len(edges) - 1
        slot = len(edges) + 1 if math.isnan(value) else last if value == edges[-1] else bisect_right(edges, value)
        expected[slot] += 1
    samples = np.array(chosen, dtype)
    assert histogram_cpu(samples, Binning(samples.dtype, np.array(edges), False)).tolist() == expected
    assert histogram_reference(samples, np.array(edges)).tolist() == expected


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float16", "float32", "float64"])
def test_counts_are_boost_histogram_s(dtype: str, name: str) -> None:
    """boost-histogram compares in float64 too, but its last bin is open: the last edge is overflow there, as is NaN."""
    edges = np.asarray(EDGES[name][0], np.float64)
    samples = nasty(dtype, 5000, edges, seed=3)
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = samples.astype(np.float64)
    boost = bh.Histogram(bh.axis.Variable(edges), storage=bh.storage.Int64())
    boost.fill(values[~np.isnan(values)])
    expected = np.append(boost.view(flow=True).astype(np.int64), np.isnan(values).sum())
    on_last_edge = int((values == edges[-1]).sum())
    expected[-3] += on_last_edge
    expected[-2] -= on_last_edge
    np.testing.assert_array_equal(histogram_cpu(samples, Binning(samples.dtype, edges, EDGES[name][1])), expected)


# --- combining --------------------------------------------------------------------------------------------------------


@bounded
@given(data=st.data())
def test_any_split_in_any_order_gives_the_same_bits(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    name = data.draw(st.sampled_from([*EDGES]))
    edges = np.asarray(EDGES[name][0], np.float64)
    samples = nasty(dtype, 2000, edges, seed=data.draw(st.integers(0, 5)))
    binning = Binning(samples.dtype, edges, EDGES[name][1])
    cuts = sorted(data.draw(st.lists(st.integers(0, 2000), max_size=8)))
    partials = [histogram_cpu(part, binning) for part in np.split(samples, cuts)]
    while len(partials) > 1:  # a tree of any shape
        a, b = (partials.pop(data.draw(st.integers(0, len(partials) - 1))) for _ in range(2))
        partials.append(HISTOGRAM.combine(a, b))
    assert partials[0].dtype == np.int64
    assert partials[0].tobytes() == histogram_cpu(samples, binning).tobytes()


def test_counts_above_32_bits_combine_exactly() -> None:
    """2**40 + 2**7 samples in one bin, from partials: nothing passes through a 32-bit or a floating-point number."""
    samples = np.full(2**7 + 1, 5, np.int32)
    samples[0] = 2000
    partial = HISTOGRAM.compute(samples, HistogramOptions())
    total = partial
    for _ in range(33):
        total = HISTOGRAM.combine(total, total)
    total = HISTOGRAM.combine(partial, total)
    assert (int(total[6]), int(total[1025])) == (2**40 + 2**7, 2**33 + 1)
    assert every_sample_counted_once(total, (2**33 + 1) * (2**7 + 1)) is None
    assert HISTOGRAM.finalize(total, HistogramOptions()).samples == (2**33 + 1) * (2**7 + 1)


def test_counts_above_32_bits_on_the_cpu() -> None:
    """More than 2**32 samples in one array, of one byte of memory."""
    samples = np.broadcast_to(np.int8(-3), 2**32 + 3)
    found = histogram_cpu(samples, Binning(samples.dtype, np.array([-4.0, -3, -2]), True))
    assert found.tolist() == [0, 0, 2**32 + 3, 0, 0]


# --- extent -----------------------------------------------------------------------------------------------------------


def exact_extent(samples: NDArray[Any]) -> list[float]:
    finite = [value for value in samples.tolist() if math.isfinite(value)]
    return [float(min(finite)), float(max(finite))] if finite else [math.inf, -math.inf]


@pytest.mark.parametrize("dtype", DTYPES)
def test_extent(dtype: str) -> None:
    for size in (1, 2, 1023, 5000):
        for samples in (nasty(dtype, size, np.array([-300.0, 300.0]), seed=size), np.full(size, 77, dtype)):
            expected = exact_extent(samples)
            for found in (extent.extent(samples), extent.extent_reference(samples)):
                assert found.dtype == np.float64
                assert found.tolist() == expected
            halves = [extent.extent(samples[: size // 2]), extent.extent(samples[size // 2 :])]
            assert extent.merge(*halves).tolist() == extent.merge(*halves[::-1]).tolist() == expected
            swapped = samples.astype(samples.dtype.newbyteorder())
            assert extent.extent_reference(swapped).tolist() == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_extent_ignores_what_is_not_finite(dtype: str) -> None:
    mixed = np.array([np.nan, 3, np.inf, -2.5, -np.inf, np.nan], dtype)
    none = np.array([np.nan, np.inf, -np.inf, np.nan], dtype)
    for count in (extent.extent, extent.extent_reference):
        assert count(mixed).tolist() == [-2.5, 3]
        assert count(none).tolist() == [math.inf, -math.inf]
        assert count(none[:1]).tolist() == [math.inf, -math.inf]
    assert extent.merge(extent.extent(none), extent.extent(mixed)).tolist() == [-2.5, 3]
    assert extent.merge(extent.extent(none), extent.extent(none)).tolist() == [math.inf, -math.inf]


# --- options and result -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bins": 0}, "--bins: expected 1 to 1048576, got 0"),
        ({"bins": -1}, "--bins: expected 1 to 1048576, got -1"),
        ({"bins": MAX_BINS + 1}, "--bins: expected 1 to 1048576, got 1048577"),
        ({"range": "all"}, "--range: expected LO HI or auto, got 'all'"),
        ({"range": (math.nan, 1.0)}, "--range: expected two finite numbers, got nan 1.0"),
        ({"range": (0.0, math.inf)}, "--range: expected two finite numbers, got 0.0 inf"),
        ({"range": (-math.inf, 0.0)}, "--range: expected two finite numbers, got -inf 0.0"),
        ({"range": (1.0, 1.0)}, "--range: expected LO below HI, got 1.0 1.0"),
        ({"range": (2.0, 1.0)}, "--range: expected LO below HI, got 2.0 1.0"),
        ({"range": (1.0, 1.0 + 1e-14)}, "--bins: 1024 bins over 1.0 to 1.00000000000001 "),
        ({"range": (-HUGE, HUGE)}, "--bins: 1024 bins over -1.79"),
        ({"edges": np.array([1.0])}, "--edges: expected 2 to 1048577 numbers, got 1 in shape (1,)"),
        ({"edges": np.zeros((2, 2))}, "--edges: expected 2 to 1048577 numbers, got 4 in shape (2, 2)"),
        ({"edges": np.arange(MAX_BINS + 2.0)}, "--edges: expected 2 to 1048577 numbers, got 1048578 "),
        ({"edges": np.array([0.0, math.nan])}, "--edges: expected finite numbers, got NaN or infinity; "),
        ({"edges": np.array([0.0, math.inf])}, "--edges: expected finite numbers, got NaN or infinity; "),
        ({"edges": np.array([0.0, 1.0, 1.0])}, "ascending numbers, got 1.0 before 1.0 at positions 1 and 2; "),
        ({"edges": np.array([0.0, 2.0, 1.5, 3.0])}, "ascending numbers, got 2.0 before 1.5 at positions 1 and 2; "),
    ],
)
def test_options_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        HistogramOptions(**values)
    assert str(caught.value).startswith("--")
    assert "\n" not in str(caught.value)


def test_options_at_their_limits() -> None:
    assert len(HistogramOptions(bins=1).all_edges) == 2
    assert len(HistogramOptions(bins=MAX_BINS).all_edges) == MAX_BINS + 1
    assert len(HistogramOptions(edges=np.arange(MAX_BINS + 1.0)).all_edges) == MAX_BINS + 1
    assert HistogramOptions(bins=4, range=(1.0, 1.0 + 4 * 2.0**-52)).all_edges.tolist() == [
        1 + i * 2.0**-52 for i in range(5)
    ]


def test_options_without_a_range_yet() -> None:
    options = HistogramOptions(bins=3, range="auto")
    with pytest.raises(ValueError, match="--range auto: the range is not known"):
        _ = options.all_edges


def test_binning_is_kept_and_native() -> None:
    options = HistogramOptions()
    other = np.dtype(np.int32).newbyteorder()
    assert options.binning(other) is options.binning(np.dtype(np.int32))
    assert options.binning(other).dtype.isnative
    assert options.binning(other).regular
    assert not HistogramOptions(edges=np.array([0.0, 1, 5])).binning(other).regular


def test_survey_gives_the_range() -> None:
    survey = HISTOGRAM.survey
    assert survey is not None
    auto = HistogramOptions(bins=3, range="auto")
    needed = [
        survey.needed(HistogramOptions(edges=np.array([0.0, 1]), range="auto")),
        survey.needed(HistogramOptions()),
    ]
    assert (survey.needed(auto), needed) == (True, [False, False])
    samples = np.array([np.nan, 4, np.inf, -2], np.float32)
    found = survey.workflow.finalize(survey.workflow.compute(samples, auto), auto)
    assert survey.resolve(auto, found).all_edges.tolist() == [-2, 0, 2, 4]
    assert survey.resolve(auto, np.array([5.0, 5.0])).range == (4.5, 5.5)  # as NumPy widens it
    with pytest.raises(ValueError, match="--range auto: expected at least one finite sample, got none"):
        survey.resolve(auto, survey.workflow.compute(np.full(3, np.nan), auto))
    (never_nan,) = survey.workflow.invariants
    assert never_nan(found, 4) is None
    assert never_nan(np.array([np.nan, 1.0]), 4) == "an extent is never NaN"
    assert [survey.workflow.label(position, auto) for position in (0, 1)] == ["minimum", "maximum"]


def test_workflow_is_registered() -> None:
    assert WORKFLOWS["histogram"] is HISTOGRAM
    for name, workflow in WORKFLOWS.items():
        assert workflow.name == name


def test_invariant() -> None:
    assert HISTOGRAM.invariants == (every_sample_counted_once,)
    assert every_sample_counted_once(np.array([1, 2, 0, 0]), 3) is None
    assert every_sample_counted_once(np.array([1, 2, 0, 0]), 4000) == (
        "every sample is counted once: expected 4,000 in all, got 3"
    )
    assert every_sample_counted_once(np.array([5, -2, 0, 0]), 3) == "no count is negative: got -2"


def test_labels() -> None:
    options = HistogramOptions(bins=4, range=(-1.0, 1.0))
    expected = [
        "underflow",
        "bin 0 [-1, -0.5)",
        "bin 1 [-0.5, 0)",
        "bin 2 [0, 0.5)",
        "bin 3 [0.5, 1]",
        "overflow",
        "NaN",
    ]
    assert [HISTOGRAM.label(slot, options) for slot in range(7)] == expected


def example(options: HistogramOptions) -> HistogramResult:
    """Another count in every slot, one of them beyond what a float64 holds."""
    slots = np.arange(10, 10 + len(options.all_edges) + 2)
    slots[2] = 2**60 + 1
    result: HistogramResult = HISTOGRAM.finalize(slots, options)
    return result


REGULAR = HistogramOptions(bins=8, range=(-1.0, 3.0))
VARIABLE = HistogramOptions(edges=np.array([-2.5, 0.0, 0.1, 1e9]))


def test_finalize_names_the_slots() -> None:
    result = HISTOGRAM.finalize(np.array([1, 2, 3, 4, 5, 6]), VARIABLE)
    assert (result.underflow, result.counts.tolist(), result.overflow, result.nan) == (1, [2, 3, 4], 5, 6)
    assert (result.samples, result.regular, result.edges.tolist()) == (21, False, [-2.5, 0.0, 0.1, 1e9])
    assert {type(value) for value in (result.underflow, result.overflow, result.nan, result.samples)} == {int}


@pytest.mark.parametrize("options", [REGULAR, VARIABLE], ids=["regular", "variable"])
def test_uhi_is_what_boost_histogram_reads(options: HistogramOptions) -> None:
    result = example(options)
    document = result.to_uhi()
    uhi.schema.validate(document)
    uhi.schema.validate_histogram(document)
    loaded = bh.Histogram(bh.serialization.from_uhi(json.loads(json.dumps(document))))
    assert loaded.view(flow=True).tolist() == [result.underflow, *result.counts.tolist(), result.overflow]
    (axis,) = loaded.axes
    assert isinstance(axis, bh.axis.Regular if options.edges is None else bh.axis.Variable)
    assert axis.edges.tolist() == result.edges.tolist()
    assert document["metadata"] == {"nan": result.nan}


def test_uhi_schema_would_object() -> None:
    """The schema is strict enough for the test above to mean something."""
    document = example(REGULAR).to_uhi()
    document["axes"][0]["type"] = "even"
    with pytest.raises(Exception, match="axes"):
        uhi.schema.validate_histogram(document)


@pytest.mark.parametrize("options", [REGULAR, VARIABLE], ids=["regular", "variable"])
def test_json_keeps_every_count(options: HistogramOptions) -> None:
    result = example(options)
    plain = result.to_json()
    text = json.dumps(plain, allow_nan=False)
    assert json.loads(text) == plain
    assert plain["histogram"]["storage"]["values"][2] == 2**60 + 1
    flow = {"underflow": result.underflow, "overflow": result.overflow, "nan": result.nan}
    assert plain == {"histogram": result.to_uhi(), "samples": result.samples, **flow}


def test_other_forms_of_the_result() -> None:
    result = example(VARIABLE)
    columns, rows = result.table()
    assert columns == ("lower", "upper", "count")
    assert rows[0] == ("-inf", -2.5, 10)
    assert rows[1:4] == [(-2.5, 0.0, 11), (0.0, 0.1, 2**60 + 1), (0.1, 1e9, 13)]
    assert rows[4:] == [(1e9, "inf", 14), ("nan", "nan", 15)]
    arrays = result.arrays()
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "counts": [11, 2**60 + 1, 13],
        "edges": [-2.5, 0.0, 0.1, 1e9],
        "underflow": 10,
        "overflow": 14,
        "nan": 15,
    }
    assert [array.tolist() for array in result.steps()] == [arrays["counts"].tolist(), arrays["edges"].tolist()]
    lines = dict(result.lines())
    assert lines["samples"] == f"{sum((10, 11, 2**60 + 1, 13, 14, 15)):,}"
    assert lines["first ten counts"] == str([11, 2**60 + 1, 13])


# --- the kernels' source and their launch, without a GPU --------------------------------------------------------------


def test_header_names_every_variant() -> None:
    header = SOURCE.partition("\n#include")[0]
    assert tuple(re.findall(r"^//   (histogram_\w+)  +\S", header, re.MULTILINE)) == VARIANTS


def test_every_kernel_is_a_variant() -> None:
    kernels = re.findall(r"__global__\s+void\s+__launch_bounds__\([^)]*\)\s*(\w+)\(", SOURCE)
    assert len(kernels) == SOURCE.count("__global__")
    assert tuple(kernels) == VARIANTS


def test_threads_are_those_of_the_source() -> None:
    assert f"constexpr int THREADS = {THREADS};" in STREAM


@pytest.mark.parametrize("dtype", DTYPES)
def test_c_type_is_that_of_the_samples(dtype: str) -> None:
    aliases = dict(re.findall(r"^using (\w+) = ([\w ]+);", STREAM, re.MULTILINE))
    name = aliases.get(C_TYPES[dtype], C_TYPES[dtype])
    numpy_names = {"unsigned char": "ubyte", "short": "short", "unsigned short": "ushort", "int": "intc"}
    numpy_names |= {"unsigned int": "uintc", "long long": "longlong", "unsigned long long": "ulonglong"}
    numpy_names |= {"float16": "half", "float": "single", "double": "double"}
    # Bytes are counted by their bits, so the sign does not matter.
    assert np.dtype(numpy_names[name]) == np.dtype("uint8" if dtype == "int8" else dtype)


@dataclass(frozen=True)
class Launch:
    instance: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    shared_mem: int


H200 = build.Limits(132, 1024, 2048, 65536, 233472, 232448)
ONE_BLOCK = build.Limits(1, 1024, 1024, 65536, 102400, 101376)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """What the wrapper launches on an H200; NumPy stands for CuPy, under the few names that the wrapper asks for."""
    seen: list[Launch] = []
    runtime = SimpleNamespace(getDevice=lambda: 0)
    names = {name: getattr(np, name) for name in ("zeros", "asarray", "uint64", "int64")}
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime), **names))
    monkeypatch.setattr(build, "limits", lambda: H200)

    def load(stem: str, instance: str) -> build.Kernel:
        def launch(grid: Any, block: Any, arguments: Any, *, shared_mem: int) -> None:
            seen.append(Launch(instance, grid, block, arguments, shared_mem))

        assert stem == "histogram"
        return build.Kernel(launch, registers=32, static_shared=0)

    monkeypatch.setattr(build, "load", load)
    return seen


def gpu_edges(dtype: str, stem: str, bins: int) -> tuple[Edges, bool]:
    """Edges that the wrapper hands to a certain kernel, over most of a dtype."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        lower, upper = {2: (-6e4, 6.5e4), 4: (-1e30, 2e30), 8: (-1e100, 1e100)}[kind.itemsize]
    else:
        lower, upper = float(np.iinfo(kind).min) * 0.9, float(np.iinfo(kind).max) * 0.95
    if stem == "histogram_shift":
        # Bins one value wide at least; within 2**53, since beyond it edges that float64 holds are not exact thresholds.
        k = max(0, min(kind.itemsize * 8, 53) - 1 - (bins - 1).bit_length())
        start = max(int(np.iinfo(kind).min), -(bins << k) // 2 // 2**k * 2**k)
        return start + np.arange(bins + 1) * 2.0**k, True
    if stem == "histogram_search":
        return irregular(bins, bins, lower, upper), False
    return np.linspace(lower, upper, bins + 1), True


def stems(dtype: str, bins: int = 1024) -> Iterator[str]:
    """The kernels that count a dtype."""
    if np.dtype(dtype).itemsize == 1:
        yield "histogram_bytes"
        return
    if np.dtype(dtype).kind in "iu" and bins > 1:  # one bin has no width to shift by
        yield "histogram_shift"
    yield from ("histogram_regular", "histogram_search")


CASES = [(dtype, stem) for dtype in DTYPES for stem in stems(dtype)]


def declared(stem: str) -> list[str]:
    """Types of a kernel's parameters, as the source has them."""
    found = re.search(rf"\b{stem}\(([^)]*)\)\s*{{", SOURCE)
    assert found
    return [" ".join(parameter.split()).rpartition(" ")[0] for parameter in found[1].split(",")]


def numpy_type(text: str, dtype: str) -> tuple[np.dtype[Any], bool]:
    """What a parameter of the source is for samples of a dtype, and whether it is a pointer."""
    key = np.dtype(KEYS.get(dtype, dtype))
    types: dict[str, Any] = {
        "T": dtype,
        "u8": dtype,
        "int": "i4",
        "u32": "u4",
        "i64": "i8",
        "u64": "u8",
        "bool": "?",
        "typename Key<T>::type": key,
        "typename Unsigned<typename Key<T>::type>::type": f"u{key.itemsize}",
        "typename Guess<typename Key<T>::type>::type": "f4" if key.itemsize == 4 else "f8",
    }
    return np.dtype(types[text.removeprefix("const ").removesuffix("*")]), text.endswith("*")


@pytest.mark.parametrize(("dtype", "stem"), CASES)
def test_wrapper_passes_what_the_kernel_declares(launches: list[Launch], dtype: str, stem: str) -> None:
    """CuPy checks nothing: an argument of another size would be read as garbage."""
    for bins in (2, 1024, 2**16):
        edges, regular = gpu_edges(dtype, stem, bins)
        samples = np.zeros(1025, dtype)
        slots = histogram(samples, Binning(samples.dtype, edges, regular))
        assert (slots.dtype, slots.shape) == (np.int64, (bins + 3,))
        for launch in launches:
            assert launch.instance.partition("<")[0] == stem
            assert launch.arguments[0].ctypes.data == samples.ctypes.data
            assert launch.arguments[1] == 1025
            assert launch.arguments[2].ctypes.data == slots.ctypes.data
            for argument, text in zip(launch.arguments, declared(stem), strict=True):
                expected, pointer = numpy_type(text, dtype)
                assert argument.dtype == expected, text
                assert isinstance(argument, np.ndarray if pointer else np.generic), text
        launches.clear()


@pytest.mark.parametrize(("dtype", "stem"), CASES)
def test_windows_hold_every_counter_once(launches: list[Launch], dtype: str, stem: str) -> None:
    """What a block counts at a time fits into its shared memory, whatever the number of bins."""
    for bins in (2, 256, 1000, 1024, 4096, 16384, 2**16, 2**18):
        edges, regular = gpu_edges(dtype, stem, bins)
        histogram(np.zeros(1, dtype), Binning(np.dtype(dtype), edges, regular))
        counters = 256 if stem == "histogram_bytes" else bins + 3
        (instance,) = {launch.instance for launch in launches}
        _, name, copies, *whole = re.findall(r"\w+", instance)
        assert name == C_TYPES[dtype]
        # Bytes are counted by value, in one window always, so their kernel does not ask.
        assert whole == [str(len(launches) == 1).lower()][: len(whole)]
        assert len(launches) == 1 or stem != "histogram_bytes"
        covered = 0
        for launch in launches:
            first, last = (int(end) for end in launch.arguments[3:5])
            assert first == covered < last
            covered = last
            assert (last - first) * int(copies) * 4 <= launch.shared_mem <= H200.shared_per_block
            assert launch.block == (1024,)
            assert launch.grid == (H200.resident_blocks(1024, 32, launch.shared_mem),)
        assert covered == counters
        assert len(launches) == -(-counters * 4 // H200.shared_per_block)
        launches.clear()


def test_wrapper_splits_what_would_overflow_a_counter(launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    """A block counts in 32 bits. np.empty only asks for addresses here: nothing reads the samples."""
    monkeypatch.setattr(build, "limits", lambda: ONE_BLOCK)
    samples = np.empty(2**32 + 5, np.uint8)
    slots = histogram(samples, Binning(samples.dtype, np.array([0.0, 1.0]), True))
    assert [launch.grid for launch in launches] == [(1,)] * 3
    sizes = [int(launch.arguments[1]) for launch in launches]
    assert sizes == [2**31, 2**31, 5]
    assert sizes == [len(launch.arguments[0]) for launch in launches]
    starts = [launch.arguments[0].ctypes.data - samples.ctypes.data for launch in launches]
    assert starts == [0, 2**31, 2**32]
    assert {launch.arguments[2].ctypes.data for launch in launches} == {slots.ctypes.data}  # all add to the same


def test_wrapper_launches_nothing_for_nothing(launches: list[Launch]) -> None:
    assert histogram(np.zeros(0, np.int32), HistogramOptions().binning(np.dtype(np.int32))).sum() == 0
    assert not launches


def assert_refused(make: Callable[[Any, Any], Any]) -> None:
    """The wrapper refuses what a kernel would read wrong; make(values, dtype) makes an array."""
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


def test_wrapper_refuses(launches: list[Launch]) -> None:
    assert_refused(np.array)
    with pytest.raises(TypeError, match="expected samples of int32, got "):
        histogram(np.zeros(8, np.dtype(np.int32).newbyteorder()), HistogramOptions().binning(np.dtype(np.int32)))
    assert not launches


# --- on a GPU ---------------------------------------------------------------------------------------------------------

GPU_SIZES = (1, 31, 32, 33, 1023, 1024, 1025, 65_537, 1_000_003, 2**22 + 5)
GPU_BINS = (1, 2, 3, 256, 1000, 1024, 4096, 16384, 65536, MAX_BINS)


@pytest.fixture
def cp() -> Iterator[Any]:
    """CuPy; what it keeps of the device's memory is given back after the test."""
    import cupy

    yield cupy
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that the wrapper asks for."""
    names: list[str] = []
    load = build.load

    def spy(stem: str, instance: str) -> build.Kernel:
        names.append(instance.partition("<")[0])
        return load(stem, instance)

    monkeypatch.setattr(build, "load", spy)
    return names


def assert_device_counts(samples: Any, binning: Binning, expected: NDArray[np.int64]) -> None:
    found = histogram(samples, binning)
    assert type(found).__module__.partition(".")[0] == "cupy"
    assert (found.dtype, found.shape) == (np.int64, (binning.bins + 3,))
    np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "stem"), CASES)
def test_gpu_counts_of_every_size(cp: Any, loaded: list[str], dtype: str, stem: str) -> None:
    """Whole tiles, ragged ends and, by slices, starts that a 16-byte load cannot have."""
    edges, regular = gpu_edges(dtype, stem, 1024)
    binning = Binning(np.dtype(dtype), edges, regular)
    samples = nasty(dtype, max(GPU_SIZES) + 3, edges)
    on_device = cp.asarray(samples)
    for number, size in enumerate(GPU_SIZES):
        # The reference of the large ones takes a while, so each of them has one start only.
        for start in (0, 1, 3) if size <= 65_537 else ((1, 3)[number % 2],):
            expected = histogram_reference(samples[start : start + size], edges)
            assert_device_counts(on_device[start : start + size], binning, expected)
    assert set(loaded) == {stem}


@pytest.mark.gpu
@pytest.mark.parametrize("bins", GPU_BINS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_counts_in_any_number_of_bins(cp: Any, loaded: list[str], dtype: str, bins: int) -> None:
    """From several copies of the counters in shared memory to one, and to counters in global memory."""
    for stem in stems(dtype, bins):
        edges, regular = gpu_edges(dtype, stem, bins)
        assert len(edges) == bins + 1
        samples = nasty(dtype, 100_003, edges, seed=bins)
        expected = histogram_reference(samples, edges)
        assert_device_counts(cp.asarray(samples), Binning(np.dtype(dtype), edges, regular), expected)
        assert loaded.pop() == stem


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_counts_at_any_edges(cp: Any, dtype: str) -> None:
    for name, (numbers, regular) in EDGES.items():
        edges = np.asarray(numbers, np.float64)
        samples = nasty(dtype, 5001, edges, seed=4)
        found = histogram(cp.asarray(samples)[1:], Binning(np.dtype(dtype), edges, regular))
        np.testing.assert_array_equal(found.get(), histogram_reference(samples[1:], edges), err_msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_counts_on_and_beside_every_edge(cp: Any, dtype: str) -> None:
    for name, edges in GUESSED.items():
        samples = points(np.dtype(dtype), edges, len(edges))
        found = histogram(cp.asarray(samples), Binning(np.dtype(dtype), edges, True))
        np.testing.assert_array_equal(found.get(), histogram_reference(samples, edges), err_msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_counts_where_most_edges_are_out_of_reach(cp: Any, dtype: str) -> None:
    """More slots than a window holds, fewer thresholds than slots."""
    upper = 1e5 if dtype == "float16" else 1e21  # beyond every integer
    for edges, regular in (
        (irregular(5, 200_000, -upper, upper), False),
        (np.linspace(-upper, upper, 200_001), True),
        (np.linspace(1e21, 2e21, 200_001), True),
        (np.linspace(-2e21, -1e21, 200_001), True),
        (irregular(6, 200_000, 1e21, 2e21), False),
    ):
        samples = nasty(dtype, 5001, edges)
        found = histogram(cp.asarray(samples), Binning(np.dtype(dtype), edges, regular))
        np.testing.assert_array_equal(found.get(), histogram_reference(samples, edges))


@pytest.mark.gpu
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_gpu_counts_of_every_distribution(cp: Any, tmp_path: Path, distribution: str) -> None:
    options = HistogramOptions()
    for dtype in ("uint8", "int16", "uint16", "int32", "float16", "float32"):
        generate(tmp_path / "samples.bin", 300_001, dtype, distribution)
        samples = np.fromfile(tmp_path / "samples.bin", np.dtype(dtype).newbyteorder("<"))
        found = HISTOGRAM.compute(cp.asarray(samples), options)
        np.testing.assert_array_equal(found.get(), HISTOGRAM.reference(samples, options), err_msg=dtype)
    (tmp_path / "samples.bin").unlink()


@pytest.mark.gpu
def test_gpu_keeps_negative_bytes(cp: Any) -> None:
    """CUB's histogram loses negative samples of int8."""
    samples = np.repeat(np.arange(-128, 128).astype(np.int8), np.arange(1, 257))
    every_value = Binning(np.dtype(np.int8), np.arange(-128.0, 129), True)
    expected = np.array([0, *range(1, 257), 0, 0])
    assert_device_counts(cp.asarray(samples), every_value, expected)
    default = HISTOGRAM.compute(cp.asarray(samples), HistogramOptions()).get()
    assert int(default[0]) == sum(range(1, 129))
    assert default[1:129].tolist() == [*range(129, 257)]


@pytest.mark.gpu
def test_gpu_counts_above_32_bits(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 GiB of one value: in the default bins, in as many as there can be, and all of them by a single block."""
    samples = cp.full(2**33, 7, cp.uint8)
    for options in (HistogramOptions(), HistogramOptions(bins=MAX_BINS)):
        found = HISTOGRAM.compute(samples, options)
        at = int(oracle(np.array([7], np.uint8), options.all_edges).argmax())
        assert (int(found[at]), int(found.sum())) == (2**33, 2**33)
    monkeypatch.setattr(build, "limits", lambda: ONE_BLOCK)
    found = HISTOGRAM.compute(samples, HistogramOptions())
    assert (int(found[8]), int(found.sum())) == (2**33, 2**33)


@pytest.mark.gpu
def test_gpu_partials_combine(cp: Any) -> None:
    edges, regular = EDGES["fractions"]
    samples = nasty("float32", 10_000, edges)
    binning = Binning(samples.dtype, edges, regular)
    parts = [cp.asarray(part) for part in np.array_split(samples, 7)]
    total = reduce(HISTOGRAM.combine, [histogram(part, binning) for part in reversed(parts)])
    assert total.get().tobytes() == histogram_reference(samples, edges).tobytes()
    assert HISTOGRAM.combine is operator.add


@pytest.mark.gpu
def test_gpu_nothing_is_counted_as_nothing(cp: Any) -> None:
    assert_device_counts(
        cp.zeros(0, cp.int32), HistogramOptions().binning(np.dtype(np.int32)), np.zeros(1027, np.int64)
    )


@pytest.mark.gpu
def test_gpu_wrapper_refuses(cp: Any) -> None:
    assert_refused(lambda values, dtype: cp.asarray(np.array(values, dtype)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_extent(cp: Any, dtype: str) -> None:
    samples = nasty(dtype, 5000, np.array([-300.0, 300.0]))
    whole = extent.extent(cp.asarray(samples))
    assert whole.dtype == np.float64
    assert whole.get().tolist() == exact_extent(samples)
    halves = [extent.extent(cp.asarray(half)) for half in (samples[:1], samples[1:])]
    assert extent.merge(*halves).get().tolist() == exact_extent(samples)
    if dtype[0] == "f":
        assert extent.extent(cp.full(9, np.nan, dtype)).get().tolist() == [math.inf, -math.inf]
