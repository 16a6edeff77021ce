"""Tasks of several chunks: how many, the same results chunk by chunk, and errors that name the chunk."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import pipeline.engine.aggregate
from pipeline.cluster.workers import Workers
from pipeline.engine.aggregate import CHUNKS_OF_TASK, TASKS, run
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.outcome import Outcome
from pipeline.engine.run_loop import Run
from pipeline.engine.submit import batches
from pipeline.errors import PipelineError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.chunks import plan
from pipeline.storage.sources import open_source
from tests.cases.aggregation_checks import unchecked
from tests.cases.monitors import Told
from workflows.histogram import HISTOGRAM, HistogramOptions

CHUNK = 400  # bytes: 100 samples


@given(st.integers(0, 3000), st.integers(1, 9), st.integers(1, 9), st.integers(1, 70))
def test_batches_are_all_items_in_order_and_leave_enough_of_them(
    number: int, most: int, computing: int, tasks: int
) -> None:
    cut = batches([range(number)], most, computing, tasks)
    assert [item for batch in cut for item in batch] == list(range(number))
    longest = max(map(len, cut), default=1)
    assert longest <= most
    assert longest == 1 or len(cut) >= tasks * computing
    assert {len(batch) for batch in cut[:-1]} <= {longest}  # only the last one may be shorter


def test_no_task_has_items_of_two_groups() -> None:
    assert batches([range(6), range(6, 13), range(0)], 9, 2, 2) == [
        range(3), range(3, 6), range(6, 9), range(9, 12), range(12, 13)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("chunks", "tasks"), [(4, 4), (255, 255), (256, 128), (512, 128), (513, 129), (10_000, 2500), (10_001, 2501)]
)
def test_tasks_of_two_threads(chunks: int, tasks: int) -> None:
    """A few chunks per task if there are thousands, but never so many that one thread works alone at the end."""
    cut = batches([range(chunks)], CHUNKS_OF_TASK, 2, TASKS)
    assert len(cut) == tasks
    assert len(cut[0]) <= max(1, chunks // 2 // 50)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """2,000 samples whose values are their positions."""
    np.arange(2000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    return str(tmp_path / "samples.bin")


def counted(path: str, verify: str = "full", **changes: Any) -> Outcome:
    options = HistogramOptions(bins=20, range=(0.0, 2000.0))
    return run(
        replace(HISTOGRAM, check=unchecked, **changes),
        options,
        open_source((path,)),
        Settings(verify=verify, chunk_bytes=CHUNK),
    )


@pytest.fixture
def submitted(shared: None, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Number of tasks of each kind that Dask gets, with two threads, when 20 chunks suffice for tasks of three."""
    tasks: Counter[str] = Counter()
    submit = workers.client.submit

    def note(*arguments: Any, key: str, **keywords: Any) -> Any:
        tasks[key.partition("-")[0]] += 1
        return submit(*arguments, key=key, **keywords)

    monkeypatch.setattr(Run, "computing", 2)
    monkeypatch.setattr(pipeline.engine.aggregate, "TASKS", 3)
    monkeypatch.setattr(workers.client, "submit", note)
    return tasks


@pytest.mark.parametrize(("verify", "references", "checked"), [("full", 7, 2000), ("sample", 7, 20), ("off", 0, 0)])
def test_tasks_of_several_chunks_are_checked_chunk_by_chunk(
    path: str, submitted: Counter[str], verify: str, references: int, checked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = counted(path, verify)
    assert submitted == Counter(compute_chunks=7, recompute_parts=references)
    assert (outcome.verdict.chunks, outcome.verdict.checked) == (20, checked)
    assert outcome.result.counts.tolist() == [100] * 20
    monkeypatch.setattr(pipeline.engine.aggregate, "CHUNKS_OF_TASK", 1)
    assert counted(path, verify).result.to_json() == outcome.result.to_json()
    assert submitted["compute_chunks"] == 27


def test_tasks_begin_in_their_order_and_before_checks(
    path: str, workers: Workers, submitted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask takes tasks of one priority in any order."""
    asked: dict[str, list[float]] = {}
    submit = workers.client.submit

    def note(*arguments: Any, key: str, priority: float = 0, **keywords: Any) -> Any:
        asked.setdefault(key.partition("-")[0], []).append(priority)
        return submit(*arguments, key=key, priority=priority, **keywords)

    monkeypatch.setattr(workers.client, "submit", note)
    counted(path)
    computing = asked["compute_chunks"]
    assert len(computing) == 7 and computing == sorted(set(computing), reverse=True)
    assert min(computing) > max(asked["recompute_parts"])


def test_progress_trace_and_stages_are_those_of_chunks(path: str, submitted: Counter[str]) -> None:
    steps: list[int] = []
    source, options = open_source((path,)), HistogramOptions()
    settings = Settings(verify="full", chunk_bytes=CHUNK, traced=True,
                        monitor=Told(lambda done, _: steps.append(done)))  # fmt: skip
    stages = run(HISTOGRAM, options, source, settings).stages
    assert submitted["compute_chunks"] == 7
    assert steps == [CHUNK * (number + 1) for number in range(20)]
    for stage, times in (("kernel", 1), ("verify", 2)):  # the check itself is compared, too
        got = Counter(trace.chunk for trace in stages.traces for span in trace.spans if span.stage == stage)
        assert got == dict.fromkeys(range(20), times)
        assert stages.moved[stage] == 20 * CHUNK


def chunk_of(block: NDArray[Any]) -> int:
    return int(block[0]) // 100


def fails_in_10(block: NDArray[Any], options: HistogramOptions) -> Any:
    if chunk_of(block) == 10:
        raise RuntimeError("first line\nsecond line")
    return HISTOGRAM.compute(block, options)


def wrong_in_10(block: NDArray[Any], options: HistogramOptions) -> Any:
    partial = HISTOGRAM.compute(block, options)
    if chunk_of(block) == 10:
        partial[[3, 4]] += np.array([1, -1])
    return partial


@pytest.mark.parametrize("which", ["compute", "reference"])
def test_failure_names_the_chunk_and_not_its_task(path: str, submitted: Counter[str], which: str) -> None:
    """Chunks 9 to 11 share a task."""
    text = f"histogram: chunk 10 ({path} bytes 4000-4399) failed: RuntimeError: first line"
    with pytest.raises(PipelineError, match=rf"^{re.escape(text)} \(.*, line \d+\)$"):
        counted(path, **{which: fails_in_10})


@pytest.mark.parametrize("which", ["compute", "reference"])
def test_mismatch_names_the_chunk_and_not_its_task(path: str, submitted: Counter[str], which: str) -> None:
    with pytest.raises(VerificationError, match=r"a number is wrong in chunk 10 \(.* bytes 4000-4399\) on worker "):
        counted(path, **{which: wrong_in_10})


def test_task_that_no_worker_survives_is_called_by_its_chunks(path: str) -> None:
    chunks = plan(open_source((path,)), CHUNK, "off", 0)
    jobs = Pass((Job(HISTOGRAM, HistogramOptions()),), "cpu")
    assert jobs.label(chunks[9:10]) == f"histogram: chunk 9 ({path} bytes 3600-3999)"
    several = f"histogram: chunks 9 to 11 ({path} bytes 3600-3999 … {path} bytes 4400-4799)"
    assert jobs.label(chunks[9:12]) == several
