"""Latencies besides the data: `--help`, a small file, compiling kernels, planning and scheduling.

python -m tests.benchmarks OUT_FOLDER --only waiting
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.engine.aggregate import CHUNK_BYTES
from pipeline.gpu.devices import find_devices
from pipeline.storage.chunks import plan
from pipeline.storage.generate import generate
from pipeline.storage.identity import Identity
from pipeline.storage.sources import Files, SourceFile
from tests.benchmarks.common import command, process, with_bytecode

TINY_CHUNK = 4096  # bytes: a chunk that takes no time except for its scheduling
BARE = "import numpy, distributed"  # what any program with these packages waits for
BARE_GPU = "import cupy, distributed; cupy.cuda.runtime.free(0)"  # which makes a context
IMPORT = "from time import perf_counter as now; began = now(); import pipeline; print(now() - began)"


def job(*options: str, every: bool = False) -> list[str]:
    """The command; `every`: on every GPU."""
    return command("histogram", "-q", *options, *(("--gpus", "all") if every else ()))


def environment(folder: str, cache: str = "cache") -> dict[str, str]:
    """The environment, with cache folders of their own for machine code and bytecode."""
    return with_bytecode(folder) | {"XDG_CACHE_HOME": str(Path(folder, cache))}


def commands(samples: int, repeats: int, folder: str) -> dict[str, float]:
    """Seconds of whole commands, the least of several, because the machine may be shared."""
    path = str(Path(folder, "data.bin"))
    generate(path, samples)
    gpus = find_devices().usable
    works = {"help": command("--help"), "warm": job(path, every=gpus > 1)}
    works["bare interpreter"] = [sys.executable, "-c", BARE_GPU if gpus else BARE]
    if gpus:
        works |= {"warm, one GPU": job(path), "cold, one GPU": job(path)}
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            cache = f"cache{turn}" if name.startswith("cold") else "cache"
            seconds = process(work, environment(folder, cache)).seconds
            if turn:  # the first run compiles kernels and Python
                taken[name].append(seconds)
    least = {name: min(seconds) for name, seconds in taken.items()}
    imports = (process([sys.executable, "-c", IMPORT], environment(folder)).printed for _ in range(repeats))
    return least | {"import pipeline": min(map(float, imports))}


def planning(chunks: int) -> dict[str, float]:
    """Seconds and megabytes to plan so many chunks with a sample of each to check."""
    nbytes = chunks * 2**28
    source = Files(
        (SourceFile("/data.bin", 0, nbytes, Identity(nbytes, 0, 0, 0, 0, 0), (nbytes // 4,)),), np.dtype("<i4")
    )
    before, taken = resident(), []
    for _ in range(3):
        began = perf_counter()
        planned = plan(source, 2**28, "sample", 0)
        taken.append(perf_counter() - began)
        if len(taken) == 1:
            megabytes = (resident() - before) / 1e6
        assert len(planned) == chunks
    return {"chunks": chunks, "seconds": min(taken), "megabytes": megabytes}


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def scheduling(chunks: int, large: int, folder: str) -> dict[str, float]:
    """Scheduling cost of a chunk, next to the seconds that a chunk of a large file takes here.

    Both from runs over sparse files: with chunks so small that their data takes almost no time, minus the busiest
    stage, and with whole chunks. Where cores are idle they overlap, which is not counted as a gain.
    """
    gpus = find_devices().usable
    path = str(Path(folder, "sparse.bin"))

    def wall(number: int, nbytes: int) -> tuple[float, float]:
        Path(path).write_bytes(b"")
        os.truncate(path, number * nbytes)
        words = job("--json", "--verify", "sample", "-c", str(nbytes), path, every=gpus > 1)
        report = json.loads(process(words, environment(folder)).printed)
        assert report["verification"]["chunks"] == number
        busy = max(stage["busy_seconds"] for stage in report["performance"]["stages"].values())
        return float(report["performance"]["seconds"]) / number, busy / number

    whole, _ = min(wall(8 * max(1, gpus), large) for _ in range(2))
    tiny, busy = wall(chunks, TINY_CHUNK)
    return {"chunks": chunks, "seconds a chunk": tiny - busy, "seconds of its data": busy,
            "bytes of a whole chunk": large, "seconds a whole chunk": whole,
            "share": (tiny - busy) / whole}  # fmt: skip


def measure(
    samples: int = 2**25, chunks: int = 10_000, planned: int = 100_000, repeats: int = 5, whole: int | None = None
) -> dict[str, Any]:
    """Measure everything here; `whole`: bytes of a chunk of a large file, by default what the engine uses."""
    figures: dict[str, Any] = {"samples": samples, "repeats": repeats}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for name, work in {
            "planning": lambda: planning(planned),
            "command, seconds": lambda: commands(samples, repeats, folder),
            "scheduling": lambda: scheduling(chunks, whole or CHUNK_BYTES[device()][1], folder),
        }.items():
            figures[name] = work()
            print(name, figures[name], flush=True)
    return figures


def device() -> str:
    """The device that jobs use here."""
    return "gpu" if find_devices().usable else "cpu"
