"""Whole commands on CPU cores against commands with other libraries, on one file in the page cache.

python -m tests.benchmarks OUT_FOLDER --only command

PEERS_PYTHON names an interpreter with polars and duckdb to run peers.py with; the JSON file lists peers that it lacks.
The machine may be shared, so the commands alternate and the least seconds count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.storage.generate import generate
from tests.benchmarks.common import Process, command, process, with_bytecode
from tests.benchmarks.peers import PEERS

PEERS_FILE = str(Path(__file__).with_name("peers.py"))
MATMUL_SHARE = 16  # a matrix has 1/16 of the bytes of other inputs
COLUMNS = 512  # of the matrices


def inputs(job: str, mebibytes: int, folder: Path) -> list[str]:
    """Write the input files of a job."""
    if job == "matmul":
        paths = [str(folder / "a.npy"), str(folder / "b.npy")]
        rows = max(8, mebibytes * 2**20 // MATMUL_SHARE // 4 // COLUMNS)
        for number, (path, length) in enumerate(zip(paths, (rows, COLUMNS), strict=True)):
            array = np.lib.format.open_memmap(path, "w+", np.float32, (length, COLUMNS))
            random = np.random.default_rng(number)
            for start in range(0, length, 4096):
                part = array[start : start + 4096]
                part[:] = random.standard_normal(part.shape)
            array.flush()
        return paths
    path = str(folder / "data.bin")
    dtype, distribution = ("int32", "uniform") if job == "histogram" else ("float32", "gaussian")
    generate(path, mebibytes * 2**18, dtype, distribution)
    return [path]


def ours(job: str, files: Sequence[str], out: str) -> list[str]:
    """The command."""
    options = {"reduce": ["--op", "sum,mean,var,min,max", "--dtype", "float32"], "matmul": ["-o", out]}.get(job, [])
    return command(job, "--device", "cpu", "-q", "--json", *options, *files)


def numbers(job: str, printed: str, out: str) -> Any:
    """The result of our command in the form that peers print."""
    result = json.loads(printed)["result"]
    if job == "histogram":
        return result["histogram"]["storage"]["values"][1:-1]
    if job == "reduce":
        return [result[name] for name in ("sum", "mean", "var", "min", "max")]
    product = np.load(out, mmap_mode="r")
    return product[:: max(1, len(product) // 8), 0].tolist()


def available(python: str, job: str) -> tuple[list[str], list[str]]:
    """Peers that the interpreter can import, and those it cannot."""
    there, missing = [], []
    for peer in PEERS[job]:
        done = subprocess.run([python, "-c", f"import {peer.replace('-', '_')}"], capture_output=True)
        (missing if done.returncode else there).append(peer)
    return there, missing


def measure(mebibytes: int = 4096, repeats: int = 5, jobs: Sequence[str] = tuple(PEERS)) -> dict[str, Any]:
    """Seconds, peak memory and agreement of every command on every job."""
    python = os.environ.get("PEERS_PYTHON", sys.executable)
    figures: dict[str, Any] = {}
    left_out: dict[str, list[str]] = {}
    for job in jobs:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
            folder = Path(scratch)
            files, out = inputs(job, mebibytes, folder), str(folder / "out.npy")
            environment = with_bytecode(folder)
            peers, left_out[job] = available(python, job)
            works = {"ours": ours(job, files, out)}
            works |= {peer: [python, PEERS_FILE, job, peer, *files, *[out] * (job == "matmul")] for peer in peers}
            runs: dict[str, list[Process]] = {name: [] for name in works}
            results = {}
            for _ in range(repeats):
                for name, work in works.items():
                    runs[name].append(process(work, environment))
                    printed = runs[name][-1].printed
                    results[name] = numbers(job, printed, out) if name == "ours" else json.loads(printed)
                    print(job, name, f"{runs[name][-1].seconds:.2f} s", flush=True)
            nbytes = sum(os.path.getsize(path) for path in files)
            figures[job] = {
                name: {"seconds": min(run.seconds for run in taken), "all seconds": [run.seconds for run in taken],
                       "peak bytes": max(run.peak_bytes for run in taken), "bytes": nbytes,
                       "agrees": agrees(job, results["ours"], results[name])}
                for name, taken in runs.items()
            }  # fmt: skip
    return {"repeats": repeats, "whole command": figures, "left out": left_out}


def agrees(job: str, ours: Any, theirs: Any) -> bool:
    """Whether a peer has the same result: counts exactly, sums up to its rounding."""
    if job == "histogram":
        return bool(ours == theirs)
    tolerance = {"reduce": 1e-9, "matmul": 1e-3}[job]
    return bool(np.allclose(ours, theirs, rtol=tolerance, atol=tolerance if job == "matmul" else 0))
