"""Histogram and sum of a file that is on disk only, compared with direct reads by several threads.

python -m tests.benchmarks OUT_FOLDER --only cold_file

TMPDIR chooses the disk.
"""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np

from pipeline.engine.aggregate import run
from pipeline.gpu.devices import find_devices
from pipeline.report.panel import to_json
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions

BLOCK = 2**22  # bytes of a direct read
THREADS = (4, 16)

# Seconds before each of our runs. What the last one left free goes back to the host of a virtual machine, so each is
# like the first one in a while.
REST = 10

JOBS: dict[str, tuple[Any, Any]] = {"ours": (HISTOGRAM, HistogramOptions()), "ours, reduce": (REDUCE, ReduceOptions())}
VERIFIED = {"": "auto", ", unverified": "off"}


def write(path: str, mebibytes: int) -> None:
    """Random samples, different in each MiB, so that the disk cannot compress or deduplicate them."""
    random = np.random.default_rng(0)
    with open(path, "wb") as file:
        for _ in range(mebibytes):
            file.write(random.integers(0, 1024, 2**18, dtype=np.int32))
        file.flush()
        os.fsync(file.fileno())


def forget(path: str) -> None:
    """Drop the file from the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def direct(path: str, threads: int) -> float:
    """Bytes per second of reads past the page cache."""
    size = os.path.getsize(path)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffers = [mmap.mmap(-1, BLOCK) for _ in range(threads)]  # direct reads need whole pages

    def stripe(number: int) -> int:
        return sum(os.preadv(fd, [buffers[number]], start) for start in range(number * BLOCK, size, threads * BLOCK))

    began = perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        got = sum(pool.map(stripe, range(threads)))
    seconds = perf_counter() - began
    os.close(fd)
    assert got == size
    return size / seconds


def measure(mebibytes: int = 8192, repeats: int = 3, rest: float = REST) -> dict[str, Any]:
    """Bytes per second of each kind of read, alternating; ours without its start-up, which reads nothing."""
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "data.bin"))
        write(path, mebibytes)
        results: dict[str, set[str]] = {name: set() for name in JOBS}
        for turn in range(repeats + 1):
            for (name, job), (suffix, verify) in product(JOBS.items(), VERIFIED.items()):
                for threads in THREADS:
                    forget(path)
                    rates.setdefault(f"direct, {threads} threads", []).append(direct(path, threads))
                forget(path)
                sleep(rest)
                report = to_json(run(*job, open_source((path,)), Settings(verify=verify)))
                results[name].add(str(report["result"]))
                rates.setdefault(name + suffix, []).append(report["performance"]["bytes_per_second"])
            print({name: f"{of[-1] / 1e9:.2f} GB/s" for name, of in rates.items()}, flush=True)
            if not turn:  # which compiled the kernels
                rates.clear()
    return {"bytes": mebibytes * 2**20, "device": "gpu" if find_devices().usable else "cpu",
            "bytes per second": {name: statistics.median(of) for name, of in rates.items()},
            "all": rates, "identical": all(len(found) == 1 for found in results.values())}  # fmt: skip
