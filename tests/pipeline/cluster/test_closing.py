"""Closing a cluster of processes always ends, whatever they do, and what was computed is not lost."""

from __future__ import annotations

import signal
from threading import Timer
from time import monotonic, sleep

import psutil
import pytest

import pipeline.cluster.processes
import pipeline.process.last_words
from pipeline.cluster.processes import start_processes
from pipeline.errors import PipelineError, PipelineWarning
from pipeline.process.signals import handled, seal


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.processes, "CLOSE_SECONDS", 0.3)


class StuckCluster:
    """Closes when its one process ends, which has to be killed."""

    status = "running"

    def __init__(self) -> None:
        self.process = psutil.Popen(["sleep", "600"])
        self._created = [self.process]

    def close(self, timeout: float) -> None:
        self.process.wait(timeout)


class NeverCloses(StuckCluster):
    """Fails to close in time although its process is dead, as where that is not reaped within a second."""

    def close(self, timeout: float) -> None:
        sleep(timeout)
        self.process.wait(5)
        raise TimeoutError(f"timed out after {timeout} s.")


def test_processes_that_do_not_end_are_killed() -> None:
    with start_processes(StuckCluster, {}) as cluster:
        assert cluster.process.is_running()
    assert cluster.process.returncode == -9


def test_cluster_that_cannot_be_closed_is_only_a_warning() -> None:
    """On Python 3.11 a TimeoutError is an OSError, and was taken for one of the result's file."""
    result = None
    with (
        pytest.warns(PipelineWarning, match=r"did not close \(TimeoutError: timed out after 0.6 s.\); its processes"),
        start_processes(NeverCloses, {}) as cluster,
    ):
        result = "verified"
    assert (result, cluster.process.returncode) == ("verified", -9)
    assert pipeline.process.last_words._abandoned


def test_error_of_the_run_stays_the_error() -> None:
    with pytest.raises(PipelineError, match="planted"), start_processes(NeverCloses, {}):
        raise PipelineError("planted")


def test_signal_does_not_wait_for_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.processes, "CLOSE_SECONDS", 60)
    began = monotonic()
    with pytest.raises(KeyboardInterrupt), start_processes(StuckCluster, {}):
        raise KeyboardInterrupt
    assert monotonic() - began < 30


class HangsToTheEnd(StuckCluster):
    """Does not close even if its process is dead."""

    def close(self, timeout: float) -> None:
        sleep(60)


def test_signal_when_all_is_verified_leaves_time_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ignores it, but is killed seven seconds later."""
    monkeypatch.setattr(pipeline.cluster.processes, "CLOSE_SECONDS", 20)
    monkeypatch.setattr(pipeline.cluster.processes, "HURRY_SECONDS", 0.3)
    began = monotonic()
    with pytest.warns(PipelineWarning, match=r"TimeoutError: no answer"), handled():
        timer = Timer(0.3, signal.raise_signal, (signal.SIGTERM,))
        with start_processes(HangsToTheEnd, {}) as cluster:
            seal()
            timer.start()
    assert monotonic() - began < 10
    assert cluster.process.wait(5) == -9


class StartsOnceMore(StuckCluster):
    """Fails to start the first times."""

    attempts = 0
    fails = 1

    def __init__(self) -> None:
        super().__init__()
        type(self).attempts += 1
        if self.attempts <= self.fails:
            raise RuntimeError("Nanny failed to start worker process")


def test_start_that_fails_once_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    with start_processes(StartsOnceMore, {}, lambda: prepared.append(1)) as cluster:
        assert type(cluster).attempts == 2 == len(prepared)


class NeverStarts(StartsOnceMore):
    """Fails to start every time."""

    attempts = 0
    fails = 9


def test_start_that_fails_twice_is_one_line() -> None:
    with pytest.raises(PipelineError, match="expected a process for every worker to start, got RuntimeError: Nanny"):
        start_processes(NeverStarts, {}).__enter__()
