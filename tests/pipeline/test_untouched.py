"""What runs leave as it was in the program that calls them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

SECONDS = 60  # of the whole program, which takes three
SOURCE = """
import gc, logging, random
from time import monotonic, sleep
import numpy as np
import pipeline

def run():
    assert pipeline.run("reduce", "a.npy", op="sum").values == {"sum": 4950}
    pipeline.run("transpose", "a.npy", output="b.npy")

def state():
    gc.collect()
    servers = sum("Scheduler" in str(type(one)) or "Worker" in str(type(one)) for one in gc.get_objects())
    handlers = [len(logging.getLogger(f"distributed.{name}").handlers) for name in ("scheduler", "worker")]
    drawn = random.getstate(), np.random.get_state()[1].tolist()
    return servers, handlers, drawn

run()  # imports Dask
before = state()
for _ in range(3):
    run()
until = monotonic() + 20  # threads that close the last cluster may not have ended
while (after := state())[0] > before[0] and monotonic() < until:
    sleep(0.1)
assert after[0] <= before[0] and after[1] == before[1], (before[:2], after[:2])
assert after[2] == before[2]
"""


def test_state_of_the_program(tmp_path: Path) -> None:
    """Dask kept schedulers and workers that were closed, with a handler of logs each, and drew from `random`."""
    np.save(tmp_path / "a.npy", np.arange(100).reshape(10, 10))
    words = [sys.executable, "-W", "ignore", "-c", SOURCE]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
