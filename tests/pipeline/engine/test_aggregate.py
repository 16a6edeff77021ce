"""Aggregations in one process: the same result for every chunk size, errors named, nothing left behind."""

from __future__ import annotations

import glob
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import boost_histogram
import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from numpy.typing import NDArray

import pipeline.engine.aggregate
import pipeline.engine.run_loop
import pipeline.engine.submit
import pipeline.storage.blocks
from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.workers import Workers
from pipeline.engine.aggregate import run
from pipeline.engine.outcome import Outcome
from pipeline.errors import PipelineError, UsageError
from pipeline.settings import Settings
from pipeline.storage.sources import DTYPES, open_source
from tests.cases.aggregation_checks import unchecked
from tests.cases.monitors import Told
from workflows.histogram import HISTOGRAM, HistogramOptions

ON_CPU = Placement(device="cpu")
RECOMPUTED: list[int] = []  # samples in each call of the reference; the cluster is in this process


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """One cluster for tests that are not about clusters: starting one takes longer than a run."""
    with open_workers(ON_CPU, 0) as workers:
        yield replace(workers, threads=1)  # so that chunks beyond the fourth have to wait


@pytest.fixture
def shared(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(workers))


@pytest.fixture
def samples() -> NDArray[np.int32]:
    """Samples with some below and some above the default range."""
    return np.random.default_rng(0).integers(-100, 1200, 30011, dtype=np.int32)


@pytest.fixture
def path(tmp_path: Path, samples: NDArray[np.int32]) -> str:
    return written(tmp_path / "samples.bin", samples)


def written(path: Path, samples: NDArray[Any]) -> str:
    samples.tofile(path)
    return str(path)


def counted(*paths: str, workflow: Any = HISTOGRAM, options: Any = None, dtype: str | None = None,
            **keywords: Any) -> Outcome:  # fmt: skip
    return run(
        workflow, options or HistogramOptions(), open_source(paths, dtype), Settings(placement=ON_CPU, **keywords)
    )


def expected(samples: NDArray[Any], edges: NDArray[np.float64]) -> tuple[list[int], int, int, int]:
    """Counts, underflow, overflow and NaN by NumPy, compared with boost-histogram."""
    values = samples.astype(np.float64)
    numbers = values[~np.isnan(values)]
    counts = np.histogram(numbers, edges)[0]
    flow = int((numbers < edges[0]).sum()), int((numbers > edges[-1]).sum()), len(values) - len(numbers)
    # boost-histogram excludes the last edge from the last bin, and counts NaN as overflow.
    with np.errstate(over="ignore"):  # beyond the largest number comes infinity
        axis = boost_histogram.axis.Variable([*edges[:-1], np.nextafter(edges[-1], np.inf)])
    slots = boost_histogram.Histogram(axis, storage=boost_histogram.storage.Int64()).fill(values).view(flow=True)
    assert slots.tolist() == [flow[0], *counts, flow[1] + flow[2]]
    return (counts.tolist(), *flow)


