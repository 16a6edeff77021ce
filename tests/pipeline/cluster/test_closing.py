"""Closing a cluster of processes always ends, whatever they do."""

from __future__ import annotations

import psutil
import pytest

import pipeline.cluster.processes


class StuckCluster:
    """Closes when its one process ends, which has to be killed."""

    status = "running"

    def __init__(self) -> None:
        self.workers = {0: psutil.Popen(["sleep", "600"])}

    def close(self) -> None:
        self.workers[0].wait()


def test_processes_that_do_not_end_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.processes, "CLOSE_SECONDS", 0.1)
    with pipeline.cluster.processes.start_processes(StuckCluster, {}) as cluster:
        assert cluster.workers[0].is_running()
    assert cluster.workers[0].returncode == -9
