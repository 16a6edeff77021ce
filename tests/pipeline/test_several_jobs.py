"""Several jobs over one source: it is read once, and each result is that of the job alone."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.cluster.cuda_preload
import pipeline.cluster.placement
import pipeline.engine.aggregate_beside
import pipeline.engine.aggregate_reference
import pipeline.engine.aggregate_task
import pipeline.engine.run_loop
import pipeline.storage.blocks
from pipeline.cluster.placement import Placement
from pipeline.cluster.workers import Workers
from pipeline.engine.aggregate import run, run_all
from pipeline.engine.aggregate_beside import Fed
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.run_loop import Run
from pipeline.errors import VerificationError
from pipeline.gpu.blocks import BLOCK_BYTES, CHUNKS, block_bytes_within, spare_bytes_within
from pipeline.settings import Settings
from pipeline.storage.chunks import Chunk
from pipeline.storage.pieces import Piece
from pipeline.storage.sources import open_source
from tests.cases.aggregation_checks import unchecked
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions

ON_CPU = Placement(device="cpu")
RECOMPUTED = threading.Event()  # a reference has run; the cluster is in this process


@pytest.fixture
def samples() -> NDArray[np.int32]:
    return np.random.default_rng(0).integers(-100, 1200, 30011, dtype=np.int32)


@pytest.fixture
def path(tmp_path: Path, samples: NDArray[np.int32]) -> str:
    samples.tofile(tmp_path / "samples.bin")
    return str(tmp_path / "samples.bin")


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("verify", ["full", "sample", "off"])
def test_several_jobs_are_read_once_and_say_what_they_say_alone(
    path: str, verify: str, samples: NDArray[np.int32], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a job that surveys the data first."""
    jobs = [Job(HISTOGRAM, HistogramOptions(bins=7)), Job(REDUCE, ReduceOptions("sum,std,argmax")),
            Job(HISTOGRAM, HistogramOptions(bins=5, range="auto"))]  # fmt: skip
    source = open_source((path,))
    how = Settings(ON_CPU, verify, 40000)
    monkeypatch.setattr(pipeline.engine.run_loop.secrets, "randbits", lambda bits: 3)
    read: list[int] = []
    compute, check = pipeline.engine.aggregate_task, pipeline.engine.aggregate_reference
    for module, name in ((compute, "read_blocks"), (check, "feed")):

        def counting(chunk: Chunk, *more: Any, plain: Any = getattr(module, name)) -> Any:
            read.append(chunk.nbytes)
            return plain(chunk, *more)

        monkeypatch.setattr(module, name, counting)

    def adding(self: Fed, piece: Piece, start: int, nbytes: int, index: int, plain: Any = Fed.add) -> None:
        read.append(nbytes)
        plain(self, piece, start, nbytes, index)

    monkeypatch.setattr(Fed, "add", adding)
    together = run_all(jobs, source, how)
    verified = {"full": samples.nbytes, "sample": 4 * together[0].verdict.checked, "off": 0}[verify]
    assert sum(read) == 2 * (samples.nbytes + verified)  # one survey, one pass
    assert {outcome.stages.nbytes for outcome in together} == {2 * samples.nbytes}
    for job, outcome in zip(jobs, together, strict=True):
        alone = run(job.workflow, job.options, source, how)
        assert json.dumps(outcome.result.to_json()) == json.dumps(alone.result.to_json())
        assert outcome.verdict == alone.verdict
    assert together[2].options.range == (float(samples.min()), float(samples.max()))
    assert together[1].result.values["sum"] == samples.sum()


@pytest.mark.usefixtures("shared")
def test_wrong_number_of_any_job_ends_them_all(path: str) -> None:
    def wrong(block: NDArray[Any], options: Any) -> Any:
        return REDUCE.compute(block, options) + 1

    jobs = [Job(HISTOGRAM, HistogramOptions()), Job(replace(REDUCE, compute=wrong), ReduceOptions("sum"))]
    with pytest.raises(VerificationError, match=r"^reduce: a number is wrong in chunk 0"):
        run_all(jobs, open_source((path,)), Settings(ON_CPU, "full"))


def telling(block: NDArray[Any], options: Any) -> NDArray[np.int64]:
    RECOMPUTED.set()
    return HISTOGRAM.reference(block, options)


def test_references_run_beside_computing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while other chunks wait for a GPU: those after the first two begin only after a reference has run."""
    RECOMPUTED.clear()
    in_time: list[bool] = []

    def blocks(chunk: Any, timeline: Any, nbytes: int, beside: Any, spare: int) -> Iterator[NDArray[Any]]:
        in_time.append(len(in_time) < CHUNKS or RECOMPUTED.wait(10))
        return pipeline.storage.blocks.read_blocks(chunk, timeline)

    monkeypatch.setattr(pipeline.cluster.placement, "cores", lambda: 8)
    monkeypatch.setattr(pipeline.cluster.cuda_preload, "warm_up", lambda: None)
    monkeypatch.setattr(Run, "on_gpus", lambda *_: None)
    monkeypatch.setattr(pipeline.engine.aggregate_task, "device_blocks", blocks)
    monkeypatch.setattr(pipeline.engine.aggregate_task, "device_name", lambda device: device)
    monkeypatch.setattr(pipeline.engine.aggregate_beside, "checks_beside", lambda chunk: False)
    with pipeline.cluster.placement._in_this_process(Placement(), "gpu") as gpu:
        monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(gpu))
        workflow = replace(HISTOGRAM, reference=telling, check=unchecked)
        outcome = run(workflow, HistogramOptions(), open_source((path,)), Settings(verify="full", chunk_bytes=9000))
    assert outcome.verdict.chunks == 14 and in_time == [True] * 14


@pytest.mark.usefixtures("shared")
def test_limit_of_memory_travels_with_every_task(
    path: str, workers: Workers, monkeypatch: pytest.MonkeyPatch, samples: NDArray[np.int32]
) -> None:
    """A restarted worker knows nothing else."""
    asked: list[tuple[int, int]] = []

    def blocks(chunk: Any, timeline: Any, nbytes: int, beside: Any, spare: int) -> Iterator[NDArray[Any]]:
        asked.append((nbytes, spare))
        return pipeline.storage.blocks.read_blocks(chunk, timeline)

    gpu = replace(workers, device="gpu", resources={})
    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(gpu))
    monkeypatch.setattr(pipeline.engine.aggregate_task, "device_blocks", blocks)
    monkeypatch.setattr(pipeline.engine.aggregate_task, "device_name", lambda device: device)
    monkeypatch.setattr(pipeline.engine.aggregate_beside, "checks_beside", lambda chunk: False)
    within = block_bytes_within(2**23), spare_bytes_within(2**23)
    for limit, expected in ((2**23, within), (None, (BLOCK_BYTES, sys.maxsize))):
        asked.clear()
        settings = Settings(chunk_bytes=40000, device_memory_limit=limit)
        outcome = run(HISTOGRAM, HistogramOptions(), open_source((path,)), settings)
        np.testing.assert_array_equal(outcome.result.counts, np.histogram(samples, 1024, (0, 1024))[0])
        assert asked == [expected] * 4
