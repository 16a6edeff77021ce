"""The process that makes checks is started early, for nothing sometimes: then it ends with who started it."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

WAIT = 30.0  # seconds, for what takes milliseconds
SOURCE = """
import os
from pipeline.cluster import check_process
check_process.start_early()
print(check_process._early[0].process.pid, flush=True)
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
