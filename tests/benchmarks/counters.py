"""Counters from Nsight Compute that show what limits the kernels of rows that fall short.

python -m tests.benchmarks OUT_FOLDER --only counters

Needs ncu, with permission to read the counters. Its clocks are left as they are.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from pipeline.gpu.devices import Gpu, find_devices

PERCENT, RATE = "avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active"
# By the name that the reasons in docs/performance.md use.
METRICS = {
    "microseconds": "gpu__time_duration.sum",
    "memory, % of peak": f"dram__throughput.{PERCENT}",
    "second-level cache, % of peak": f"lts__throughput.{PERCENT}",
    "shared memory, % of peak": f"l1tex__data_pipe_lsu_wavefronts_mem_shared.{PERCENT}",
    "instructions issued, % of peak": f"smsp__issue_active.{RATE}",
    "integer units, % of peak": f"sm__inst_executed_pipe_alu.{RATE}",
    "float32 units, % of peak": f"sm__inst_executed_pipe_fma.{RATE}",
    "float64 units, % of peak": f"sm__inst_executed_pipe_fp64.{RATE}",
    "tensor cores, % of peak": f"sm__pipe_tensor_op_imma_cycles_active.{RATE}",
    "warps, % of the most": f"sm__warps_active.{RATE}",
    "bytes read": "dram__bytes_read.sum",
    "bytes written": "dram__bytes_write.sum",
}
STALLS = {
    f"waiting for {what}, warps": f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"
    for name, what in {
        "long_scoreboard": "memory", "short_scoreboard": "shared memory", "barrier": "barriers",
        "math_pipe_throttle": "an arithmetic unit", "mio_throttle": "the queue of shared memory",
        "lg_throttle": "the queue of memory", "wait": "a fixed latency",
    }.items()
}  # fmt: skip
MARK = "between_cases"
AT_A_TIME = 4  # cases per process
UNITS = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
    "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
}  # fmt: skip

Make = Callable[[int], Callable[[], Any]]


def _histogram(dtype: str, bins: int, limits: Any, distribution: str, nbytes: int) -> Callable[[], Any]:
    from kernels.histogram.gpu import histogram
    from tests.benchmarks.distributions import samples_of
    from tests.benchmarks.histogram_kernel import on_device, options_of

    options = options_of(bins, limits)
    samples = on_device(distribution, samples_of(distribution, dtype, options.all_edges), nbytes)
    return partial(histogram, samples, options.binning(np.dtype(dtype)))


def _reduce(dtype: str, kind: str, parts: int, nbytes: int) -> Callable[[], Any]:
    from kernels.reduce.gpu import reduce_on_device
    from tests.benchmarks.reduce_kernel import samples_of

    return partial(reduce_on_device, samples_of(dtype, kind, nbytes), parts)


def _transpose(dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], nbytes: int) -> Callable[[], Any]:
    from kernels.transpose.gpu import permute_axes, transpose
    from tests.benchmarks.copy_kernel import numbers

    shape = (max(1, shape[0] * nbytes // 2**30), *shape[1:])
    array = numbers("uint8", int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
    return partial(transpose, array) if axes == (1, 0) else partial(permute_axes, array, axes)


def _box(dtype: str, kind: str, radius: int, nbytes: int) -> Callable[[], Any]:
    from kernels.stencil.gpu import box
    from tests.benchmarks.stencil_kernel import elements_of

    return partial(box, elements_of(dtype, kind, nbytes // 2), radius)


def _weighted(dtype: str, radius: int, nbytes: int) -> Callable[[], Any]:
    import cupy

    from kernels.stencil.gpu import weighted
    from tests.benchmarks.stencil_kernel import elements_of

    weights = cupy.asarray(np.random.default_rng(2).standard_normal(2 * radius + 1).astype(dtype))
    return partial(weighted, elements_of(dtype, "normal", nbytes // 2), weights)


def _matmul(dtype: str, matrices: int, size: int, nbytes: int) -> Callable[[], Any]:
    from kernels.matmul.gpu import exact_matmul
    from tests.benchmarks.matmul_small import stacks

    return partial(exact_matmul, *stacks(max(1, matrices * nbytes // 2**30), size, dtype))


CASES: dict[str, Make] = {
    "histogram int32, zipf, 16,384 bins": partial(_histogram, "int32", 16384, (0, 16384), "zipf"),
    "histogram int32, uniform, 1,024 bins": partial(_histogram, "int32", 1024, (0, 1024), "uniform"),
    "histogram int32, zipf, 65,536 bins": partial(_histogram, "int32", 65536, (0, 65536), "zipf"),
    "histogram uint8, constant, 256 bins": partial(_histogram, "uint8", 256, (0, 256), "constant"),
    "histogram float32, sorted, 1,000 bins": partial(_histogram, "float32", 1000, (0, 1023), "sorted"),
    "histogram float32, zipf, irregular": partial(_histogram, "float32", 1024, None, "zipf"),
    "histogram float32, uniform, irregular": partial(_histogram, "float32", 1024, None, "uniform"),
    "sum float32": partial(_reduce, "float32", "ordinary", 1),
    "sum float32, any bits": partial(_reduce, "float32", "any bits", 1),
    "sum float64, any bits": partial(_reduce, "float64", "any bits", 1),
    "everything float32": partial(_reduce, "float32", "ordinary", 7),
    "everything float32, any bits": partial(_reduce, "float32", "any bits", 7),
    "everything float64": partial(_reduce, "float64", "ordinary", 7),
    "everything float64, any bits": partial(_reduce, "float64", "any bits", 7),
    "transpose float64, 10001 x 12345": partial(_transpose, "float64", (10001, 12345), (1, 0)),
    "transpose float32, 10001 x 12345": partial(_transpose, "float32", (10001, 12345), (1, 0)),
    "transpose uint8, 30001 x 32345": partial(_transpose, "uint8", (30001, 32345), (1, 0)),
    "transpose complex128, 6001 x 8001": partial(_transpose, "complex128", (6001, 8001), (1, 0)),
    "box int64, radius 4,096": partial(_box, "int64", "normal", 4096),
    "box float64, radius 4,096": partial(_box, "float64", "normal", 4096),
    "box float32, radius 3": partial(_box, "float32", "normal", 3),
    "box float16 with NaN, radius 3": partial(_box, "float16", "with NaN", 3),
    "box float64, exponents far apart, radius 3": partial(_box, "float64", "far", 3),
    "weighted float32, radius 16": partial(_weighted, "float32", 16),
    "matmul float32, 4,096 x 4,096": partial(_matmul, "float32", 1, 4096),
    "matmul float64, 256 of 256 x 256": partial(_matmul, "float64", 256, 256),
    "matmul float64, 10,000 of 64 x 64": partial(_matmul, "float64", 10_000, 64),
    "matmul float64, 100,000 of 16 x 16": partial(_matmul, "float64", 100_000, 16),
}


def launch(names: Sequence[str], nbytes: int) -> None:
    """Runs under ncu: each case once, after a warm-up that is not profiled, with a marker kernel between cases."""
    import cupy
    from cupyx.profiler import profile

    mark = cupy.ElementwiseKernel("", "int32 x", "x = 0", MARK)
    for name in names:
        work = CASES[name](nbytes)
        work()
        cupy.cuda.runtime.deviceSynchronize()
        with profile():
            mark(size=1)
            work()
            cupy.cuda.runtime.deviceSynchronize()
        del work
        cupy.get_default_memory_pool().free_all_blocks()


def launches(table: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Kernels in the order of their launches, with their counters, from the CSV that ncu prints, one counter a row."""
    rows = csv.DictReader(io.StringIO(table[table.index('"ID"') :]))
    kernels: dict[str, tuple[str, dict[str, float]]] = {}
    for row in rows:
        _, counters = kernels.setdefault(row["ID"], (row["Kernel Name"], {}))
        text = row["Metric Value"].replace(",", "")
        if text not in ("", "n/a"):
            counters[row["Metric Name"]] = float(text) * UNITS.get(row["Metric Unit"], 1.0)
    yield from kernels.values()


