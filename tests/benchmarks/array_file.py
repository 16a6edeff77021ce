"""Jobs that write an array, from file to file in the page cache, compared with jobs that write none and with limits.

python -m tests.benchmarks.array_file OUT.json [MiB]

The limits of writing are measured without a job: the file system allocates a file, and threads fill it from memory.
A job that writes is compared with the time of a histogram of its inputs followed by filling its output.
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

from pipeline.storage.output_file import output_file
from tests.benchmarks.common import command, process, save
from tests.benchmarks.jobs import MEMORY, inputs
from workflows.regions import Spec

# Arguments of a job, and the inputs that it takes of float32, float32 and float64, all of the same bytes.
JOBS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "histogram": (("histogram", "--range", "0", "1000"), (0,)),
    "reduce": (("reduce", "--op", "sum"), (0,)),
    "map": (("map", "add"), (0, 1)),
    "stencil": (("stencil", "--radius", "1000"), (0,)),  # writes float64: twice as many bytes as it reads
    "transpose": (("transpose",), (2,)),
}


def run(job: str, paths: Sequence[str], output: Path, verify: str) -> dict[str, Any]:
    """Seconds of a job after its start-up, and the bytes that it reads and writes."""
    words, numbers = JOBS[job]
    files = [paths[number] for number in numbers]
    target = () if job in ("histogram", "reduce") else ("-o", str(output))
    report = json.loads(process(command(*words, *files, "-q", "--json", "--verify", verify, *target)).printed)
    performance = report["performance"]
    figures = {
        "seconds": performance["seconds"], "start-up seconds": performance["start_up_seconds"],
        "bytes read": sum(os.stat(file).st_size for file in files),
        "bytes written": output.stat().st_size if target else 0,
        "busy": {stage: values["busy_seconds"] for stage, values in performance["stages"].items()},
    }  # fmt: skip
    output.unlink(missing_ok=True)
    for what in ("read", "written"):
        figures[f"GB/s {what}"] = figures[f"bytes {what}"] / figures["seconds"] / 1e9
    return figures


def limits(folder: Path, nbytes: int) -> dict[str, float]:
    """GB/s at which a file is allocated, and at which threads fill it from memory."""
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
    """The fastest of several runs of each job, without verification and with a sample verified."""
    nbytes = mebibytes * 2**20
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        paths = inputs(folder, ("float32", "float32", "float64"), nbytes)
        limits(folder, 2 * nbytes)  # a virtual machine gets its memory on first use
        figures: dict[str, Any] = {"bytes of an input": nbytes, "jobs": {}}
        for job in JOBS:
            figures["jobs"][job] = {
                verify: min(
                    (run(job, paths, folder / "out.npy", verify) for _ in range(repeats)),
                    key=lambda one: one["seconds"],
                )
                for verify in ("off", "sample")
            }
            print(job, figures["jobs"][job], flush=True)
        both = [limits(folder, nbytes) for _ in range(repeats)]
    figures["limits"] = {name: max(one[name] for one in both) for name in both[0]}
    filled = figures["limits"]["GB/s filled"]
    for job in figures["jobs"].values():
        for verify, taken in job.items():
            taken["seconds beside"] = beside(taken, figures["jobs"]["histogram"][verify]["GB/s read"], filled)
    return figures


def beside(taken: dict[str, Any], read: float, filled: float) -> float:
    """Seconds to read the inputs of a job and then fill its output, at these GB/s."""
    return float(taken["bytes read"] / read + taken["bytes written"] / filled) / 1e9


if __name__ == "__main__":
    save(measure(*map(int, sys.argv[2:3])), sys.argv[1])
