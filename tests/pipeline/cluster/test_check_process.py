"""The process that makes checks is started early, for nothing sometimes: then it ends with who started it."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

WAIT = 30.0  # seconds, for what takes milliseconds
SOURCE = "from pipeline.cluster import check_process as one; one.start_early(); print(one._early[0].process.pid)"


def test_one_that_is_not_needed_ends_with_its_starter() -> None:
    done = subprocess.run([sys.executable, "-c", SOURCE], capture_output=True, text=True, timeout=WAIT, check=True)
    assert not done.stderr
    until = time.monotonic() + WAIT
    while psutil.pid_exists(int(done.stdout)):
        assert time.monotonic() < until, "it lives on"
        time.sleep(0.01)
