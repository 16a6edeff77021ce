"""The process that makes checks is started early, for nothing sometimes: then it ends with who started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

WAIT = 30.0  # seconds, for what takes milliseconds
SOURCE = """
import os
from pipeline.cluster import helper_process
helper_process.start_early()
print(helper_process._early[0].process.pid, flush=True)
"""


@pytest.mark.parametrize("end", ["", "os._exit(0)"])
def test_one_that_is_not_needed_ends_with_its_starter(end: str) -> None:
    command = [sys.executable, "-X", "dev", "-c", SOURCE + end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True)
    assert not done.stderr
    until = time.monotonic() + WAIT
    while psutil.pid_exists(int(done.stdout)):
        assert time.monotonic() < until, "it lives on"
        time.sleep(0.01)


COMMAND = """
import pipeline.__main__
pipeline.__main__.CHECKED_APART = 0
pipeline.__main__.main()
"""


def test_nothing_is_left_of_one_that_cannot_cache_what_it_compiles(tmp_path: Path) -> None:
    """It is killed, so it removes nothing itself."""
    np.save(tmp_path / "a.npy", np.eye(60, dtype=np.float32))
    (tmp_path / "tmp").mkdir()
    variables = {"TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": "/dev/null", "CXX": "/bin/false"}
    command = [sys.executable, "-c", COMMAND, "matmul", "a.npy", "a.npy", "-o", "c.npy", "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | variables, capture_output=True, timeout=2 * WAIT)
    assert done.returncode == 0, done.stderr
    assert (np.load(tmp_path / "c.npy") == np.eye(60)).all()
    assert not list((tmp_path / "tmp").iterdir())
