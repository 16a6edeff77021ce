"""Runs with a GPU: what is checked beside its read, and what by tasks of its own."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pipeline.engine.aggregate
import pipeline.engine.aggregate_beside
import pipeline.engine.aggregate_reference
import pipeline.engine.run_loop
import pipeline.storage.chunks
from pipeline.cluster.workers import Workers
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_parts import WAITING_BYTES, Part, Parts
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.pace import Check, Pace
from pipeline.engine.run_loop import Run
from pipeline.errors import VerificationError
from pipeline.gpu.pinned import SOURCE as SOURCE
from pipeline.settings import Settings
from pipeline.storage.chunks import plan
from pipeline.storage.sources import Byteorder, Joined, open_source
from tests.pipeline.engine import test_beside
from tests.pipeline.engine.test_beside import OPTIONS, SAMPLES, on_host
from workflows.histogram import HISTOGRAM

pytestmark = [pytest.mark.usefixtures("compiled", "one_gpu"), pytest.mark.gpu]

gpu, paths = test_beside.gpu, test_beside.paths


@pytest.fixture
def one_gpu(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run has a worker with a GPU."""
    one = replace(workers, device="gpu", computing=1, resources={})
    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(one))
    monkeypatch.setattr(Run, "on_gpus", lambda *_: None)


@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_samples_that_need_a_task_for_their_check_do_not_pile_up(
    paths: list[str], byteorder: Byteorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their partials would be in memory."""
    waiting: list[Any] = []
    monkeypatch.setattr(Parts, "wait", lambda self, part, due: waiting.append(part))
    source = open_source(tuple(paths), "int32", byteorder)
    outcome = run(on_host(HISTOGRAM), OPTIONS, source, Settings(verify="full", chunk_bytes=30_000))
    assert outcome.verdict.checked == len(SAMPLES) and not waiting


@pytest.mark.parametrize("known", [True, False])
def test_every_sample_is_checked_once(
    paths: list[str], known: bool, monkeypatch: pytest.MonkeyPatch, count_calls: Any
) -> None:
    """By tasks of their own where a source, of files among others, has an unknown length."""
    if not known:
        monkeypatch.setattr(Joined, "shape", None)
    by_tasks = count_calls(pipeline.engine.aggregate_reference, "feed")
    beside = count_calls(pipeline.engine.aggregate_beside, "Beside")
    source = Joined(tuple(open_source((path,), "int32") for path in paths))
    outcome = run(on_host(HISTOGRAM), OPTIONS, source, Settings(verify="full", chunk_bytes=30_000))
    assert outcome.verdict.checked == len(SAMPLES) and bool(beside) == known != bool(by_tasks)


@pytest.mark.parametrize("wrong", [False, True])
def test_what_is_left_out_to_learn_the_pace_is_checked_at_the_end(
    paths: list[str], wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if time is up; what is wrong in it ends the run."""
    monkeypatch.setattr(pipeline.engine.run_loop, "LEAST_SECONDS", -1.0)
    monkeypatch.setitem(pipeline.storage.chunks.LEAST_BYTES, "auto", 1)
    monkeypatch.setitem(pipeline.engine.aggregate.PART_BYTES, "gpu", 6000)
    monkeypatch.setattr(Pace, "check", lambda *_: Check.LATER)
    right = on_host(HISTOGRAM)

    def compute(block: Any, options: Any) -> Any:
        counts = right.compute(block, options)
        if len(block) > 200:  # more than is always checked
            counts[1:-2] = np.roll(counts[1:-2], 1)
        return counts

    job = replace(right, compute=compute) if wrong else right
    source, settings = open_source(tuple(paths), "int32"), Settings(verify="auto", chunk_bytes=30_000)
    with pytest.raises(VerificationError, match="a number is wrong in chunk") if wrong else nullcontext():
        assert run(job, OPTIONS, source, settings).verdict.checked == len(SAMPLES)


def test_what_is_due_has_room_for_its_partials(paths: list[str]) -> None:
    """Beyond it random parts are left out, but none that is always checked."""
    source = open_source(tuple(paths), "int32")
    (chunk,) = plan(source, 2**30, "full", 1, 6000)
    pass_ = Pass((Job(HISTOGRAM, OPTIONS),), "gpu", 2**20, verify="auto")
    parts = Parts(pass_, 1, False, lambda part: None)
    partial = np.zeros(WAITING_BYTES // 16, np.uint64)  # half of the room
    for always in (False, False, False, False, False, True):
        parts.wait(Part(chunk, (partial,), "worker", "gpu", always), due=True)
    assert len(parts._due) == 3 and [part.always for part in parts._due] == [False, False, True]
    assert len(parts._others) == 2