def found(outcome: Outcome) -> tuple[list[int], int, int, int]:
    result = outcome.result
    return result.counts.tolist(), result.underflow, result.overflow, result.nan


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("chunks", "block_bytes"), [(3, 64), *((chunks, nbytes) for chunks in (1, 2, 3, 7) for nbytes in (4000, 2**20))]
)
def test_result_does_not_depend_on_cut(
    path: str, samples: NDArray[np.int32], chunks: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = counted(path)
    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", block_bytes)
    outcome = counted(path, chunk_bytes=-(-samples.nbytes // chunks) + 3, verify="full")
    assert (whole.verdict.chunks, outcome.verdict.chunks) == (1, chunks)
    assert json.dumps(outcome.result.to_json()) == json.dumps(whole.result.to_json())
    assert found(outcome) == expected(samples, np.linspace(0, 1024, 1025))


@st.composite
def cases(draw: st.DrawFn) -> tuple[NDArray[Any], HistogramOptions, list[int], int]:
    """Samples of any dtype, bins that may miss them, where files are split, and samples per chunk."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    samples = draw(st_numpy.arrays(dtype, st.integers(1, 200)))
    numbers = samples[np.isfinite(samples)].astype(np.float64).tolist()
    near = st.sampled_from(numbers) if numbers else st.just(0.0)
    number = st.one_of(near, st.floats(-300, 300), st.integers(-(2**63), 2**64).map(float))
    edges = draw(st.lists(number, min_size=2, max_size=12, unique=True).map(sorted))
    options = HistogramOptions(edges=np.array(edges))
    if draw(st.booleans()):
        with suppress(ValueError):  # edges that coincide in float64: tested with the options
            options = HistogramOptions(bins=draw(st.sampled_from([1, 2, 3, 16, 100])), range=(edges[0], edges[-1]))
    splits = draw(st.lists(st.integers(0, len(samples)), max_size=3).map(sorted))
    return samples, options, splits, -(-len(samples) // draw(st.integers(1, 7)))


@pytest.mark.usefixtures("shared")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), mode=st.sampled_from(["full", "sample", "off"]))
def test_counts_equal_numpy_and_boost(
    case: tuple[NDArray[Any], HistogramOptions, list[int], int], mode: str, tmp_path: Path
) -> None:
    samples, options, splits, per_chunk = case
    parts = [part for part in np.split(samples, splits) if len(part)]
    paths = [written(tmp_path / f"part-{i}.bin", part) for i, part in enumerate(parts)]
    outcome = counted(
        *paths, options=options, dtype=samples.dtype.name, chunk_bytes=per_chunk * samples.itemsize, verify=mode
    )
    assert found(outcome) == expected(samples, options.all_edges)


@pytest.mark.usefixtures("shared")
def test_auto_range_spans_the_finite_samples(tmp_path: Path) -> None:
    samples = np.array([np.nan, 7.5, -np.inf, -2.25, np.inf, 3], np.float32)
    path = written(tmp_path / "samples.bin", samples)
    outcome = counted(path, options=HistogramOptions(bins=4, range="auto"), dtype="float32", chunk_bytes=8)
    assert outcome.options.range == (-2.25, 7.5)
    assert found(outcome) == expected(samples, np.linspace(-2.25, 7.5, 5)) == ([1, 0, 1, 1], 1, 1, 1)
    assert outcome.stages.nbytes == 2 * samples.nbytes  # two passes


@pytest.mark.usefixtures("shared")
def test_auto_range_without_a_finite_sample_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "samples.bin", np.full(10, np.nan))
    with pytest.raises(UsageError, match="expected at least one finite sample, got none"):
        counted(path, options=HistogramOptions(range="auto"), dtype="float64")


def recording(block: NDArray[Any], options: Any) -> NDArray[np.int64]:
    RECOMPUTED.append(len(block))
    return HISTOGRAM.reference(block, options)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(("mode", "checked"), [("full", 30011), ("sample", 7 * 17), ("off", 0)])
def test_verdict_claims_what_the_reference_recomputed(path: str, mode: str, checked: int) -> None:
    RECOMPUTED.clear()
    outcome = counted(
        path, workflow=replace(HISTOGRAM, reference=recording, check=unchecked), verify=mode, chunk_bytes=4 * 4288
    )
    verdict = outcome.verdict
    assert (verdict.mode, verdict.samples, verdict.chunks) == (mode, 30011, 7)
    assert verdict.checked == checked
    assert sum(RECOMPUTED) == checked + (mode == "full")  # a sample that tells the size of a partial


@pytest.mark.usefixtures("shared")
def test_default_chunks_keep_everything_busy(
    path: str, workers: Workers, monkeypatch: pytest.MonkeyPatch, samples: NDArray[np.int32]
) -> None:
    assert counted(path).verdict.chunks == 1  # small files are not cut
    monkeypatch.setattr(pipeline.engine.aggregate, "CHUNK_BYTES", {"cpu": (4, 2**28)})
    assert counted(path).verdict.chunks in (4 * workers.computing, 4 * workers.computing + 1)
    monkeypatch.setattr(pipeline.engine.aggregate, "CHUNK_BYTES", {"cpu": (4, 4000)})
    assert counted(path).verdict.chunks == -(-samples.nbytes // 4000)


def test_impossible_modes_and_chunks_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match=r"expected one of auto, full, sample, off, got 'most'"):
        counted(path, verify="most")
    with pytest.raises(UsageError, match=r"expected at least one sample of 4 bytes, got 3"):
        counted(path, chunk_bytes=3)


@pytest.mark.usefixtures("shared")
def test_progress_and_announcement(path: str) -> None:
    steps: list[tuple[int, int]] = []
    announced: list[Workers] = []
    counted(path, chunk_bytes=40000, monitor=Told(lambda done, total: steps.append((done, total)), announced.append))
    assert [total for _, total in steps] == [4 * 30011] * 4
    assert sorted(done for done, _ in steps) == [done for done, _ in steps]
    assert steps[-1][0] == 4 * 30011
    assert [workers.device for workers in announced] == ["cpu"]


@pytest.mark.usefixtures("shared")
def test_raising_compute_fails_the_run_in_one_line(path: str) -> None:
    def raising(block: NDArray[Any], options: Any) -> Any:
        raise RuntimeError("first line\nsecond line")

    with pytest.raises(PipelineError) as caught:
        counted(path, workflow=replace(HISTOGRAM, compute=raising))
    told, _, place = str(caught.value).rpartition(" (")
    assert told == f"histogram: chunk 0 ({path} bytes 0-120043) failed: RuntimeError: first line"
    assert re.fullmatch(r"raising, line \d+\)", place)
    assert caught.value.exit_code == 1


def cut_short(path: str) -> None:
    os.truncate(path, 40000)


def touched(path: str) -> None:
    os.utime(path, ns=(0, 0))


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("change", "chunk_bytes", "text"),
    [
        (cut_short, 2**20, "shrank while it was read: expected 120044 bytes, got 40000"),
        (cut_short, 1000, "shrank while it was read: expected 120044 bytes, got 40000"),
        (touched, 2**20, "was written to while it was read"),
        (touched, 1000, "was written to while it was read"),
        (os.unlink, 1000, "was removed while it was read|expected the file that was planned, got 'No such file"),
    ],
)
def test_file_that_changes_while_it_is_read(
    path: str, change: Callable[[str], None], chunk_bytes: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(block: NDArray[Any], options: Any) -> Any:
        if os.path.exists(path):
            change(path)
        return HISTOGRAM.compute(block, options)

    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", 10000)
    with pytest.raises(PipelineError, match=text) as caught:
        counted(path, workflow=replace(HISTOGRAM, compute=changing), chunk_bytes=chunk_bytes)
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


@contextmanager
def nothing_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No socket or file outlives the block, and no thread its last task, except the pools that Dask keeps."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    process = psutil.Process()
    sockets, threads = {s.fd for s in process.net_connections("all")}, set(threading.enumerate())
    yield
    assert glob.glob(f"{folder}/baru-*") == []
    started = {t for t in threading.enumerate() if not t.name.startswith(("Dask-Offload", "Dask-Callback"))} - threads
    for thread in started:  # a worker that closes does not wait for its threads, which end after the task they are in
        thread.join(10)
    assert {thread.name for thread in started if thread.is_alive()} == set()
    assert [s for s in process.net_connections("all") if s.fd not in sockets] == []


def test_nothing_is_left_behind(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    with nothing_left(tmp_path, monkeypatch):
        counted(path, monitor=Told(on_start=lambda _: seen.extend(glob.glob(f"{tmp_path}/baru-*"))))
    assert len(seen) == 1  # there was something to leave behind


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit(143), PipelineError("planted")])
def test_nothing_is_left_behind_by_an_interrupted_run(
    path: str, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(done: int, total: int) -> None:
        raise error

    with nothing_left(tmp_path, monkeypatch), pytest.raises(error if isinstance(error, type) else type(error)):
        counted(path, chunk_bytes=1000, monitor=Told(interrupt))


def test_run_ends_when_no_worker_comes_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.engine.submit, "ANSWER_SECONDS", 0.5)
    with pytest.raises(PipelineError, match=r"this process, .*: expected a worker to come back within 0.5 s, got none"):
        counted(path, monitor=Told(on_start=lambda workers: workers.client.cluster.scale(0)))
