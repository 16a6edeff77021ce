"""Histogram counts on the CPU against numpy.histogram, boost-histogram and plain Python."""

from __future__ import annotations

import math
from bisect import bisect_right
from pathlib import Path

import boost_histogram as bh
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.histogram.binning import MAX_BINS, Binning
from kernels.histogram.cpu import CACHED_BYTES, histogram_cpu, histogram_numpy
from kernels.histogram.reference import histogram_reference
from pipeline.storage.generate import DISTRIBUTIONS, generate
from tests.cases.histogram import DTYPES, EDGES, GUESSED, assert_counts, bounded, irregular, nasty, oracle, points
from workflows.histogram import HISTOGRAM, HistogramOptions, every_sample_counted_once


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
    """From 4 bytes on, the last size exceeds the CPU's block and is not a multiple of it."""
    for name in ("default", "fractions", "irregular"):
        edges, regular = EDGES[name]
        assert_counts(nasty(dtype, size, np.asarray(edges, np.float64)), edges, regular)


@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_of_samples_on_one_side(dtype: str) -> None:
    """All below, all above, all inside, and only the closed last edge beyond the bins that a shift reaches."""
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
    binning = Binning(samples.dtype, np.array(edges), False)
    assert histogram_cpu(samples, binning).tolist() == expected
    assert histogram_numpy(samples, binning).tolist() == expected
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
    for count in (histogram_cpu, histogram_numpy):
        np.testing.assert_array_equal(count(samples, Binning(samples.dtype, edges, EDGES[name][1])), expected)


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
    got = histogram_cpu(samples, Binning(samples.dtype, np.array([-4.0, -3, -2]), True))
    assert got.tolist() == [0, 0, 2**32 + 3, 0, 0]
