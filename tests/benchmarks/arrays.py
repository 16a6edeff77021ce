"""`pipeline.run` on arrays in a GPU's memory, beside CuPy's own functions; launch, checks and waiting included.

Wall-clock seconds of a whole call, the calls alternating in one process, the result waited for; ours is on the host.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np

import pipeline
from tests.benchmarks.distributions import samples_of
from tests.benchmarks.histogram_kernel import on_device
from tests.benchmarks.markdown import share, table

SIZES = {"1 GiB": 2**28, "2^20": 2**20}  # samples of 4 bytes
DISTRIBUTIONS = ("uniform", "gaussian", "constant", "sorted")
RANGE = (0, 1024)
OURS = ("ours", "ours, --verify off")


def wall(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each call until the device is idle; they alternate, after three warm-ups each."""
    import cupy

    wait = cupy.cuda.Device().synchronize
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 3):
        for name, call in calls.items():
            wait()
            began = perf_counter()
            call()
            wait()
            if turn >= 3:
                taken[name].append(perf_counter() - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def measure(repeats: int = 30, sizes: Mapping[str, int] = SIZES) -> dict[str, Any]:
    """Seconds of histogram and reduce for each size and distribution, of their peers, and of a full check."""
    cases = [
        _case(job, size, samples, distribution, repeats)
        for distribution in DISTRIBUTIONS
        for job in ("histogram", "reduce")
        for size, samples in sizes.items()
    ]
    return {"repeats": repeats, "cases": cases}


def _case(job: str, size: str, samples: int, distribution: str, repeats: int) -> dict[str, Any]:
    import cupy

    dtype = "int32" if job == "histogram" else "float32"
    part = samples_of(distribution, dtype, np.linspace(*RANGE, 1025), min(samples, 2**20))
    array = on_device(distribution, part, 4 * samples)
    options: dict[str, Any] = {"bins": 1024, "range": RANGE} if job == "histogram" else {"op": "sum"}
    calls: dict[str, Callable[[], Any]] = {
        "ours": lambda: pipeline.run(job, array, **options),
        "ours, --verify off": lambda: pipeline.run(job, array, verify="off", **options),
    }
    began = perf_counter()
    result = calls["ours"]()
    first = perf_counter() - began
    if job == "histogram":
        calls["cupy.histogram"] = lambda: cupy.histogram(array, 1024, RANGE)
        right = bool((np.histogram(part, 1024, RANGE)[0] * (samples // len(part)) == result.counts).all())
    else:
        calls["cupy.sum"] = lambda: array.sum()
        right = result.values["sum"] == math.fsum(part.tolist()) * (samples // len(part))
    seconds = wall(calls, repeats)
    began = perf_counter()
    whole = pipeline.run(job, array, verify="full", **options)
    full = perf_counter() - began
    row = {"job": job, "dtype": dtype, "samples": size, "distribution": distribution,
           "calls/s": {name: 1 / taken for name, taken in seconds.items()},
           "first call, seconds": first, "--verify full, seconds": full,
           "checked": result.verification.checked,
           "verified": right and whole.to_json() == result.to_json()}  # fmt: skip
    shown = {name: f"{1e6 * taken:.0f} us" for name, taken in seconds.items()}
    print(job, size, distribution, shown, f"full {full:.3f} s", right)
    return row


def described(cases: list[dict[str, Any]]) -> str:
    """A table of the worst distribution for each job and size."""
    rows = []
    for job in dict.fromkeys(case["job"] for case in cases):
        for size in dict.fromkeys(case["samples"] for case in cases):
            ratios = []
            for case in cases:
                if (case["job"], case["samples"]) == (job, size):
                    rates = case["calls/s"]
                    (peer,) = rates.keys() - set(OURS)
                    ratios.append((rates["ours"] / rates[peer], peer, case))
            ratio, peer, case = min(ratios, key=lambda one: float(one[0]))
            rates = case["calls/s"]
            micros = [f"{1e6 / rates[name]:,.0f}" for name in (*OURS, peer)]
            rows.append([f"{job}, {size} of {case['dtype']}, {case['distribution']}", *micros, share(ratio),
                         f"{1e3 * case['--verify full, seconds']:,.1f} ms"])  # fmt: skip
    columns = ["worst distribution", "microseconds", "unverified", "CuPy", "times as fast", "checked in full"]
    return table(columns, rows)
