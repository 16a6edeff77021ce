"""Every job on files larger than its memory limit, on the CPU and on 1, 2 and 4 GPUs: same bits, and rates.

python -m tests.benchmarks.jobs OUT.json [MiB]
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.gpu.devices import find_devices
from tests.benchmarks.common import command, process, save
from workflows import WORKFLOWS
from workflows.array_job import ArrayJob

MEMORY = "/dev/shm"
MATRIX_SHARE = 32  # a matrix has 1/32 of the bytes of other inputs: its product takes the cube of its side
# Job, its arguments, and the dtypes of its inputs, all of the same bytes.
JOBS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("matmul", (), ("float32 matrix", "float32 matrix")),
    ("histogram", (), ("int32",)),
    ("reduce", ("--op", "sum,mean,var,std,norm,min,max,argmin,argmax,count"), ("float32",)),
    ("reduce", ("--op", "sum"), ("float64",)),
    ("map", ("multiply-add",), ("float32", "float32", "float32")),
    ("transpose", (), ("float64",)),
    ("stencil", ("--radius", "1000"), ("float32",)),
    ("stencil", ("--radius", "100"), ("int16",)),
)


def inputs(folder: Path, dtypes: tuple[str, ...], nbytes: int) -> list[str]:
    """Paths of a `.npy` file for each dtype; a matrix is square and has a small part of the bytes."""
    paths = []
    for number, kind in enumerate(dtypes):
        dtype, _, matrix = kind.partition(" ")
        random = np.random.default_rng(number)
        size = int((nbytes // MATRIX_SHARE // np.dtype(dtype).itemsize) ** 0.5) if matrix else 0
        shape = (size, size) if matrix else (nbytes // 2**14, 2**14 // np.dtype(dtype).itemsize)
        path = folder / f"{number}.npy"
        array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        part = random.standard_normal((min(1024, shape[0]), shape[1])) * 100 + 500
        for start in range(0, shape[0], len(part)):
            array[start : start + len(part)] = part[: shape[0] - start]
        array.flush()
        paths.append(str(path))
    return paths


def one_run(words: Sequence[str], output: Path | None, visible: str, limits: Sequence[str]) -> tuple[str, Any]:
    """Digest of the result of a command, the performance it reports, and where it ran."""
    device = ("--gpus", "all") if visible else ("--device", "cpu")
    target = ("-o", str(output)) if output else ()
    shown = os.environ | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
    report = json.loads(process(command(*words, "-q", "--json", *device, *limits, *target), shown).printed)
    if output:
        with open(output, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        output.unlink()
    else:
        digest = hashlib.sha256(repr(report["result"]).encode()).hexdigest()
    return digest, report["performance"] | {"where": report["environment"]["where"]}


def rows(mebibytes: int) -> Iterator[dict[str, Any]]:
    """Each job in every place, under limits of host and GPU memory that its inputs exceed."""
    gpus = find_devices().usable
    every = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
    places = {"CPU": ""} | {f"{number} GPU": ",".join(every[:number]) for number in (1, 2, 4) if number <= gpus}
    for name, options, dtypes in JOBS:
        with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
            folder = Path(scratch)
            paths = inputs(folder, dtypes, mebibytes * 2**20)
            nbytes = sum(map(os.path.getsize, paths))
            limit = nbytes // 2
            is_array = isinstance(WORKFLOWS[name], ArrayJob)
            row: dict[str, Any] = {"job": name, "options": options, "dtypes": dtypes, "bytes": nbytes, "limit": limit}
            taken = row["performance"] = {}
            digests = set()
            for place, visible in places.items():
                # Histograms and reductions stream, on the CPU within a few MiB per thread.
                limits = ["--memory-limit", str(limit)] if is_array else []
                limits += ["--device-memory-limit", str(limit)] if visible else []
                output = folder / "output.npy" if is_array else None
                digest, taken[place] = one_run([name, *options, *paths], output, visible, limits)
                digests.add(digest)
                print(name, options, dtypes, place, f"{taken[place]['seconds']:.2f} s", flush=True)
            row["identical"] = len(digests) == 1
            print("identical:", row["identical"], flush=True)
            yield row


def measure(mebibytes: int = 1024) -> dict[str, Any]:
    """All rows."""
    return {"jobs": list(rows(mebibytes))}


if __name__ == "__main__":
    rows: list[dict[str, Any]] = []
    for row in rows(int(sys.argv[2]) if len(sys.argv) > 2 else 1024):
        rows.append(row)
        save({"jobs": rows}, sys.argv[1])  # so that an interrupted run keeps its results
