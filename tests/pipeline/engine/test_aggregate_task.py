"""Planted wrong partials are caught; the error names chunk, byte range, worker and the first differing entries."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.engine.aggregate
import pipeline.storage.blocks
from pipeline.cluster.cuda_errors import STICKY_ERRORS
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.outcome import Outcome
from pipeline.errors import PipelineError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.histogram import FINITE_RANGE, HISTOGRAM, HistogramOptions

pytestmark = pytest.mark.usefixtures("shared")
SAMPLES = 8000
CHUNK = 4000  # bytes: eight chunks of 1000 samples
MARK = 1500  # a sample of chunk 5 only, beyond the bins
CALLS = count()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Zeros, with a MARK in chunk 5."""
    samples = np.zeros(SAMPLES, np.int32)
    samples[5500] = MARK
    samples.tofile(tmp_path / "samples.bin")
    return str(tmp_path / "samples.bin")


def counted(path: str, verify: str = "full", chunk_bytes: int = CHUNK, options: Any = None, **lies: Any) -> Outcome:
    workflow = replace(HISTOGRAM, **lies)
    return run(
        workflow, options or HistogramOptions(), open_source((path,)), Settings(verify=verify, chunk_bytes=chunk_bytes)
    )


def refused(path: str, **keywords: Any) -> str:
    """The message of a run that must fail with status 3; without the planted error it must pass."""
    assert counted(path).result.counts[0] == SAMPLES - 1
    with pytest.raises(VerificationError) as caught:
        counted(path, **keywords)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    text, end = str(caught.value).split("; run again ")
    assert "; nothing was written" in text
    assert end == "if a program writes to the input through mmap, which looks the same"
    return text


