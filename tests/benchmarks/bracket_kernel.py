"""The steps of the read that finds order statistics, on one GPU: what each finds, and its time in reads.

python -m tests.benchmarks.bracket_kernel OUT.json
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from time import perf_counter
from typing import Any

import numpy as np

from kernels.quantile import bracket
from kernels.quantile.keys import to_keys
from kernels.quantile.ranges import ranges_of, targets_of
from kernels.quantile.search import Search
from kernels.study.roofline import read_stream
from tests.benchmarks.common import device_medians, save
from tests.benchmarks.hostile_kernels import HOSTILE, hostile
from tests.benchmarks.markdown import table
from tests.benchmarks.question_kernels import ASKED, Bench
from tests.cases.bracket_small import strata

DISTRIBUTIONS = ("uniform", "sorted", "constant", "zipf", "half NaN", "any bits")
STEPS = ("sample", "all", "host, ms")


def steps(bench: Bench, texts: Sequence[str]) -> dict[str, Any]:
    """Rates of the steps, and what is wrong in the first that is."""
    import cupy

    samples, dtype = bench.samples, bench.part.dtype
    search = Search.begin(dtype, [("lower", Fraction(text)) for text in texts], True)
    wanted, number = search.ranks(samples.size), bracket.DRAWN_BYTES // dtype.itemsize
    targets = targets_of(wanted, samples.size, number)
    read = bracket._Read(samples, wanted, targets, True)
    windows, picked, nan = read.drawn()
    wrong = []
    drawn = read._own.get()
    if drawn.tobytes() != samples[cupy.asarray(strata(samples.size, number))].get().tobytes():
        wrong.append("sample")
    keys = np.sort(to_keys(drawn))[: number - nan]
    expected = [keys[min(max(place, 0), len(keys) - 1)] for window in windows for place in window]
    if picked.keys != [int(key) for key in expected] or nan != np.isnan(drawn).sum():
        wrong.append(f"keys {[hex(key) for key in picked.keys]}, expected {[hex(key) for key in expected]}, {nan} NaN")
    ranges = ranges_of(dtype, windows, picked, number - nan)
    queued = read.queue(ranges)
    found = read.found(search.ranks, True) if queued else None
    if queued:
        held, (_, inside, _) = read._kept.held.get(), read._counts()
        inside = inside[: len(ranges.gathered)]
        if int(held.sum()) != sum(inside) or held.max() > read._kept.room:
            wrong.append(f"held {held.sum()} of {inside}, at most {held.max()} of {read._kept.room}")
    if found is None or not set(search.ranks(samples.size - found.nan)) <= set(found.keys):
        wrong.append(f"found {found} in {ranges}, counted {queued and read._counts()}, wanted {wanted}")
    works = {"sample": lambda: bracket._Read(samples, wanted, targets, True),
             "all": lambda: bracket.find_on_device(samples, search.ranks, True)}  # fmt: skip
    began = perf_counter()
    for _ in range(10):
        read = works["sample"]()
    host = (perf_counter() - began) * 100
    read.drawn()  # waits
    stream = {"read": lambda: read_stream(samples.view(cupy.uint32))}
    taken = device_medians(stream | works, bench.repeats, stream["read"])
    reads = {name: seconds / taken["read"] for name, seconds in taken.items()}
    return {**bench.what, "reads": reads | {"host, ms": host}, "read, ms": 1000 * taken["read"], "wrong": wrong}


def measure(
    nbytes: int = 2**30, repeats: int = 5, dtypes: Sequence[str] = ("float32", "int32", "float64", "int64"),
    distributions: Sequence[str] = DISTRIBUTIONS,
) -> dict[str, Any]:  # fmt: skip
    """All rows."""
    rows: list[Mapping[str, Any]] = []
    for distribution in distributions:
        for dtype in dtypes:
            given = hostile(distribution, dtype) if distribution in HOSTILE else None
            bench = Bench(dtype, distribution, nbytes, repeats, given)
            for case, texts in ASKED.items():
                rows.append({"case": case, **steps(bench, texts)})
                print(*rows[-1].values(), flush=True)
    return {"bytes": nbytes, "repeats": repeats, "cases": rows}


def described(figures: Mapping[str, Any]) -> str:
    """A table of the steps, in reads."""
    rows = [[f"{row['case']}, {row['dtype']}, {row['distribution']}", *(f"{row['reads'][name]:.2f}" for name in STEPS),
             "wrong" if row["wrong"] else ""] for row in figures["cases"]]  # fmt: skip
    return table(["", *STEPS, ""], rows)


if __name__ == "__main__":
    figures = measure()
    save(figures, sys.argv[1])
    print(described(figures))
