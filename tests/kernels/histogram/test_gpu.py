"""The histogram's kernels on a GPU against the reference."""

from __future__ import annotations

import operator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.histogram.binning import MAX_BINS, Binning
from kernels.histogram.gpu import histogram
from kernels.histogram.reference import histogram_reference
from pipeline.storage.generate import DISTRIBUTIONS, generate
from tests.cases.histogram import (
    CASES,
    DTYPES,
    EDGES,
    GUESSED,
    ONE_BLOCK,
    assert_refused,
    gpu_edges,
    irregular,
    kernels_for,
    nasty,
    oracle,
    points,
    stems,
)
from tests.cases.sizes import ON_GPU, sizes
from workflows.histogram import HISTOGRAM, HistogramOptions

GPU_SIZES = sizes(1, 31, 32, 33, 1023, 1024, 1025, 4999, 65_537, 1_000_003, 2**22 + 5)
GPU_BINS = (1, 2, 3, 256, 1000, 1024, 4096, *((16384, 65536, MAX_BINS) if ON_GPU else (65536,)))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that the wrapper requests."""
    names: list[str] = []
    load = nvrtc.load

    def spy(stem: str, instance: str) -> nvrtc.Kernel:
        names.append(instance.partition("<")[0])
        return load(stem, instance)

    monkeypatch.setattr(nvrtc, "load", spy)
    return names


def assert_device_counts(samples: Any, binning: Binning, expected: NDArray[np.int64]) -> None:
    got = histogram(samples, binning)
    assert type(got).__module__.partition(".")[0] == "cupy"
    assert (got.dtype, got.shape) == (np.int64, (binning.bins + 3,))
    np.testing.assert_array_equal(got.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "stem"), CASES)
def test_gpu_counts_of_every_size(cp: Any, loaded: list[str], dtype: str, stem: str) -> None:
    """Whole tiles, ragged ends, and slices that are not aligned to 16 bytes."""
    edges, regular = gpu_edges(dtype, stem, 1024)
    binning = Binning(np.dtype(dtype), edges, regular)
    samples = nasty(dtype, max(GPU_SIZES) + 3, edges)
    on_device = cp.asarray(samples)
    for number, size in enumerate(GPU_SIZES):
        # The reference of large arrays is slow, so each has one start only; so does the emulator.
        every = size <= 65_537 if ON_GPU else size in (33, 1025)
        for start in (0, 1, 3) if every else ((1, 3)[number % 2],):
            expected = histogram_reference(samples[start : start + size], edges)
            assert_device_counts(on_device[start : start + size], binning, expected)
    assert len(set(loaded)) == 1 and loaded[0] in kernels_for(dtype, stem, 1024)


@pytest.mark.gpu
@pytest.mark.parametrize("bins", GPU_BINS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_counts_in_any_number_of_bins(cp: Any, loaded: list[str], dtype: str, bins: int) -> None:
    """Several copies of the counters in shared memory, one copy, and counters in global memory."""
    for stem in stems(dtype, bins):
        edges, regular = gpu_edges(dtype, stem, bins)
        assert len(edges) == bins + 1
        samples = nasty(dtype, sizes(4099, 100_003)[-1], edges, seed=bins)
        expected = histogram_reference(samples, edges)
        assert_device_counts(cp.asarray(samples), Binning(np.dtype(dtype), edges, regular), expected)
        assert loaded.pop() in kernels_for(dtype, stem, bins)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_counts_at_any_edges(cp: Any, dtype: str) -> None:
    for name, (numbers, regular) in EDGES.items():
        edges = np.asarray(numbers, np.float64)
        samples = nasty(dtype, 5001, edges, seed=4)
        got = histogram(cp.asarray(samples)[1:], Binning(np.dtype(dtype), edges, regular))
        np.testing.assert_array_equal(got.get(), histogram_reference(samples[1:], edges), err_msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_counts_on_and_beside_every_edge(cp: Any, dtype: str) -> None:
    for name, edges in GUESSED.items():
        samples = points(np.dtype(dtype), edges, len(edges))
        got = histogram(cp.asarray(samples), Binning(np.dtype(dtype), edges, True))
        np.testing.assert_array_equal(got.get(), histogram_reference(samples, edges), err_msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "int16"])
def test_gpu_counts_where_blocks_share_the_bins(cp: Any, dtype: str) -> None:
    """More bins than a block has counters; few of them filled, by lanes that agree or differ."""
    edges = np.arange(-30_000, 30_001) * (1.0 if dtype == "int16" else 3.0)
    samples = np.repeat(np.arange(8) * 2001, sizes(4001, 300_007)[-1]).astype(dtype)
    mixed = np.random.default_rng(0).permutation(samples)
    for values in (samples, mixed, samples[: len(samples) // 8]):
        got = histogram(cp.asarray(values), Binning(np.dtype(dtype), edges, True))
        np.testing.assert_array_equal(got.get(), histogram_reference(values, edges))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_counts_where_most_edges_are_out_of_reach(cp: Any, dtype: str) -> None:
    """More slots than a window holds, fewer thresholds than slots."""
    bins = 200_000 if ON_GPU else 130_000  # three windows
    upper = 1e5 if dtype == "float16" else 1e21  # beyond every integer
    for edges, regular in (
        (irregular(5, bins, -upper, upper), False),
        (np.linspace(-upper, upper, bins + 1), True),
        (np.linspace(1e21, 2e21, bins + 1), True),
        (np.linspace(-2e21, -1e21, bins + 1), True),
        (irregular(6, bins, 1e21, 2e21), False),
    ):
        samples = nasty(dtype, 5001, edges)
        got = histogram(cp.asarray(samples), Binning(np.dtype(dtype), edges, regular))
        np.testing.assert_array_equal(got.get(), histogram_reference(samples, edges))


@pytest.mark.gpu
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_gpu_counts_of_every_distribution(cp: Any, tmp_path: Path, distribution: str) -> None:
    options = HistogramOptions()
    for dtype in ("uint8", "int16", "uint16", "int32", "float16", "float32"):
        generate(tmp_path / "samples.bin", sizes(4999, 300_001)[-1], dtype, distribution)
        samples = np.fromfile(tmp_path / "samples.bin", np.dtype(dtype).newbyteorder("<"))
        got = HISTOGRAM.compute(cp.asarray(samples), options)
        np.testing.assert_array_equal(got.get(), HISTOGRAM.reference(samples, options), err_msg=dtype)
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
@pytest.mark.hardware
def test_gpu_counts_above_32_bits(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 GiB of one value: in the default bins, in the maximal number of bins, and by a single block."""
    samples = cp.full(2**33, 7, cp.uint8)
    for options in (HistogramOptions(), HistogramOptions(bins=MAX_BINS)):
        got = HISTOGRAM.compute(samples, options)
        at = int(oracle(np.array([7], np.uint8), options.all_edges).argmax())
        assert (int(got[at]), int(got.sum())) == (2**33, 2**33)
    monkeypatch.setattr(device, "limits", lambda: ONE_BLOCK)
    got = HISTOGRAM.compute(samples, HistogramOptions())
    assert (int(got[8]), int(got.sum())) == (2**33, 2**33)


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
