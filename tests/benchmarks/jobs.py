"""Every job on files larger than its memory limit, on the CPU and on 1, 2 and 4 GPUs: same bits, and rates.

And in 1, 2, 3 and 7 chunks, in each of these places and by two workers on the CPU: same bits. Without a GPU, those on
the CPU only.

python -m tests.benchmarks.jobs OUT.json [MiB] [--chunks] [--every N]
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from distributed import LocalCluster

from pipeline.cli.main import cli
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

CHUNKS = (1, 2, 3, 7)  # on several GPUs the last only: each run starts processes
CHUNKED_SHARE = 16  # files that are cut have 1/16 of the bytes: what matters is where
SLICE = "slice"  # in the place of "matrix": what is read of the array
INDEX = "[3:, ::2]"  # half of it
SLACK = 4096  # bytes: chunks end where pages do, and what that takes from each must not make one more
# As above; "{mask}" is a file beside the first input.
CHUNKED: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    *JOBS,
    ("quantile", ("--q", "0,0.01,1/3,0.5,0.99,1"), ("float32",)),
    ("quantile", ("--q", "0.1,0.5", "--method", "lower"), ("int64",)),
    ("quantile", ("--q", "0.1,0.5", "--channels", "4"), ("float64",)),
    ("reduce", ("--op", "median,iqr,mad,q0.001,skewness,kurtosis"), ("float32",)),
    ("reduce", ("--op", "median,iqr,mad,argmin"), ("int16",)),
    ("histogram", ("--bins", "auto", "--range", "auto"), ("float32",)),
    ("histogram", ("--bins", "doane", "--range", "auto"), ("int32",)),
    ("histogram", ("--range", "auto"), ("int16",)),
    ("digest", (), ("float32",)),
    ("digest", ("--channels", "4", "--layout", "planar"), ("int8",)),
    ("histogram", ("--range", "auto", "--bins", "64", "--segment", "100003"), ("float32",)),
    ("reduce", ("--op", "std,argmax,kurtosis", "--axis", "1"), ("int16",)),
    ("reduce", ("--op", "sum,median", "--by", "file"), ("float32", "float32")),
    ("reduce", ("--op", "mean,median,argmin,argmax", "--where", "450 < x and x < 700 or i < 99"), ("float64",)),
    ("histogram", ("--mask", "{mask}", "--missing", "500"), ("int16",)),
    ("reduce", ("--op", "sum,argmax,iqr", "--mask", "{mask}", "--channels", "8"), ("float32",)),
    ("histogram", ("--gain", "0.01", "--bias", "-5", "--transform", "square", "--range", "0", "30"), ("float32",)),
    ("reduce", ("--op", "sum,std,median", "--gain", "0.5", "--bias", "9", "--transform", "log"), ("int16",)),
    ("reduce", ("--op", "sum,argmax,median"), ("float32 slice",)),
    ("digest", (), ("int32 slice",)),
    ("transpose", (), ("float32 slice",)),
)


def inputs(folder: Path, dtypes: tuple[str, ...], nbytes: int) -> list[str]:
    """Paths of a `.npy` file for each dtype; a matrix is square and has a small part of the bytes."""
    paths = []
    for number, kind in enumerate(dtypes):
        dtype, _, how = kind.partition(" ")
        random = np.random.default_rng(number)
        size = int((nbytes // MATRIX_SHARE // np.dtype(dtype).itemsize) ** 0.5) if how == "matrix" else 0
        shape = (size, size) if how == "matrix" else (nbytes // 2**14, 2**14 // np.dtype(dtype).itemsize)
        path = folder / f"{number}.npy"
        array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        part = random.standard_normal((min(1024, shape[0]), shape[1])) * 100 + 500
        part = part.clip(-128, 127) if dtype == "int8" else part
        for start in range(0, shape[0], len(part)):
            array[start : start + len(part)] = part[: shape[0] - start]
        array.flush()
        paths.append(str(path) + (INDEX if how == SLICE else ""))
    return paths


def of_mask(folder: Path, shape: tuple[int, ...]) -> str:
    """Path of a mask of this shape."""
    np.save(folder / "mask.npy", np.random.default_rng(9).random(shape) < 0.7)
    return str(folder / "mask.npy")


def printed(words: Sequence[str]) -> str:
    """What a command prints that runs in this process, which saves the seconds that Python takes to start."""
    text = io.StringIO()
    with redirect_stdout(text):
        status = cli.main(list(words), prog_name="python -m pipeline", standalone_mode=False)
    if status:
        raise RuntimeError(f"{words} ended with status {status}")
    return text.getvalue()


def one_run(
    words: Sequence[str], output: Path | None, visible: str, limits: Sequence[str], alone: bool = True
) -> tuple[str, Any]:
    """Digest of the result of a command, the performance it reports, where it ran, and in how many chunks.

    `alone`: whether it is a process of its own on a CPU, too.
    """
    device = ("--gpus", "all") if visible else ("--device", "cpu")
    target = ("-o", str(output)) if output else ()
    shown = os.environ | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
    words = [*words, "-q", "--json", *device, *limits, *target]
    report = json.loads(process(command(*words), shown).printed if visible or alone else printed(words))
    if output:
        with open(output, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        output.unlink()
    else:
        digest = hashlib.sha256(repr(report["result"]).encode()).hexdigest()
    told = {"where": report["environment"]["where"], "chunks": report["verification"]["chunks"]}
    return digest, report["performance"] | told


def gpu_places() -> dict[str, str]:
    """GPUs that a run sees, by the name of the place; none on the CPU."""
    gpus = find_devices().usable
    every = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
    return {"CPU": ""} | {f"{number} GPU": ",".join(every[:number]) for number in (1, 2, 4) if number <= gpus}


def rows(mebibytes: int) -> Iterator[dict[str, Any]]:
    """Each job in every place, under limits of host and GPU memory that its inputs exceed."""
    places = gpu_places()
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


def chunked(mebibytes: int, every: int = 1) -> Iterator[dict[str, Any]]:
    """Each job, or one out of so many, in every place and so many chunks."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        places = [(place, visible, (), CHUNKS if place in ("CPU", "1 GPU") else CHUNKS[-1:])
                  for place, visible in gpu_places().items()]  # fmt: skip
        places.insert(1, ("CPU, 2 workers", "", ("--scheduler", cluster.scheduler_address), CHUNKS))
        for name, options, dtypes in CHUNKED[::every]:
            with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
                yield _chunked(Path(scratch), (name, options, dtypes), mebibytes * 2**20, places)


