"""Sources of unknown length: planned while they are read, in bounded memory and time, with a truthful verdict."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline.cluster.placement import Placement
from pipeline.cluster.workers import Workers
from pipeline.engine.aggregate import run, run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import PipelineError, UsageError
from pipeline.report.panel import panel, to_json
from pipeline.settings import Settings
from pipeline.storage import array_source, sources
from pipeline.storage.chunks import UnknownPlan, plan
from pipeline.storage.protocol import Opening
from pipeline.storage.sources import Joined, open_source
from tests.cases import formats
from tests.cases.formats import GZIP, PACKED, PIPE, PipeSource, Writer, open_gzip, written
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions

ON_CPU = Placement(device="cpu")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FORMATS", [PIPE, GZIP, PACKED, *sources.FORMATS])


@pytest.fixture
def samples() -> NDArray[np.uint16]:
    return np.random.default_rng(0).integers(0, 4096, 30_002).astype(np.uint16)


@pytest.mark.usefixtures("shared")
def test_verdict_does_not_promise_what_a_pipe_cannot(tmp_path: Path, samples: NDArray[np.uint16]) -> None:
    Writer(tmp_path / "pipe", samples.tobytes())
    source = open_source((str(tmp_path / "pipe"),), "uint16")
    outcome = run(HISTOGRAM, HistogramOptions(), source, Settings(ON_CPU, "full"))
    assert (outcome.verdict.samples, outcome.verdict.checked, outcome.verdict.read_once) == (30_002, 30_002, True)
    line = str(outcome.verdict)
    assert line.startswith(
        "100 % of 30,002 samples checked: equal to the reference, which got the same blocks from memory"
    )
    assert "can be read only once" in line
    document = to_json(outcome)
    assert document["input"]["samples"] == 30_002 and document["input"]["bytes"] == 60_004
    assert document["verification"]["read_once"] is True
    assert any(line.startswith("histogram of") and "pipe" in line for line in panel(outcome))


@pytest.mark.usefixtures("shared")
def test_range_that_a_first_pass_finds(tmp_path: Path, samples: NDArray[np.uint16]) -> None:
    """A gzip file can be read twice, a pipe cannot: the error comes before anything is read."""
    path = written("gzip", samples, tmp_path)
    result = pipeline.run("histogram", path, bins=10, range="auto", dtype="uint16")
    np.testing.assert_array_equal(result.counts, np.histogram(samples, 10)[0])
    os.mkfifo(tmp_path / "pipe")  # without a writer
    text = r"^histogram: expected a source that can be read twice, .* got \S+pipe, .* once; give --range LO HI, or"
    with pytest.raises(UsageError, match=text):
        pipeline.run("histogram", tmp_path / "pipe", range="auto")


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("kind", ["pipe", "gzip", "packed"])
def test_jobs_that_need_regions(tmp_path: Path, kind: str, samples: NDArray[np.uint16]) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path) if kind == "pipe" else (path := written(kind, samples, tmp_path))
    with pytest.raises(
        UsageError,
        match=r"expected an array that is stored in one piece, in chunks or in memory.* write the array",
    ):
        pipeline.run("transpose", path, output=tmp_path / "out.npy")


@pytest.mark.usefixtures("shared")
def test_memory_for_a_pipe_is_bounded(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MiB in blocks of 64 KiB; checked blocks are released."""
    most: list[int] = []
    real = formats.keep

    def counting(*arguments: Any) -> Any:
        most.append(len(array_source._kept))
        return real(*arguments)

    monkeypatch.setattr(formats, "keep", counting)
    monkeypatch.setattr(array_source, "_kept", WeakValueDictionary())  # earlier tests may have left some
    data = np.arange(2**21, dtype=np.int32)
    Writer(tmp_path / "pipe", data.tobytes())
    result = pipeline.run("reduce", tmp_path / "pipe", op="sum", chunk_bytes=2**16, verify="full")
    assert result.values == {"sum": data.sum()}
    assert len(most) == 128
    assert max(most) <= 4 * workers.threads


def run_pipe(tmp_path: Path, data: bytes, seconds: float = 30, then: threading.Event | None = None) -> Any:
    Writer(tmp_path / "pipe", data, then)
    source = PipeSource(str(tmp_path / "pipe"), np.dtype(np.int32), 64, seconds)
    return run_all([Job(REDUCE, ReduceOptions("sum"))], source, Settings(ON_CPU))[0]


@pytest.mark.usefixtures("shared")
def test_empty_pipe(tmp_path: Path) -> None:
    """Treated as an empty array: the job's result for no samples."""
    outcome = run_pipe(tmp_path, b"")
    assert outcome.result.values == {"sum": 0} and outcome.verdict.samples == 0
    source = PipeSource(str(tmp_path / "other"), np.dtype(np.int32))
    Writer(tmp_path / "other", b"")
    with pytest.raises(UsageError) as caught:
        run(replace(HISTOGRAM, empty=None), HistogramOptions(), source, Settings(ON_CPU))
    assert str(caught.value) == f"{tmp_path}/other: expected samples for histogram, got none"


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("whole", [0, 3, 64])
def test_pipe_that_ends_inside_a_sample(tmp_path: Path, whole: int) -> None:
    with pytest.raises(
        PipelineError, match=rf"pipe: expected whole samples of 4 bytes, got 3 left over at byte {4 * whole + 3}"
    ):
        run_pipe(tmp_path, bytes(4 * whole + 3))


@pytest.mark.usefixtures("shared")
def test_writer_that_stalls(tmp_path: Path) -> None:
    go_on = threading.Event()
    try:
        with pytest.raises(
            PipelineError, match=r"within 0\.2 s, got nothing after byte 1002; is the writer still running"
        ):
            run_pipe(tmp_path, bytes(1002), 0.2, go_on)
    finally:
        go_on.set()


def test_nobody_writes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PipelineError, match=r"within 0\.2 s, got nothing after byte 0"):
        list(PipeSource(str(tmp_path / "pipe"), np.dtype(np.int32), 64, 0.2).pieces())


def test_unknown_length_is_planned_while_it_is_read(tmp_path: Path, samples: NDArray[np.uint16]) -> None:
    source = open_gzip(str(written("gzip", samples, tmp_path)), Opening("uint16"))
    chunks = plan(source, 1000, "sample", 5)
    assert isinstance(chunks, UnknownPlan)
    assert list(chunks) == list(chunks)
    assert [(chunk.index, chunk.start, chunk.samples) for chunk in chunks] == [(0, 0, 20_001), (1, 20_001, 10_001)]
    assert (source.samples, source.nbytes, source.shape) == (None, None, None)
    together = Joined((open_source((str(written("packed", samples, tmp_path)),)), source))
    assert together.samples is None and not together.local
