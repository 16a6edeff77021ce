"""Every job on files larger than the memory that it may take, on the CPU and on all GPUs: the same bits, and how fast.

python -m tests.benchmarks.jobs OUT.json [MiB]
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import cluster
from pipeline.array_run import run_array
from pipeline.cluster import Placement
from pipeline.devices import find_devices
from pipeline.engine import run
from pipeline.report import to_json
from pipeline.settings import Settings
from pipeline.sources import open_source
from tests.benchmarks.common import save
from workflows import WORKFLOWS
from workflows.array_workflow import ArrayWorkflow

MEMORY = "/dev/shm"
# Job, options, shapes and dtypes of the inputs, by bytes of each.
JOBS: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("histogram", {}, ("int32",)),
    ("reduce", {"op": "sum,mean,var,std,norm,min,max,argmin,argmax,count"}, ("float32",)),
    ("reduce", {"op": "sum"}, ("float64",)),
    ("map", {"operation": "multiply-add"}, ("float32", "float32", "float32")),
    ("transpose", {}, ("float64",)),
    ("stencil", {"radius": 1000}, ("float32",)),
    ("stencil", {"radius": 100}, ("int16",)),
    ("matmul", {}, ("float32 matrix", "float32 matrix")),
)


def inputs(folder: Path, dtypes: tuple[str, ...], nbytes: int) -> list[tuple[str, ...]]:
    """A `.npy` file for each dtype, as paths; a matrix is a square of the eighth of the bytes."""
    paths = []
    for number, kind in enumerate(dtypes):
        dtype, _, matrix = kind.partition(" ")
        random = np.random.default_rng(number)
        size = int((nbytes // 8 // np.dtype(dtype).itemsize) ** 0.5) if matrix else 0
        shape = (size, size) if matrix else (nbytes // 2**14, 2**14 // np.dtype(dtype).itemsize)
        path = folder / f"{number}.npy"
        array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        part = random.standard_normal((min(1024, shape[0]), shape[1])) * 100 + 500
        for start in range(0, shape[0], len(part)):
            array[start : start + len(part)] = part[: shape[0] - start]
        array.flush()
        paths.append((str(path),))
    return paths


def one_run(name: str, options: Any, paths: list[tuple[str, ...]], folder: Path, **how: Any) -> tuple[str, Any]:
    """Digest of the result, and the performance that the report gives, with where it ran."""
    workflow = WORKFLOWS[name]
    chosen = workflow.options(**options)
    if not isinstance(workflow, ArrayWorkflow):
        how.pop("memory_limit")
        report = to_json(run(workflow, chosen, open_source(paths[0]), Settings(**how)))
        digest = hashlib.sha256(repr(report["result"]).encode()).hexdigest()
    else:
        output = folder / "output.npy"
        sources = [open_source(path, samples=False) for path in paths]
        report = to_json(run_array(workflow, chosen, sources, str(output), Settings(**how)))
        with open(output, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        output.unlink()
    return digest, report["performance"] | {"where": report["environment"]["where"]}


def rows(mebibytes: int) -> Iterator[dict[str, Any]]:
    """Each job in every place, with limits of memory, of the host and of each GPU, that its arrays do not fit into."""
    gpus = find_devices().usable
    cluster.SMALL_BYTES = 0  # small or not, every GPU has to take part
    places = {"CPU": "", **{f"{number} GPU": ",".join(map(str, range(number))) for number in (1, 2, 4)
                            if number <= gpus}}  # fmt: skip
    for name, options, dtypes in JOBS:
        with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
            folder = Path(scratch)
            paths = inputs(folder, dtypes, mebibytes * 2**20)
            nbytes = sum(os.path.getsize(path) for (path,) in paths)
            limit = nbytes if name == "matmul" else nbytes // 2
            row: dict[str, Any] = {"job": name, "options": options, "dtypes": dtypes, "bytes": nbytes, "limit": limit}
            taken = row["performance"] = {}
            digests = set()
            for place, visible in places.items():
                os.environ.pop("CUDA_VISIBLE_DEVICES", None)
                limits = {"memory_limit": limit}
                if visible:
                    os.environ["CUDA_VISIBLE_DEVICES"] = visible
                    limits["device_memory_limit"] = limit
                placement = Placement("gpu" if visible else "cpu")
                digest, taken[place] = one_run(name, options, paths, folder, placement=placement, **limits)
                digests.add(digest)
            row["identical"] = len(digests) == 1
            rates = {place: f"{figures['bytes_per_second'] / 1e9:.2f}" for place, figures in taken.items()}
            print(name, options, dtypes, rates, row["identical"], flush=True)
            yield row


def measure(mebibytes: int = 1024) -> dict[str, Any]:
    """All rows."""
    return {"jobs": list(rows(mebibytes))}


if __name__ == "__main__":
    found: list[dict[str, Any]] = []
    for row in rows(int(sys.argv[2]) if len(sys.argv) > 2 else 1024):
        found.append(row)
        save({"jobs": found}, sys.argv[1])  # what there is, also when it is interrupted