def _chunked(
    folder: Path, job: tuple[str, tuple[str, ...], tuple[str, ...]], nbytes: int, places: Sequence[Any]
) -> dict[str, Any]:
    name, options, dtypes = job
    paths = inputs(folder, dtypes, nbytes)
    nbytes = sum(os.path.getsize(path.removesuffix(INDEX)) for path in paths)
    read = nbytes // 2 if paths[0].endswith(INDEX) else nbytes
    words = [of_mask(folder, np.load(paths[0], "r").shape) if word == "{mask}" else word for word in options]
    output = folder / "output.npy" if isinstance(WORKFLOWS[name], ArrayJob) else None
    numbers: dict[str, list[int]] = {}
    digests = set()
    for place, visible, more, cuts in places:
        for chunks in cuts:
            size = "--chunk-size", str(-(-read // chunks) + SLACK)
            digest, told = one_run([name, *words, *paths], output, visible, [*size, *more], alone=False)
            numbers.setdefault(place, []).append(told["chunks"])
            digests.add(digest)
    print(name, options, dtypes, "identical:", len(digests) == 1, flush=True)
    return {"job": name, "options": options, "dtypes": dtypes, "bytes": nbytes, "chunks": numbers,
            "identical": len(digests) == 1}  # fmt: skip


def measure(mebibytes: int = 1024, every: int = 1, limits: bool = True) -> Iterator[dict[str, Any]]:
    """All rows, after each of them.

    `every`: of those in chunks, one out of so many; `limits`: also those under limits.
    """
    figures: dict[str, Any] = {}
    if limits and find_devices().usable:  # on the CPU alone these are only rates
        figures["jobs"] = []
        for row in rows(mebibytes):
            figures["jobs"].append(row)
            yield figures
    figures["chunked"] = []
    for row in chunked(max(mebibytes // CHUNKED_SHARE, 1), every):
        figures["chunked"].append(row)
        yield figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.jobs")
    parser.add_argument("path", metavar="OUT.json")
    parser.add_argument("mebibytes", metavar="MiB", type=int, nargs="?", default=1024)
    parser.add_argument("--every", metavar="N", type=int, default=1, help="in chunks only one job out of N")
    parser.add_argument("--chunks", action="store_true", help="only in chunks, without the runs under limits")
    given = parser.parse_args()
    save(measure(given.mebibytes, given.every, not given.chunks), given.path)
