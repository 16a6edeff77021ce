"""Quantiles and histograms under conditions on one GPU, on data that are slow somewhere: the results, then the rates.

python -m tests.benchmarks.hostile_kernels OUT.json [SECONDS]
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.reference import histogram_reference
from kernels.quantile.reference import around_reference, cells_reference
from kernels.quantile.search import Search
from tests.benchmarks.common import save
from tests.benchmarks.markdown import table
from tests.benchmarks.question_kernels import ASKED, OF_CUPY, Bench, passes, peers
from tests.benchmarks.select_kernel import INDEX, KEPT, MOST, OPTIONS, SAMPLE, WHERE
from tests.benchmarks.select_kernel import samples_of as of_share
from tests.cases.quantile_small import beside, quantile_cases
from workflows.expression import parse
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.quantile import count
from workflows.selection import Selection, selected

DTYPES = ("float32", "int32", "int16", "float64", "float16", "int64")
USUAL = ("gaussian", "constant", "sorted", "zipf", "two far bins", OF_CUPY)
PART = 2**20  # samples, which the device repeats
CHECKED = 300_001  # samples of which results are compared
BINS = HistogramOptions(bins=1024, range=(-4.0, 4.0))
CONDITIONS = ("x != 0", "x < -1 or x > 1.3", "x == x", "not (-0.3 < x <= 0.001) and x != 1 and x < 2", WHERE)

Samples = NDArray[Any]


def _zeros(random: np.random.Generator, dtype: np.dtype[Any]) -> Samples:
    zeros = np.zeros(PART, dtype)
    return np.where(random.random(PART) < 0.5, zeros, -zeros) if dtype.kind == "f" else zeros


def _bits(random: np.random.Generator, dtype: np.dtype[Any]) -> Samples:
    return random.integers(0, 256, PART * dtype.itemsize, np.uint8).view(dtype)


def _half_nan(random: np.random.Generator, dtype: np.dtype[Any]) -> Samples:
    samples = random.normal(0, 1000, PART).astype(dtype)
    if dtype.kind == "f":
        samples[random.random(PART) < 0.5] = np.nan
    return samples


def _subnormal(random: np.random.Generator, dtype: np.dtype[Any]) -> Samples:
    digits = {2: 10, 4: 23, 8: 52}[dtype.itemsize]
    bits = random.integers(0, 2**digits, PART).astype(f"u{dtype.itemsize}")
    sign = random.integers(0, 2, PART).astype(bits.dtype) << bits.dtype.type(8 * dtype.itemsize - 1)
    return (bits | sign).view(dtype)


def _powers(random: np.random.Generator, dtype: np.dtype[Any]) -> Samples:
    """Counters of these are multiples of 128."""
    if dtype.kind == "f":
        ends = np.finfo(dtype)
        return np.ldexp(dtype.type(1), random.integers(int(ends.minexp), int(ends.maxexp), PART)).astype(dtype)
    return (random.integers(0, 2**8, PART) << 8 * dtype.itemsize - 9).astype(dtype)


HOSTILE: Mapping[str, Callable[[np.random.Generator, np.dtype[Any]], Samples]] = {
    "zeros": _zeros, "any bits": _bits, "half NaN": _half_nan, "subnormal": _subnormal, "powers of two": _powers,
    "beside": lambda _, dtype: beside(dtype.name, PART) if dtype.kind == "f" else np.arange(PART).astype(dtype),
}  # fmt: skip


def hostile(name: str, dtype: str) -> Samples:
    """Samples of one kind."""
    return HOSTILE[name](np.random.default_rng(0), np.dtype(dtype))


def searched(samples: Samples, on_device: Any, q: str) -> None:
    """Every pass of a search counts what the reference counts, and it finds what sorting finds."""
    search = Search.begin(samples.dtype, [("lower", Fraction(q))], True)
    while search.cells is not None:
        cells, got = search.cells, count(on_device, search).get()
        expected = cells_reference(samples, cells.firsts, cells.bits, cells.slot_bits, cells.gathered)
        np.testing.assert_array_equal(got, expected)
        search = search.counted(got)
    if samples.itemsize > 2:
        got = count(on_device, search).get()
        np.testing.assert_array_equal(got, around_reference(samples, search.values))
        search.proven_by(got)


def results(dtypes: Sequence[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """What is compared with NumPy, by name."""
    import cupy

    for dtype in dtypes:
        for name in HOSTILE:
            samples = hostile(name, dtype)[: CHECKED + 1]
            on_device = cupy.asarray(samples)
            for q in ("0", "1/3", "1"):
                yield f"{dtype}, {name}, {q}", lambda of=(samples[1:], on_device[1:], q): searched(*of)
    for case in quantile_cases():
        if case.variant == "quantile_few" or (
            case.variant in ("quantile_cell", "quantile_top") and "bits" in case.what
        ):
            yield case.name, lambda case=case: case.check(cupy)
    for dtype in [dtype for dtype in dtypes if dtype in ("float32", "float64", "int16", "int32")]:
        for text in CONDITIONS if dtype == "float32" else CONDITIONS[-2:]:
            for name in HOSTILE if dtype == "float32" else ("beside", "any bits", "half NaN"):
                given = (hostile(name, dtype)[: CHECKED + 1], text, OPTIONS if text == WHERE else BINS)
                yield f"{dtype}, {name}, {text}", lambda given=given: conditioned(*given)


def conditioned(samples: Samples, text: str, options: HistogramOptions) -> None:
    """A histogram under a condition is that of NumPy's boolean indexing."""
    import cupy

    workflow = selected(HISTOGRAM, Selection(parse(text, [SAMPLE, INDEX]), {}, {}))
    got = workflow.compute(cupy.asarray(samples)[1:], options, range(len(samples) - 1)).get()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, workflow.reference(samples[1:], options, range(len(samples) - 1)))


