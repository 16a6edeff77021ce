"""Tasks that are computed again: on another worker, with the same bits, or the run ends."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.cluster.placement
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run
from pipeline.engine.array import run_array
from pipeline.engine.outcome import Outcome
from pipeline.errors import UsageError, VerificationError
from pipeline.report.panel import panel
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.formats import PipeSource
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.map import MAP, MapOptions

CHUNK = 4000  # bytes
CHUNKS = 20


@pytest.fixture
def path(tmp_path: Path) -> str:
    samples = np.random.default_rng(0).integers(0, 1024, CHUNK // 4 * CHUNKS, dtype=np.int32)
    np.save(tmp_path / "samples.npy", samples)
    return str(tmp_path / "samples.npy")


def counted(path: str, replayed: float, workflow: Any = HISTOGRAM) -> Outcome:
    how = Settings(Placement("cpu"), "off", replay=replayed, chunk_bytes=CHUNK)
    return run(workflow, HistogramOptions(), open_source((path,)), how)


def doubled(path: str, target: Path, replayed: float) -> Outcome:
    how = Settings(Placement("cpu"), "off", replay=replayed, chunk_bytes=3 * CHUNK)
    operands = [open_source((path,), samples=False) for _ in range(2)]
    return run_array(MAP, MapOptions("add"), operands, str(target), how)


def in_another_way(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """Another bin each time that samples come."""
    counts = HISTOGRAM.compute(block, options)
    name = f"{os.environ['BARU_TEST_MARKS']}/{int(block[0])}-{int(block[1])}"
    if os.path.exists(name):
        counts[1:3] += np.array([1, -1])
    Path(name).touch()
    return counts


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_share_of_the_chunks(path: str, share: float) -> None:
    outcome = counted(path, share)
    again = outcome.verdict.replayed
    assert again == share * CHUNKS if share in (0, 1) else 0 < again < CHUNKS
    assert outcome.verdict.elsewhere == 0  # there is one process
    assert outcome.result.counts.sum() == CHUNK // 4 * CHUNKS
    assert ("tasks computed again, on the same device: the same bits" in "\n".join(panel(outcome))) == (share > 0)


def test_another_process_computes_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.placement, "PROCESSES_FROM_BYTES", 0)
    monkeypatch.setattr(pipeline.cluster.placement, "processes", lambda compiled: 2)
    monkeypatch.setattr(pipeline.cluster.placement, "cores", lambda: 2)
    verdict = counted(path, 1).verdict
    assert verdict.replayed == verdict.elsewhere == CHUNKS


def test_other_bits_end_the_run(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing is verified."""
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("BARU_TEST_MARKS", str(tmp_path / "marks"))
    with pytest.raises(
        VerificationError, match=r"^histogram: chunk \d+ .* worker \S+ \(cpu, .* computed different bits"
    ):
        counted(path, 0.5, replace(HISTOGRAM, compute=in_another_way))


@pytest.mark.parametrize("share", [0.5, 1])
def test_regions_of_an_array(path: str, tmp_path: Path, share: float) -> None:
    outcome = doubled(path, tmp_path / "out.npy", share)
    assert outcome.verdict.replayed == CHUNKS if share == 1 else 0 < outcome.verdict.replayed < CHUNKS
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), 2 * np.load(path))


def test_stream_is_refused(tmp_path: Path) -> None:
    """Its blocks would have to stay in memory."""
    with pytest.raises(UsageError, match="--replay: expected inputs of known length, got"):
        run(HISTOGRAM, HistogramOptions(), PipeSource(str(tmp_path), np.dtype("int32")), Settings(replay=0.1))


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_share_that_cannot_be(share: float) -> None:
    with pytest.raises(UsageError, match="--replay: expected a share from 0 to 1, got"):
        Settings(replay=share)
