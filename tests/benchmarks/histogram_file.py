"""A file in the page cache to its histogram and its sums, on the GPUs at hand, next to kvikio alone and dask.array.

python -m tests.benchmarks.histogram_file OUT.json [GiB]
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import product
from multiprocessing import get_context
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run
from pipeline.gpu.devices import find_devices
from pipeline.report.panel import to_json
from pipeline.settings import Settings
from pipeline.storage.generate import generate
from pipeline.storage.sources import open_source
from tests.benchmarks.common import save
from workflows import WORKFLOWS
from workflows.histogram import HistogramOptions
from workflows.reduce import ReduceOptions

MEMORY = "/dev/shm"
PART = 2**30
TIMES = 16  # until the start is a small part of a run on four GPUs


def write_file(path: str, gib: int) -> None:
    """One generated GiB, written `gib` times by several threads."""
    generate(path, PART // 4)
    with open(path, "rb") as file:
        part = file.read()
    fd = os.open(path, os.O_WRONLY)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: os.pwrite(fd, part, i * PART), range(1, gib)))
    os.close(fd)


def kvikio_alone(path: str, nbytes: int) -> float:
    """Bytes per second of one GPU reading the file through kvikio, without counting."""
    import cupy
    import kvikio.defaults

    from pipeline.gpu.blocks import BLOCK_BYTES
    from pipeline.gpu.transfer import KVIKIO_THREADS, PART_BYTES

    kvikio.defaults.set({"num_threads": KVIKIO_THREADS, "task_size": PART_BYTES[1]})
    slots = [cupy.empty(BLOCK_BYTES, cupy.uint8) for _ in range(3)]
    with kvikio.CuFile(path, "r") as file:
        began = perf_counter()
        futures: list[Any] = []
        for number, start in enumerate(range(0, nbytes, BLOCK_BYTES)):
            if len(futures) == 3:
                futures.pop(0).get()
            futures.append(file.pread(slots[number % 3], BLOCK_BYTES, start))
        for future in futures:
            future.get()
    return nbytes / (perf_counter() - began)


def pinned_copies(gpus: int) -> float:
    """Bytes per second from pinned memory to several GPUs at once."""
    import cupy

    nbytes, copies = 2**28, 20
    lanes = []
    for number in range(gpus):
        with cupy.cuda.Device(number):
            lanes.append((cupy.cuda.alloc_pinned_memory(nbytes), cupy.empty(nbytes, cupy.uint8),
                          cupy.cuda.Stream(non_blocking=True)))  # fmt: skip
    for _ in range(2):
        began = perf_counter()
        for _ in range(copies):
            for number, (pinned, target, stream) in enumerate(lanes):
                with cupy.cuda.Device(number):
                    cupy.cuda.runtime.memcpyAsync(target.data.ptr, pinned.ptr, nbytes, 1, stream.ptr)
        for _, _, stream in lanes:
            stream.synchronize()
    return gpus * copies * nbytes / (perf_counter() - began)


def dask_array(path: str, nbytes: int) -> float:
    """Bytes per second of dask.array.histogram over CuPy chunks in this process, second run."""
    import cupy
    import dask.array as da
    from distributed import Client

    size = 2**26  # samples of a chunk

    def load(block_info: dict[Any, Any]) -> Any:
        start = block_info[None]["array-location"][0][0]
        return cupy.asarray(np.fromfile(path, np.int32, size, offset=4 * start))

    with Client(processes=False, threads_per_worker=4, dashboard_address="127.0.0.1:0"):
        chunks = ((size,) * (nbytes // 4 // size),)
        samples = da.map_blocks(load, chunks=chunks, dtype=np.int32, meta=cupy.empty(0, np.int32))
        counts, _ = da.histogram(samples, bins=1024, range=(0, 1024))
        for _ in range(2):
            began = perf_counter()
            counts.compute()
    return 4 * sum(chunks[0]) / (perf_counter() - began)


def measure(gib: int = 16) -> dict[str, Any]:
    """End-to-end rates on one GPU in this process and on all GPUs, for a file that is read `TIMES` times over."""
    gpus = find_devices().usable
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = os.path.join(folder, "data.bin")
        write_file(path, gib)
        # Several names of one file: memory may not hold several files, and no cache holds one of them.
        names = [path, *(f"{path}.{number}" for number in range(1, TIMES))]
        for name in names[1:]:
            os.link(path, name)
        source = open_source(names)
        nbytes = source.nbytes // TIMES
        jobs = {"histogram": HistogramOptions(), "reduce": ReduceOptions()}
        rows = []
        results: dict[str, set[str]] = {name: set() for name in jobs}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus))))
        plans = [("one GPU", visible.partition(",")[0], Placement("gpu")), ("CPU", visible, Placement("cpu"))]
        if gpus > 1:
            plans.insert(1, (f"{gpus} GPUs", visible, Placement(gpus="all")))
        for name, seen, placement in plans:
            os.environ["CUDA_VISIBLE_DEVICES"] = seen
            turns = ("sample", "off", "sample") if name != "CPU" else ("off",)
            for (job, options), (turn, verify) in product(jobs.items(), enumerate(turns)):
                outcome = run(WORKFLOWS[job], options, source, Settings(placement=placement, verify=verify))
                report = to_json(outcome)
                results[job].add(str(report["result"]))
                rows.append({"job": job, "where": name, "turn": turn, "verify": verify, **report["performance"]})
                print(job, name, verify, f"{report['performance']['bytes_per_second'] / 1e9:.1f} GB/s", flush=True)
        # In a process that has not been limited to one GPU.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            peers = {"pinned to device": pool.submit(pinned_copies, gpus).result()}
        if gpus == 1:
            peers |= {"kvikio alone": kvikio_alone(path, nbytes),
                      "dask.array.histogram over CuPy": dask_array(path, min(nbytes, 2**32))}  # fmt: skip
        return {"bytes": source.nbytes, "runs": rows, "peers, bytes per second": peers,
                "identical": all(len(of) == 1 for of in results.values())}  # fmt: skip


if __name__ == "__main__":
    save(measure(int(sys.argv[2]) if len(sys.argv) > 2 else 16), sys.argv[1])
