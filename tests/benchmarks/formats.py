"""Histograms of one set of samples in several formats: rates beside raw int16, and commands beside other libraries'.

python -m tests.benchmarks OUT_FOLDER --only formats

Stores lie in memory, one at a time beside the raw file. The two alternate, and the least seconds count. On a GPU there
are no other libraries' commands: they read on the CPU.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.gpu.devices import find_devices
from tests.benchmarks import format_stores
from tests.benchmarks.common import Process, command, process
from tests.benchmarks.format_stores import LEVELS, SHARD_BYTES, sharded
from tests.benchmarks.jobs import MEMORY
from tests.benchmarks.markdown import share, table
from tests.benchmarks.tree_memory import tree_memory

PEERS_FILE = str(Path(__file__).with_name("format_peers.py"))
TILE_BYTES = 2**28  # written again and again
MODES = ("off", "auto")
KINDS = ("anonymous", "pss")  # of memory
MEBIBYTES = {"gpu": 2**13, "cpu": 2**9}  # of samples
HISTOGRAM = ("histogram", "--bins", str(LEVELS), "--range", "0", str(LEVELS), "-q", "--json")


class Store(NamedTuple):
    """How samples are stored, the package that this or reading it takes, and the name of the file."""

    write: Callable[[Path, Any, int], None]
    package: str
    name: str
    flags: tuple[str, ...] = ()
    noisy: bool = False


RAW = Store(format_stores.raw, "numpy", "raw.bin", ("--dtype", "int16"))
STORES: Mapping[str, Store] = {
    "u12p": Store(format_stores.packed, "numpy", "packed.bin", ("--dtype", "u12p")),
    "HDF5, contiguous": Store(format_stores.hdf5, "h5py", "a.h5"),
    "Zarr, uncompressed": Store(format_stores.zarr, "numpy", "a.zarr"),
    "Arrow, uncompressed": Store(format_stores.arrow, "pyarrow", "a.arrow"),
    **{f"Zarr, LZ4, chunks of {kib} KiB": Store(sharded("lz4", kib), "numcodecs", "a.zarr") for kib in (16, 64, 256)},
    **{
        f"Zarr, Zstandard, chunks of {kib} KiB": Store(sharded("zstd", kib), "numcodecs", "a.zarr", noisy=True)
        for kib in (16, 64)
    },
}
# What a library and NumPy count on the CPU's cores.
COMMANDS: Mapping[str, str] = {
    "HDF5, contiguous": "h5py + NumPy", "Zarr, Zstandard, chunks of 64 KiB": "zarr + dask.array",
    "Arrow, uncompressed": "pyarrow + NumPy",
}  # fmt: skip


def stored_bytes(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


def counts_of(run: Process) -> list[int]:
    """Counts that our command printed."""
    return list(json.loads(run.printed)["result"]["histogram"]["storage"]["values"][1:-1])


def ours(store: Store, path: Path, mode: str) -> list[str]:
    """Our command."""
    return command(*HISTOGRAM, str(path), *store.flags, "--verify", mode)


def written(name: str, path: Path, mebibytes: int) -> tuple[int, list[int]]:
    """Write samples in a format; returns their bytes, and what a histogram of them has to be."""
    store = RAW if name == "raw" else STORES[name]
    tile_bytes = min(max(mebibytes * 2**20, SHARD_BYTES), TILE_BYTES)
    times = max(mebibytes * 2**20 // tile_bytes, 1)
    tile = (format_stores.noise if store.noisy else format_stores.held)(tile_bytes // 2)
    store.write(path, tile, times)
    return times * tile_bytes, [int(count) for count in times * np.bincount(tile, minlength=LEVELS)]


class Bench:
    """Samples in a folder, in any format.

    A process of its own writes them: the peak memory of a command counts from that of the process that starts it.
    """

    def __init__(self, folder: Path, mebibytes: int) -> None:
        self.folder, self.mebibytes = folder, mebibytes

    def write(self, name: str) -> tuple[Path, int, list[int]]:
        """Write a store; returns its path, and as `written`."""
        path = self.folder / (RAW if name == "raw" else STORES[name]).name
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return path, *pool.submit(written, name, path, self.mebibytes).result()


def streamed(name: str, bench: Bench, raw: Path, repeats: int) -> dict[str, Any]:
    """Least seconds of a store and of the raw file after the start of the command, and the share checked."""
    path, nbytes, counts = bench.write(name)
    figures: dict[str, Any] = {"stored bytes": stored_bytes(path), "sample bytes": nbytes, "agrees": True}
    for mode in MODES:
        reports: dict[str, list[Any]] = {"": [], "raw ": []}
        for _ in range(repeats):
            for kind, words in (("raw ", ours(RAW, raw, mode)), ("", ours(STORES[name], path, mode))):
                run = process(words)
                reports[kind].append(json.loads(run.printed))
                if not kind:
                    figures["agrees"] &= counts_of(run) == counts
        for kind, runs in reports.items():
            best = min(runs, key=lambda report: report["performance"]["seconds"])
            verdict = best["verification"]
            figures[f"{kind}{mode}"] = {
                "seconds": best["performance"]["seconds"], "share": verdict["checked"] / verdict["samples"],
                "transfers": best["environment"]["transfers"],
            }  # fmt: skip
    removed(path)
    return figures


def commands(name: str, bench: Bench, repeats: int) -> dict[str, Any]:
    """Whole commands: ours, verified, and the peer's."""
    path, nbytes, counts = bench.write(name)
    works = {"ours": ours(STORES[name], path, "auto"), "peer": [sys.executable, PEERS_FILE, COMMANDS[name], str(path)]}
    runs: dict[str, list[Process]] = {who: [] for who in works}
    for _ in range(repeats):
        for who, words in works.items():
            runs[who].append(process(words))
    memory = {who: tree_memory(words) for who, words in works.items()}  # apart, since looking takes time
    removed(path)
    right = counts_of(runs["ours"][0]) == counts and json.loads(runs["peer"][0].printed) == counts
    return {
        "peer": COMMANDS[name], "sample bytes": nbytes, "agrees": right,
        **{f"{who} seconds": min(run.seconds for run in taken) for who, taken in runs.items()},
        **{f"{who} peak bytes": most._asdict() for who, most in memory.items()},
    }  # fmt: skip