def order(case: str, dtype: str, name: str, nbytes: int, repeats: int) -> dict[str, Any]:
    """Rates of the passes of a median, or of five quantiles."""
    bench = Bench(dtype, name, nbytes, repeats, hostile(name, dtype) if name in HOSTILE else None)
    works, right = passes(bench, ASKED[case])
    row = bench.row(case, works, right)
    row["passes of the read"] = sum(row["GB/s"]["read"] / row["GB/s"][each] for each in works)
    if name == OF_CUPY:
        row["GB/s"] |= bench.rates(peers(bench, ASKED[case]))
    return row


def where(case: str, dtype: str, kept: str, nbytes: int, repeats: int) -> dict[str, Any]:
    """Rates of a histogram under a condition, and of the same without."""
    part = np.full(PART, 5).astype(dtype) if kept == "one value" else of_share(dtype, KEPT[kept], PART)
    bench = Bench(dtype, kept, nbytes, repeats, part)
    workflow = selected(HISTOGRAM, Selection(parse(WHERE, [SAMPLE, INDEX]), {}, {}))
    works = {"histogram --where": lambda: workflow.compute(bench.samples, OPTIONS, range(len(bench.samples))),
             "histogram": lambda: HISTOGRAM.compute(bench.samples, OPTIONS)}  # fmt: skip
    mask = (part >= 0) & (part < MOST) & (part != 7)
    counts = bench.times * np.append((~mask).sum(), histogram_reference(part[mask], OPTIONS.all_edges))
    return bench.row(case, works, bool((works["histogram --where"]().get() == counts).all()))


def measure(
    nbytes: int = 2**30, repeats: int = 5, seconds: float = 85, dtypes: Sequence[str] = DTYPES
) -> dict[str, Any]:  # fmt: skip
    """As much as fits in so many seconds, a third of them for results."""
    began, compared, wrong = perf_counter(), 0, list[str]()
    rows: list[dict[str, Any]] = []
    todo = [("median", dtype, name) for dtype in dtypes[:3] for name in (*USUAL[::-1], *HOSTILE)]
    todo += [("where", dtype, kept) for dtype in dtypes[:3] for kept in (*KEPT, "one value")]
    todo += [("median", dtype, name) for dtype in dtypes[3:] for name in ("any bits", "half NaN", OF_CUPY)]
    todo += [
        ("five quantiles", dtype, name)
        for dtype in dtypes
        if np.dtype(dtype).itemsize > 2
        for name in (OF_CUPY, "gaussian", "half NaN", "zipf")
    ]

    def compare(until: float, remaining: Iterator[tuple[str, Callable[[], None]]]) -> None:
        nonlocal compared
        for what, check in remaining:
            try:
                check()
            except Exception as error:
                wrong.append(f"{what}: {' '.join(str(error).split())[:300]}")
                print("WRONG", wrong[-1], traceback.format_exc(limit=-2), flush=True)
            compared += 1
            if perf_counter() - began > until:
                return

    remaining = results(dtypes)
    compare(seconds / 3, remaining)
    print(f"{compared} compared in {perf_counter() - began:.0f} s, {len(wrong)} wrong", flush=True)
    for case, dtype, name in todo:
        if perf_counter() - began > 0.9 * seconds:
            break
        rows.append((where if case == "where" else order)(case, dtype, name, nbytes, repeats))
    compare(0.9 * seconds, remaining)
    return {"bytes": nbytes, "repeats": repeats, "compared": compared, "wrong": wrong, "cases": rows,
            "seconds": perf_counter() - began, "left out": len(todo) - len(rows)}  # fmt: skip


def described(figures: Mapping[str, Any]) -> str:
    """A table: of each pass the worst share of the read, and on which data."""
    worst: dict[tuple[str, str, str], tuple[float, str]] = {}
    taken: dict[tuple[str, str], tuple[float, str]] = {}
    ahead: list[list[str]] = []
    for row in figures["cases"]:
        rates = row["GB/s"]
        for name in rates:
            share = rates[name] / rates["read"]
            key = row["case"], row["dtype"], name.partition(":")[0]
            worst[key] = min(worst.get(key, (math.inf, "")), (share, row["distribution"]))
        if "passes of the read" in row:
            what = row["case"], row["dtype"]
            taken[what] = max(taken.get(what, (0.0, "")), (row["passes of the read"], row["distribution"]))
            for peer in ("cupy.percentile", "cupy.sort"):
                if peer in rates:
                    times = rates["read"] / rates[peer] / row["passes of the read"]
                    ahead.append([f"{row['dtype']}, {peer} / {row['case']}", f"{times:.1f}", row["distribution"]])
    lines = [[f"{dtype}, {case}, {name}", f"{share:.3f}", on] for (case, dtype, name), (share, on) in worst.items()
             if not name.startswith(("read", "cupy"))]  # fmt: skip
    lines += [[f"{dtype}, {case}, all, in reads", f"{reads:.2f}", on] for (case, dtype), (reads, on) in taken.items()]
    lines += ahead
    verdict = (f"{figures['compared']} compared, {len(figures['wrong'])} wrong, rows wrong: "
               f"{sum(not row['verified'] for row in figures['cases'])}, left out {figures['left out']}, "
               f"{figures['seconds']:.0f} s")  # fmt: skip
    return f"{table(['', 'share of the read', 'on'], lines)}\n\n{verdict}"


if __name__ == "__main__":
    figures = measure(seconds=float(sys.argv[2]) if len(sys.argv) > 2 else 85)
    save(figures, sys.argv[1])
    print(described(figures))