def by_case(names: Sequence[str], table: str) -> dict[str, dict[str, dict[str, float]]]:
    """The kernels of each case; of several launches of one kernel the longest."""
    titles = {metric: title for title, metric in (METRICS | STALLS).items()}
    left, cases = iter(names), {}
    kernels: dict[str, dict[str, float]] = {}
    for kernel, counters in launches(table):
        if MARK in kernel:
            kernels = cases[next(left)] = {}
            continue
        named = {titles[metric]: number for metric, number in counters.items()}
        before = kernels.get(kernel)
        if not before or before["microseconds"] < named["microseconds"]:
            kernels[kernel] = named
    return cases


def profiled(names: Sequence[str], nbytes: int, gpu: Gpu) -> str:
    """Output of ncu for these cases on a GPU.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "counters.csv")
        metrics = ",".join([*METRICS.values(), *STALLS.values()])
        own = [sys.executable, "-m", "tests.benchmarks.counters", str(nbytes), *names]
        # ncu allows one profiling process at a time, and detects others by a file in the temporary folder.
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": gpu.uuid, "TMPDIR": folder}
        done = subprocess.run(["ncu", "--clock-control", "none", "--profile-from-start", "off", "--metrics", metrics,
                               "--csv", "--log-file", str(log), *own], env=environment)  # fmt: skip
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        if done.returncode:
            raise RuntimeError(f"ncu ended with status {done.returncode}: {text[-500:]}")
        return text


def measure(nbytes: int = 2**28, names: Sequence[str] = tuple(CASES)) -> dict[str, Any]:
    """Counters of the kernels of every case; the cases are divided among the GPUs."""
    free: SimpleQueue[Gpu] = SimpleQueue()
    gpus = find_devices().gpus
    for gpu in gpus:
        free.put(gpu)

    def counted(part: Sequence[str]) -> dict[str, Any]:
        gpu = free.get()
        try:
            cases = by_case(part, profiled(part, nbytes, gpu))
        finally:
            free.put(gpu)
        print({name: {kernel[:30]: round(counters["microseconds"]) for kernel, counters in cases[name].items()}
               for name in part}, flush=True)  # fmt: skip
        return cases

    parts = [names[start : start + AT_A_TIME] for start in range(0, len(names), AT_A_TIME)]
    cases: dict[str, Any] = {}
    with ThreadPoolExecutor(len(gpus)) as pool:
        for some in pool.map(counted, parts):
            cases |= some
    return {"bytes": nbytes, "cases": cases}


if __name__ == "__main__":
    launch(sys.argv[2:], int(sys.argv[1]))