def measure(mebibytes: int | None = None, repeats: int = 3, whole: int = 2**11) -> dict[str, Any]:
    """All rows, and the names of stores whose package is missing.

    Parameters
    ----------
    mebibytes
        Of samples that stream; by default 8 GiB on a GPU, 512 MiB on a CPU.
    repeats
    whole
        MiB of samples of whole commands.
    """
    device = "gpu" if find_devices().usable else "cpu"
    there = [name for name, store in STORES.items() if find_spec(store.package)]
    rows, of_commands = {}, {}
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        bench = Bench(Path(scratch), mebibytes or MEBIBYTES[device])
        raw, _, _ = bench.write("raw")
        process(ours(RAW, raw, "auto"))  # compiles what is not cached
        for name in there:
            rows[name] = streamed(name, bench, raw, repeats)
            print(name, {mode: f"{rows[name][mode]['seconds']:.2f} s" for mode in MODES}, flush=True)
        removed(raw)
        for name, peer in COMMANDS.items() if device == "cpu" else ():
            if name in there and all(map(find_spec, peer.lower().replace("dask.array", "dask").split(" + "))):
                of_commands[name] = commands(name, Bench(Path(scratch), whole), repeats)
                print(name, of_commands[name], flush=True)
    missing = [name for name in STORES if name not in there]
    return {"repeats": repeats, "streamed": rows, "whole command": of_commands, "left out": missing}


def removed(path: Path) -> None:
    """Delete a file or folder."""
    shutil.rmtree(path) if path.is_dir() else os.unlink(path)


def described(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A table: rates of samples and of the file, unverified and verified, as ratios to raw int16."""
    columns = ["", "bytes of raw"]
    for mode in ("unverified", "verified"):
        columns += [f"{mode}: samples, GB/s", "file, GB/s", "samples, × raw"]
    lines: list[Sequence[str]] = []
    for name, row in rows.items():
        cells = [share(row["stored bytes"] / row["sample bytes"])]
        for mode in MODES:
            taken, raw = row[mode]["seconds"], row[f"raw {mode}"]["seconds"]
            cells += [f"{row[part] / taken / 1e9:.3g}" for part in ("sample bytes", "stored bytes")]
            cells.append(share(raw / taken))
        cells[-1] += f", {100 * row['auto']['share']:.0f} % checked"
        lines.append([name, *cells])
    return table(columns, lines)


def described_commands(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A table: whole commands and their memory beside other libraries'."""
    heads = ["seconds", "MB, anonymous", "MB, PSS"]
    columns = ["whole command, verified", *heads, "beside", *heads]
    lines = []
    for name, row in rows.items():
        ours_, theirs = (
            [f"{row[f'{who} seconds']:.2f}", *(f"{row[f'{who} peak bytes'][kind] / 1e6:.0f}" for kind in KINDS)]
            for who in ("ours", "peer")
        )
        lines.append([f"{name}, {row['sample bytes'] / 2**30:g} GiB", *ours_, row["peer"], *theirs])
    return table(columns, lines)
