"""Selection on one GPU, alone and before a histogram, compared with the read stream and CuPy's boolean indexing.

python3 -m tests.benchmarks.select_kernel OUT.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.reference import histogram_reference
from kernels.select.gpu import compact
from kernels.select.typed import typed
from kernels.study.roofline import read_stream
from tests.benchmarks.common import device_medians, save
from tests.benchmarks.markdown import table
from workflows.expression import parse
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.selection import INDEX, SAMPLE, Selection, selected

WHERE, MOST, NOT = "0 <= x < 4000 and x != 7", 4000, 7
KEPT = {"none": 0.0, "1 %": 0.01, "half": 0.5, "all": 1.0}  # share of the samples, at random
DTYPES = ("int32", "float32", "int16")
OPTIONS = HistogramOptions(bins=1000, range=(0, MOST))
PART = 2**20  # samples, which the device repeats


def samples_of(dtype: str, share: float, count: int) -> NDArray[Any]:
    """Uniform samples, so many of which are kept."""
    random = np.random.default_rng(0)
    wanted = random.random(count) < share
    return np.where(wanted, random.integers(NOT + 1, MOST, count), random.integers(MOST, 2 * MOST, count)).astype(dtype)


def case(dtype: str, kept: str, nbytes: int, repeats: int, lead: Callable[[], None]) -> dict[str, Any]:
    """Rates in bytes of samples, measured alternately; results compared with NumPy's."""
    import cupy

    part = samples_of(dtype, KEPT[kept], min(PART, nbytes // np.dtype(dtype).itemsize))
    times, beside = nbytes // part.nbytes, (np.arange(len(part)) % 3 > 0).astype(np.uint8)
    samples, column = (cupy.tile(cupy.asarray(array), times) for array in (part, beside))
    indices, alone = range(len(samples)), Selection(parse(WHERE, [SAMPLE, INDEX]), {}, {})
    workflow, condition = selected(HISTOGRAM, alone), alone.typed(part.dtype)
    and_column = typed(parse(f"{WHERE} and c != 0", [SAMPLE, "c"]), {SAMPLE: part.dtype, "c": beside.dtype})
    works: dict[str, Callable[[], Any]] = {
        "read": lambda: read_stream(samples.view(cupy.uint32)),
        "select": lambda: compact(condition, samples, indices, {}).samples,
        "select by a column too": lambda: compact(and_column, samples, indices, {"c": column}).samples,
        "histogram --where": lambda: workflow.compute(samples, OPTIONS, indices),
        "CuPy": lambda: samples[(samples >= 0) & (samples < MOST) & (samples != NOT)],
    }
    rates = {name: samples.nbytes / taken / 1e9 for name, taken in device_medians(works, repeats, lead).items()}
    mask = (part >= 0) & (part < MOST) & (part != NOT)
    counts = times * np.append((~mask).sum(), histogram_reference(part[mask], OPTIONS.all_edges))
    right = bool((works["histogram --where"]().get() == counts).all())
    for name, once in (("select", part[mask]), ("select by a column too", part[mask & (beside != 0)])):
        got = works[name]()
        right &= got.size == times * once.size and bool((got.reshape(times, once.size) == cupy.asarray(once)).all())
    return {"dtype": dtype, "kept": kept, "GB/s": rates, "verified": right,
            "share of read": {name: rate / rates["read"] for name, rate in rates.items()}}  # fmt: skip


def measure(nbytes: int = 2**30, repeats: int = 10) -> dict[str, Any]:
    """Every dtype and share."""
    import cupy

    ahead, rows = cupy.zeros(nbytes // 4, cupy.uint32), []
    for dtype in DTYPES:
        for kept in KEPT:
            row = case(dtype, kept, nbytes, repeats, lambda: read_stream(ahead))
            rows.append(row)
            shares = {name: round(share, 3) for name, share in row["share of read"].items()}
            print(dtype, kept, shares, row["verified"], flush=True)
    return {"bytes": nbytes, "repeats": repeats, "where": WHERE, "cases": rows}


def described(figures: Mapping[str, Any]) -> str:
    """A table: shares of the read, by what is kept."""
    names = [name for name in figures["cases"][0]["share of read"] if name != "read"]
    lines = [[f"{row['dtype']}, {row['kept']} kept", *(f"{row['share of read'][name]:.2f}" for name in names)]
             for row in figures["cases"]]  # fmt: skip
    return table(["", *names], lines)


if __name__ == "__main__":
    save(measure(), sys.argv[1])
