"""What waits for an existing cluster has a limit, whatever happens to its workers and its scheduler."""

from __future__ import annotations

import signal
from pathlib import Path

import dask
import pytest
from distributed import Client

from pipeline.cluster.placement import Placement
from pipeline.engine.run_loop import Run
from pipeline.errors import PipelineError
from pipeline.settings import Settings
from tests.cases.monitors import Told
from tests.pipeline.cluster.dask_processes import WORKER, counted, scheduler, started


@pytest.mark.usefixtures("impatient_once_open")
@pytest.mark.parametrize("moment", ["on_start", "progress"])
def test_workers_that_all_die_end_the_run(path: str, tmp_path: Path, moment: str) -> None:
    """Before the first result; and after some have finished, whose data are gone with their worker."""
    with scheduler(tmp_path) as (file, _), started("worker", *WORKER, "--scheduler-file", file) as only:
        with pytest.raises(PipelineError, match=r"expected a worker to come back within 1 s, got none") as caught:
            counted(path, Placement(scheduler_file=file), monitor=Told(**{moment: lambda *_: only.kill()}))
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("impatient_once_open")
@pytest.mark.parametrize("moment", ["on_start", "progress"])
def test_scheduler_that_freezes_ends_the_run(path: str, tmp_path: Path, moment: str) -> None:
    """Tasks can be submitted to it, but it answers nothing."""
    with scheduler(tmp_path) as (file, process), started("worker", *WORKER, "--scheduler-file", file):
        with pytest.raises(PipelineError, match=r"expected an answer from the scheduler within 1 s, got ") as caught:
            frozen = Told(**{moment: lambda *_: process.send_signal(signal.SIGSTOP)})
            counted(path, Placement(scheduler_file=file), monitor=frozen)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("moment", ["on_start", "progress"])
def test_scheduler_that_dies_ends_the_run(path: str, tmp_path: Path, moment: str) -> None:
    """With what to do, not with the name of a task that Dask has cancelled."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        scheduler(tmp_path) as (file, process),
        started("worker", *WORKER, "--scheduler-file", file),
    ):
        killed = Told(**{moment: lambda *_: process.kill()})
        with pytest.raises(PipelineError, match="expected a scheduler that stays, got no connection to it") as caught:
            counted(path, Placement(scheduler_file=file), monitor=killed)
        assert "\n" not in str(caught.value)


def test_cluster_that_is_restarted_ends_the_run(path: str, tmp_path: Path) -> None:
    """Which drops all tasks, whoever asks for it."""
    with scheduler(tmp_path) as (file, _), started("worker", *WORKER, "--scheduler-file", file):
        with Client(scheduler_file=file, set_as_default=False) as other:
            restarted = Told(progress=lambda *_: other.restart(wait_for_workers=False))
            with pytest.raises(PipelineError, match="expected a cluster that nobody restarts during a run") as caught:
                counted(path, Placement(scheduler_file=file), monitor=restarted)
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("impatient_once_open")
def test_scheduler_that_freezes_ends_calls_on_all_workers(path: str, tmp_path: Path) -> None:
    """At once, as warming up, which is not needed for the result."""
    with scheduler(tmp_path) as (file, process), started("worker", *WORKER, "--scheduler-file", file):
        run = Run(Settings(Placement(scheduler_file=file)), 1)
        with run.open(0) as workers:
            process.send_signal(signal.SIGSTOP)
            run.on_workers(print)
            with pytest.raises(PipelineError, match="expected an answer from the scheduler within 1 s"):
                workers.left()
