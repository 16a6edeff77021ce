"""Runs in a process that was forked from one that has run before, as `multiprocessing` does by default on Linux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SECONDS = 60  # of both processes, which take three
SOURCE = """
import os, signal, sys
import numpy as np
import pipeline

def run():
    return {job}

before = run()
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(20)  # ends it
os._exit(run() != before)
"""
JOBS = {
    "in a cluster": "pipeline.run('histogram', 'a.npy', range=(0, 1)).counts.tolist()",
    "to a file": "pipeline.run('transpose', 'a.npy', output='t.npy').array.tolist()",
    "in memory": "pipeline.run('matmul', *2 * [np.load('a.npy')]).array.tolist()",
    "beside the caller": "pipeline.submit('reduce', np.load('a.npy')).result().values['sum']",
}


@pytest.mark.parametrize("job", JOBS)
def test_a_forked_process_runs_jobs(tmp_path: Path, job: str) -> None:
    """It waited for threads that a fork does not copy."""
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((700, 700), np.float32))
    words = [sys.executable, "-W", "ignore", "-c", SOURCE.format(job=JOBS[job])]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")


POOL = """
import multiprocessing
import pipeline, pipeline.cluster.placement

pipeline.cluster.placement.PROCESSES_FROM_BYTES, pipeline.cluster.placement.processes = 0, lambda compiled: 2

def run(path):
    found = pipeline.run("reduce", path, op="sum", device="cpu").values["sum"]
    return found, multiprocessing.current_process().daemon

if __name__ == "__main__":
    with multiprocessing.Pool(1) as pool:
        print(pool.map(run, ["a.npy"]))
"""


def test_a_process_of_a_pool_starts_workers(tmp_path: Path) -> None:
    """It is daemonic: `multiprocessing` let it start none, so jobs over large files, or on several GPUs, failed."""
    np.save(tmp_path / "a.npy", np.arange(100))
    words = [sys.executable, "-W", "ignore", "-c", POOL]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[(4950, True)]\n", "")