def moves_a_sample(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """From bin 0 to bin 7: every sample is still counted once, so only the reference notices."""
    slots = HISTOGRAM.compute(block, options).copy()
    slots[[1, 8]] += -1, 1
    return slots


def moves_a_sample_in_chunk_5(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    return (moves_a_sample if MARK in block else HISTOGRAM.compute)(block, options)


def drops_a_sample_in_chunk_5(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    slots = HISTOGRAM.compute(block, options).copy()
    slots[1] -= MARK in block
    return slots


def sees_one_bin_as_negative(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    slots = HISTOGRAM.compute(block, options).copy()
    slots[[1, 2]] += 1, -1
    return slots


def has_another_dtype(block: NDArray[Any], options: HistogramOptions) -> NDArray[Any]:
    return HISTOGRAM.compute(block, options).astype(np.uint64)


def has_another_shape(block: NDArray[Any], options: HistogramOptions) -> NDArray[Any]:
    return HISTOGRAM.compute(block, options)[:-1]


class Computed(np.ndarray[Any, Any]):
    """Marks partials of compute, to distinguish them from the reference's."""


def computes_as_such(block: NDArray[Any], options: HistogramOptions) -> NDArray[Any]:
    return HISTOGRAM.compute(block, options).view(Computed)


def combines_wrongly_the_first_time(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    total = a + b
    if isinstance(a, Computed) and next(CALLS) == 0:
        total[[1, 8]] += -1, 1
    return total


def combines_with_a_loss(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.maximum(a, b)


def test_wrong_chunk_is_named_with_bins_and_both_values(path: str) -> None:
    text = refused(path, compute=moves_a_sample_in_chunk_5)
    assert re.fullmatch(
        rf"histogram: a number is wrong in chunk 5 \({path} bytes 20000-23999\) on worker inproc://\S+ \(cpu\): "
        r"bin 0 \[0, 1\): expected 999, got 998; bin 7 \[7, 8\): expected 0, got 1; nothing was written",
        text,
    )


def test_dropped_sample_breaks_the_invariant_in_every_mode(path: str) -> None:
    for verify in ("full", "sample", "off"):
        text = refused(path, compute=drops_a_sample_in_chunk_5, verify=verify)
        assert f"chunk 5 ({path} bytes 2" in text
        assert "every sample is counted once: expected 1,000 in all, got 999" in text


def test_negative_count_breaks_the_invariant(path: str) -> None:
    assert "no count is negative: got -1" in refused(path, compute=sees_one_bin_as_negative, verify="off")


def test_only_the_reference_sees_a_moved_sample(path: str) -> None:
    assert counted(path, verify="off", compute=moves_a_sample).result.counts[7] == 8


def test_sampled_verification_names_the_region_it_looked_at(path: str) -> None:
    """Every partial is wrong, including that of the few recomputed samples."""
    text = refused(path, compute=moves_a_sample, verify="sample")
    match = re.search(r"chunk \d \(\S+ bytes (\d+)-(\d+)\) .* bin 0 \[0, 1\): expected (4, got 3|3, got 2);", text)
    assert match, text
    assert int(match[2]) - int(match[1]) + 1 == 4 * 4  # 1000 / 256 samples, rounded up


def test_no_more_than_three_differences_are_listed() -> None:
    job, zeros, ones = Job(HISTOGRAM, HistogramOptions(bins=1, range=(0, 1))), np.zeros(4, int), np.ones(4, int)
    listed = ["underflow: expected 0, got 1", "bin 0 [0, 1]: expected 0, got 1", "overflow: expected 0, got 1"]
    assert job.differences(ones, zeros) == [*listed, "1 more"]
    assert job.differences(np.array([1, 1, 1, 0]), zeros) == listed
    assert job.differences(np.array([0, 0, 0, 1]), zeros) == ["NaN: expected 0, got 1"]
    assert job.differences(zeros, zeros) == []


def test_wrong_dtype_is_not_compared_by_value(path: str) -> None:
    assert "expected (1027,) of int64, got (1027,) of uint64" in refused(path, compute=has_another_dtype)


def test_wrong_shape_is_not_compared_by_value(path: str) -> None:
    assert "expected (1027,) of int64, got (1026,) of int64" in refused(path, compute=has_another_shape)


def test_combined_total_of_a_chunk_is_compared(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full check covers the returned sum itself, not a second computation of it."""
    global CALLS
    CALLS = count()
    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", 1000)
    text = refused(path, compute=computes_as_such, combine=combines_wrongly_the_first_time, chunk_bytes=2**20)
    assert f"chunk 0 ({path} bytes 0-31999)" in text
    assert "bin 0 [0, 1): expected 7999, got 7998; bin 7 [7, 8): expected 0, got 1" in text


def test_sum_of_all_chunks_satisfies_the_invariants(path: str) -> None:
    text = refused(path, combine=combines_with_a_loss)
    assert "the sum of all chunks is wrong: every sample is counted once: expected 8,000 in all, got 1,001" in text


def test_wrong_survey_is_named(path: str) -> None:
    lying = replace(
        FINITE_RANGE, compute=lambda block, options: FINITE_RANGE.compute(block, options) + np.array([0.0, 1.0])
    )
    survey = replace(HISTOGRAM.survey, workflow=lying) if HISTOGRAM.survey else None
    text = refused(path, survey=survey, options=HistogramOptions(bins=5, range="auto"))
    assert text.startswith("finite range: a number is wrong in chunk")
    assert re.search(r"maximum: expected (0.0, got 1.0|1500.0, got 1501.0);", text)


def test_nan_differs_from_everything() -> None:
    job = Job(FINITE_RANGE, HistogramOptions())
    got = job.differences(np.array([np.nan, 2.0]), np.array([np.nan, 2.0]))
    assert got == ["minimum: expected nan, got nan"]


class CudaError(Exception):
    """Stands for CuPy's errors: only their status is used."""

    status = 700


def breaks(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    raise CudaError("cudaErrorIllegalAddress: an illegal memory access was encountered")


def test_broken_context_in_this_process_ends_the_run_and_not_the_process(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    assert CudaError.status in STICKY_ERRORS
    with pytest.raises(PipelineError, match=r"^histogram: chunk .*: the GPU reported an access to an ill"):
        counted(path, compute=breaks)
    assert left == []


def test_small_files_are_computed_together(tmp_path: Path) -> None:
    """Not each with the calls of a block."""
    total = 0
    for number in range(300):
        np.full(number % 7 + 1, number, np.int32).tofile(tmp_path / f"{number:03}.bin")
        total += number % 7 + 1
    source, path = open_source((str(tmp_path / "*.bin"),)), tmp_path / "computed"

    def compute(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        with path.open("a") as file:
            file.write(f"{len(block)}\n")
        return HISTOGRAM.compute(block, options)

    settings = Settings(verify="full")
    counts = run(replace(HISTOGRAM, compute=compute), HistogramOptions(), source, settings).result.counts
    assert counts[:300].tolist() == [number % 7 + 1 for number in range(300)]
    assert sum(map(int, path.read_text().split())) == total and len(path.read_text().split()) <= 3
