"""Jobs that write an array, from files in the page cache to a file there, beside those that write none and the limits.

python -m tests.benchmarks.array_file OUT.json [MiB]

The limits of writing are measured without a job: the file system makes room, and threads fill it from their memory.
What a job that writes is set beside is the time of a histogram of all that it reads and of filling what it writes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.storage.output_array import output_file
from tests.benchmarks.common import command, process, save
from tests.benchmarks.jobs import MEMORY, inputs
from workflows.regions import Spec

# Words of a job, and which of the inputs it takes: float32, float32, float64, each as large as the others.
JOBS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "histogram": (("histogram", "--range", "0", "1000"), (0,)),
    "reduce": (("reduce", "--op", "sum"), (0,)),
    "map": (("map", "add"), (0, 1)),
    "stencil": (("stencil", "--radius", "1000"), (0,)),  # float64: twice as many bytes as it reads
    "transpose": (("transpose",), (2,)),
}


def run(job: str, paths: Sequence[str], output: Path, verify: str) -> dict[str, Any]:
    """Seconds of a job after its start, bytes that it reads and writes."""
    words, numbers = JOBS[job]
    files = [paths[number] for number in numbers]
    target = () if job in ("histogram", "reduce") else ("-o", str(output))
    report = json.loads(process(command(*words, *files, "-q", "--json", "--verify", verify, *target)).printed)
    performance = report["performance"]
    found = {
        "seconds": performance["seconds"], "start-up seconds": performance["start_up_seconds"],
        "bytes read": sum(os.stat(file).st_size for file in files),
        "bytes written": output.stat().st_size if target else 0,
        "busy": {stage: values["busy_seconds"] for stage, values in performance["stages"].items()},
    }  # fmt: skip
    output.unlink(missing_ok=True)
    for what in ("read", "written"):
        found[f"GB/s {what}"] = found[f"bytes {what}"] / found["seconds"] / 1e9
    return found


def limits(folder: Path, nbytes: int) -> dict[str, float]:
    """GB/s at which room is made for a file, and at which threads fill it from their memory."""
    block = np.ones(2**24, np.uint8)
    with output_file(str(folder / "out.raw"), Spec((nbytes,), block.dtype)) as ready, ThreadPoolExecutor() as pool:
        began = perf_counter()
        path = ready().path
        made = perf_counter()
        file = np.memmap(path, np.uint8, "r+")

        def fill(start: int) -> None:
            file[start : start + len(block)] = block[: nbytes - start]

        list(pool.map(fill, range(0, nbytes, len(block))))
        filled = perf_counter()
    (folder / "out.raw").unlink()
    return {"GB/s of room": nbytes / (made - began) / 1e9, "GB/s filled": nbytes / (filled - made) / 1e9}


def measure(mebibytes: int = 2**13, repeats: int = 2) -> dict[str, Any]:
    """Of each job the fastest of so many runs, without verification and with that of a sample."""
    nbytes = mebibytes * 2**20
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        paths = inputs(folder, ("float32", "float32", "float64"), nbytes)
        limits(folder, 2 * nbytes)  # a virtual machine is given its memory when it is first used
        found: dict[str, Any] = {"bytes of an input": nbytes, "jobs": {}}
        for job in JOBS:
            found["jobs"][job] = {
                verify: min(
                    (run(job, paths, folder / "out.npy", verify) for _ in range(repeats)),
                    key=lambda one: one["seconds"],
                )
                for verify in ("off", "sample")
            }
            print(job, found["jobs"][job], flush=True)
        both = [limits(folder, nbytes) for _ in range(repeats)]
    found["limits"] = {name: max(one[name] for one in both) for name in both[0]}
    filled = found["limits"]["GB/s filled"]
    for job in found["jobs"].values():
        for verify, taken in job.items():
            taken["seconds beside"] = beside(taken, found["jobs"]["histogram"][verify]["GB/s read"], filled)
    return found


def beside(taken: dict[str, Any], read: float, filled: float) -> float:
    """Seconds in which what a job moves is read, and then filled, at so many GB/s."""
    return float(taken["bytes read"] / read + taken["bytes written"] / filled) / 1e9


if __name__ == "__main__":
    save(measure(*map(int, sys.argv[2:3])), sys.argv[1])
