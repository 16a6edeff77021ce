"""The whole command on CPU cores, beside `numpy.bincount(numpy.fromfile(...))` in a process of its own.

python -m tests.benchmarks.histogram_command OUT.json
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from pipeline.generate import generate
from tests.benchmarks.common import save

NUMPY = "import sys, numpy; print(numpy.bincount(numpy.fromfile(sys.argv[1], numpy.int32), minlength=1024)[:10])"


def run(command: list[str]) -> tuple[float, int]:
    """Wall seconds and peak resident bytes of a process."""
    began = perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    if status:
        raise RuntimeError(f"{command} ended with status {status}")
    return perf_counter() - began, 1024 * usage.ru_maxrss


def measure(small: int = 2**25, large: int = 2**30, larger: int = 2**32, repeats: int = 5) -> dict[str, Any]:
    """Seconds and memory of both on a small and a large file, taking turns."""
    found: dict[str, Any] = {}
    job = [sys.executable, "-m", "pipeline", "histogram", "--device", "cpu", "-q"]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "data.bin"))
        for samples, verify in ((small, "full"), (large, "sample")):
            generate(path, samples)
            commands = {"pipeline": [*job, "--verify", verify, path], "numpy": [sys.executable, "-c", NUMPY, path]}
            taken: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
            for turn in range(repeats + 1):
                for name, command in commands.items():
                    result = run(command)
                    if turn:  # the first reads the file into the page cache
                        taken[name].append(result)
            found[f"{samples} samples, --verify {verify}"] = {
                name: {"seconds": statistics.median(seconds for seconds, _ in results),
                       "peak bytes": max(memory for _, memory in results)}
                for name, results in taken.items()
            }  # fmt: skip
        os.truncate(path, 4 * larger)  # without taking room on the disk: what counts here is memory
        seconds, memory = run([*job, path])
        found[f"{larger} samples of a sparse file"] = {"pipeline": {"seconds": seconds, "peak bytes": memory}}
    return {"repeats": repeats, "whole command": found}


if __name__ == "__main__":
    save(measure(), sys.argv[1])
