"""Products whose first region a process computes that was started early: whatever becomes of it, bits are the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pipeline.engine.array_first_process as module
import pipeline.engine.array_task
from pipeline.cluster import helper_process
from pipeline.cluster.helper_process import COMPUTES, CheckProcess
from pipeline.cluster.workers import Workers
from pipeline.engine.array_first_process import Begun
from pipeline.engine.journal import Journal
from pipeline.errors import PipelineError
from pipeline.timeline import Timeline
from tests.cases.matmul import on_cpu
from tests.pipeline.engine.test_array_check_ahead import changed, multiplied, ordinary
from workflows.matmul import MATMUL

WAIT = 30.0  # seconds, for what takes milliseconds
HERE: list[Any] = []  # regions that were computed in this process


@pytest.fixture(autouse=True)
def process(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckProcess]:
    """A process that was started early, for runs whose worker is in this one."""

    def opened(placement: Any, nbytes: int, compiled: Any, load: Any, here: Any) -> Any:
        here("cpu")
        return nullcontext(workers)

    real = pipeline.engine.array_task.compute_and_write

    def here(plan: Any, region: Any, *others: Any) -> Any:
        HERE.append(region)
        return real(plan, region, *others)

    HERE.clear()
    monkeypatch.setattr("pipeline.engine.run_loop.open_workers", opened)
    monkeypatch.setattr(pipeline.engine.array_task, "compute_and_write", here)
    for name, shape in (("a", (60, 50)), ("b", (50, 40))):
        np.save(tmp_path / f"{name}.npy", ordinary(*shape).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    helper_process.start_early(COMPUTES)
    (early,) = helper_process._early
    yield early
    helper_process._end_unneeded()
    early.process.wait(WAIT)


def same_bits() -> bool:
    expected = on_cpu(np.load("a.npy"), np.load("b.npy"))
    return bool(np.load("c.npy").tobytes() == expected.tobytes())


def test_it_computes(process: CheckProcess) -> None:
    outcome = multiplied()
    assert same_bits() and not HERE and outcome.verdict.checked == 60 * 40
    assert outcome.stages.seconds["kernel"] > 0
    assert process.process.wait(WAIT) == 0 and not module._of_runs


def test_other_regions_are_computed_here() -> None:
    assert multiplied(chunk_bytes=4 * 1500).verdict.checked == 60 * 40
    assert same_bits() and HERE and ((0, 60), (0, 40)) not in HERE


@pytest.mark.parametrize("how", ["killed early", "killed", "stopped"])
def test_this_process_computes_if_the_other_fails(
    process: CheckProcess, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Begun.counts

    def asking(self: Begun, *arguments: Any) -> Any:
        self._sent.join()
        return counts(self, *arguments)

    monkeypatch.setattr(Begun, "counts", asking)
    monkeypatch.setattr(helper_process, "LOOK_SECONDS", 0.05)
    os.kill(process.process.pid, signal.SIGSTOP if how == "stopped" else signal.SIGKILL)
    if how == "killed early":
        process.process.wait(WAIT)
    assert multiplied(stall_seconds=0.2).verdict.checked == 60 * 40
    assert same_bits() and HERE == [((0, 60), (0, 40))] and process.process.wait(WAIT) == -signal.SIGKILL


def test_error_is_one_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one dies of a file that has shrunk, or ends."""
    begin = module.begin

    def shrinking(*arguments: Any) -> Any:
        os.truncate("a.npy", 200)
        return begin(*arguments)

    monkeypatch.setattr("pipeline.engine.array.begin", shrinking)
    with pytest.raises(PipelineError, match=r"a\.npy: "):
        multiplied()
    assert not Path("c.npy").exists()


def test_what_it_does_not_know_is_computed_here(process: CheckProcess) -> None:
    multiplied(changed(lambda *arguments: MATMUL.compute(*arguments)))
    assert same_bits() and HERE and process.process.poll() is None


def test_nothing_is_begun_within_a_limit_of_memory(process: CheckProcess) -> None:
    multiplied(memory_limit=2**30)
    assert same_bits() and HERE and process.process.poll() is None


def test_only_its_region_is_taken_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    region = ((0, 4), (0, 6))
    one = SimpleNamespace(region=region, counts=lambda timeline: {"exact": 24})
    monkeypatch.setitem(module._of_runs, "a run", one)
    plan: Any = SimpleNamespace(run="a run")
    assert module.begun(plan, ((4, 8), (0, 6)), Timeline()) is None
    other: Any = SimpleNamespace(run="another")
    assert module.begun(other, region, Timeline()) is None
    assert module.begun(plan, region, Timeline()) == {"exact": 24}
    assert module.begun(plan, region, Timeline()) is None


@pytest.mark.parametrize("replaces", [False, True])
def test_file_of_an_unfinished_run_stays_until_this_one_has_workers(
    replaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first region would be written to the output, which then replaces that file."""

    def refused(placement: Any, nbytes: int, compiled: Any, load: Any, here: Any) -> Any:
        here("cpu")
        for one in tuple(module._of_runs.values()):
            one._sent.join()
        raise PipelineError("no workers")

    monkeypatch.setattr("pipeline.engine.run_loop.open_workers", refused)
    left, journal = Path(".c.npy.01234567.part"), Journal()
    left.write_bytes(b"unfinished")
    journal.token, journal._off, journal.replaces = "01234567", False, replaces
    with pytest.raises(PipelineError, match="no workers"):
        multiplied(journal=journal)
    assert left.exists() == replaces
