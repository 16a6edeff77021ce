"""Runs in several threads of a process: their clusters take turns."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import pipeline
from pipeline.cluster.worker import FOLDER
from pipeline.errors import PipelineError
from workflows import WORKFLOWS
from workflows.reduce import REDUCE

SECONDS = 60  # of the whole program, which takes four
SOURCE = """
import logging, os
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import dask, distributed, numpy as np
import pipeline

def state():
    levels = [handler.level for handler in logging.getLogger("distributed").handlers]
    return dict(os.environ), dask.config.get("temporary-directory", None), levels

def run(number):
    sleep(number % 4 / 50)
    if number % 3:
        return pipeline.run("reduce", "a.npy", op="sum").values["sum"]
    return pipeline.run("transpose", "a.npy", output=f"{number}.npy").array.sum()

before = state()
with ThreadPoolExecutor(4) as threads:
    assert set(threads.map(run, range(12))) == {int(np.load("a.npy").sum())}
assert state() == before
"""


def test_threads_run_jobs_over_files(tmp_path: Path) -> None:
    """Two at a time failed for want of a scratch folder, and showed Dask's logs."""
    np.save(tmp_path / "a.npy", np.arange(60_000).reshape(300, 200))
    words = [sys.executable, "-W", "ignore", "-c", SOURCE]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")


def test_task_that_runs_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a file, it would wait for the run that it is a part of; an array needs no cluster."""
    path, inner = tmp_path / "a.npy", [1, 2, 3]
    np.save(path, np.arange(100, dtype=np.int32))

    def computing(given: Any) -> Any:
        def compute(block: Any, options: Any) -> Any:
            assert pipeline.run("reduce", given, op="sum").values == {"sum": 6}
            return REDUCE.compute(block, options)

        return dataclasses.replace(REDUCE, name="nested", compute=compute)

    monkeypatch.setitem(WORKFLOWS, "nested", computing(np.array(inner)))
    assert pipeline.run("nested", path, op="sum").values == {"sum": 4950}
    monkeypatch.setitem(WORKFLOWS, "nested", computing(path))
    with pytest.raises(PipelineError, match=r"expected no run over files inside another run, .* pass arrays"):
        pipeline.run("nested", path, op="sum")


@pytest.mark.parametrize("how", ["run", "submit"])
def test_job_whose_client_side_runs_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """What checks and adds up partials is called by the thread of the run: it waited for itself for ever."""
    np.save(tmp_path / "a.npy", np.arange(100))

    def again(partial: Any, samples: int) -> None:
        pipeline.run("reduce", np.arange(3))
        if how == "run":
            pipeline.run("reduce", tmp_path / "a.npy")
        else:
            pipeline.submit("reduce", np.arange(3)).result(SECONDS)

    monkeypatch.setitem(WORKFLOWS, "nested", dataclasses.replace(REDUCE, name="nested", invariants=(again,)))
    with pytest.raises(PipelineError, match=r"expected no (run over files|wait for a job) inside a"):
        pipeline.submit("nested", tmp_path / "a.npy").result(SECONDS)
    assert pipeline.run("reduce", tmp_path / "a.npy", op="sum").values == {"sum": 4950}  # its turn has ended


def test_callback_that_waits_for_the_next_job() -> None:
    """It is called by the thread that would run it; a run of its own needs no other thread."""
    found: list[Any] = []
    called = threading.Event()

    def next_one(job: Any) -> None:
        found.append(pipeline.run("reduce", np.arange(4), op="sum").values["sum"])
        found.append(pipeline.submit("reduce", np.arange(5), op="sum"))
        try:
            found[1].result(SECONDS)
        except PipelineError as error:
            found.append(str(error))
        called.set()

    pipeline.submit("reduce", np.arange(3)).add_done_callback(next_one)
    assert called.wait(SECONDS)
    assert found[0] == 6 and "expected no wait for a job inside a job or callback" in found[2]
    assert found[1].result(SECONDS).values == {"sum": 10}


ENDING = """
import threading
import pipeline

once = threading.Event()

def runs():
    while True:
        pipeline.run("reduce", "a.npy")
        once.set()

"""
ENDS = {  # how, and the last line
    "submitted": ("for name in 'bc':\n    pipeline.submit('transpose', 'a.npy', output=name + '.npy')", ""),
    "in a thread": (
        "threading.Thread(target=runs).start()\nonce.wait()",
        "expected a program that outlives its runs",
    ),
}


@pytest.mark.skipif((3, 12) <= sys.version_info < (3, 12, 2), reason="Python starts no threads then")
@pytest.mark.parametrize("which", ENDS)
def test_program_that_ends_before_its_jobs(tmp_path: Path, which: str) -> None:
    """They failed or hung, since Dask's threads take no tasks once Python exits; in threads of its own they fail."""
    np.save(tmp_path / "a.npy", np.arange(100).reshape(10, 10))
    ends, line = ENDS[which]
    words = [sys.executable, "-W", "ignore", "-c", ENDING + ends]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert line in done.stderr.rpartition("PipelineError: ")[2] and bool(line) == bool(done.stderr), done.stderr
    if which == "submitted":
        for name in "bc":
            np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), np.arange(100).reshape(10, 10).T)


def test_callers_cluster_in_a_process_that_has_one_of_its_own(tmp_path: Path) -> None:
    """Its tasks showed their progress to the other run, in a folder that this may remove."""
    np.save(tmp_path / "a.npy", np.arange(100))
    missing = {FOLDER: str(tmp_path / "missing")}  # as a run sets it for its own cluster
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
        dask.config.set(missing),
    ):
        assert pipeline.run("reduce", tmp_path / "a.npy", op="sum", client=client).values == {"sum": 4950}
