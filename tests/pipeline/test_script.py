"""A script that runs jobs without a `__main__` guard: its workers do not run it again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
from dataclasses import replace
import pipeline.cluster.placement
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM, HistogramOptions

print("once")
pipeline.cluster.placement.PROCESSES_FROM_BYTES, pipeline.cluster.placement.processes = 0, lambda compiled: 2

def compute(block, options):
    return HISTOGRAM.compute(block, options)

settings = Settings(placement=Placement(device="cpu", own_process={own}))
done = run(replace(HISTOGRAM, compute=compute), HistogramOptions(), open_source(("samples.bin",)), settings)
print(done.result.counts.sum(), done.where)
"""


MEANWHILE = """
import os, threading, time

def meanwhile():
    while "PYTHONHASHSEED" not in os.environ:  # until Dask starts processes
        time.sleep(0.01)
    os.environ["OWN"] = "1"
    del os.environ["LOST"]
"""


@pytest.mark.parametrize("own", [False, True], ids=["spawned", "forked"])
def test_it_runs_once(own: bool, tmp_path: Path) -> None:
    """Functions that it defines still reach them."""
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    (tmp_path / "script.py").write_text(SCRIPT.format(own=own))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "once\n1000 2 processes on this machine\n")


@pytest.mark.parametrize("own", [False, True], ids=["spawned", "forked"])
def test_files_beside_the_data_are_not_run(own: bool, tmp_path: Path) -> None:
    """Python's `-c`, with which multiprocessing starts its processes, looks for modules in the working folder first."""
    (tmp_path / "data").mkdir()
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "data" / "samples.bin")
    for name in ("multiprocessing", "signal", "threading", "numpy", "pipeline", "distributed"):
        (tmp_path / "data" / f"{name}.py").write_text("open('imported', 'w')\nraise SystemExit(9)")
    (tmp_path / "script.py").write_text(f"import os\n{SCRIPT.format(own=own)}\nprint('PYTHONSAFEPATH' in os.environ)")
    done = subprocess.run([sys.executable, "../script.py"], cwd=tmp_path / "data", text=True, capture_output=True,
                          timeout=60)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "once\n1000 2 processes on this machine\nFalse\n"
    assert not (tmp_path / "data" / "imported").exists()


def test_variables_that_other_threads_set_stay(tmp_path: Path) -> None:
    """Those that Dask sets do not; all were set back to what they had been before the run."""
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    source = SCRIPT.format(own=False).replace(
        "settings =", "before = dict(os.environ)\nos.environ['LOST'] = ''\nsettings ="
    )
    source = source.replace("done =", "threading.Timer(0, meanwhile).start()\ndone =")
    (tmp_path / "script.py").write_text(f"{MEANWHILE}{source}\nprint({{*os.environ.items()}} ^ {{*before.items()}})\n")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, text=True, capture_output=True, timeout=60
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "once\n1000 2 processes on this machine\n{('OWN', '1')}\n"
