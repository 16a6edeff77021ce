"""The kernels of quantiles, digests, powers and calibrations on one GPU: rates next to the read stream and CuPy.

python -m tests.benchmarks.question_kernels OUT.json
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.calibrate.apply import calibrate
from kernels.calibrate.calibration import Calibration
from kernels.digest.cpu import digest_cpu
from kernels.digest.gpu import digest_on_device
from kernels.quantile.bracket import find_on_device
from kernels.quantile.keys import to_sample
from kernels.quantile.search import Search
from kernels.reduce.cpu_powers import reduce_cpu_with_powers
from kernels.reduce.gpu import reduce_on_device
from kernels.reduce.gpu_powers import reduce_on_device_with_powers
from kernels.reduce.powers import POWERS
from kernels.study.roofline import read_stream
from tests.benchmarks.common import device_medians, save
from tests.benchmarks.distributions import samples_of
from tests.benchmarks.markdown import table
from workflows.quantile import count, is_found_by_one_read

DTYPES = ("int16", "int32", "float32", "int64", "float64")
DISTRIBUTIONS = ("uniform", "gaussian", "constant", "sorted", "zipf", "two far bins", "half outside", "recording")
OF_CUPY = "uniform"  # where CuPy is measured, too
ASKED = {"median": ("1/2",), "five quantiles": ("1/1000", "1/4", "1/2", "3/4", "999/1000")}
PASSES = ("bracket", "pass 1", "pass 2", "pass 3", "proof")
SUMS = 3  # sum and squares, the parts of reduce beside powers
CALIBRATED_BYTES = 2**25  # a block of samples; logarithms of floats are slow
EDGES = np.linspace(0.0, 1024.0, 1025)

Works = dict[str, Callable[[], Any]]


class Bench:
    """One set of samples, repeated on the device: of a distribution, or `part`."""

    def __init__(
        self, dtype: str, distribution: str, nbytes: int, repeats: int, part: NDArray[Any] | None = None
    ) -> None:  # fmt: skip
        import cupy

        size = min(2**20, nbytes // np.dtype(dtype).itemsize)
        self.part = samples_of(distribution, dtype, EDGES, size) if part is None else part[:size]
        self.times = nbytes // self.part.nbytes
        tiled = cupy.repeat if distribution == "sorted" else cupy.tile
        self.samples = tiled(cupy.asarray(self.part), self.times)
        self.repeats = repeats
        self.what = {"dtype": dtype, "distribution": distribution}

    def rates(self, works: Works) -> dict[str, float]:
        """GB/s of each piece of work and of the read stream, measured alternately."""
        import cupy

        words = self.samples.view(cupy.uint32)
        taken = device_medians({"read": lambda: read_stream(words), **works}, self.repeats, lambda: read_stream(words))
        return {name: self.samples.nbytes / seconds / 1e9 for name, seconds in taken.items()}

    def row(self, name: str, works: Works, right: bool) -> dict[str, Any]:
        """What is saved of a case: the rates, and the share of the first piece of work in the read stream."""
        rates = self.rates(works)
        share = rates[next(iter(works))] / rates["read"]
        print(name, *self.what.values(), {key: round(rate) for key, rate in rates.items()}, f"{share:.3f}", right,
              flush=True)  # fmt: skip
        return {"case": name, **self.what, "GB/s": rates, "share of read": share, "verified": right}


def passes(bench: Bench, texts: Sequence[str]) -> tuple[Works, bool]:
    """The passes of a search, and whether it finds the right samples."""
    import cupy

    begun = search = Search.begin(bench.part.dtype, [("lower", Fraction(text)) for text in texts], True)
    works: Works = {}
    if is_found_by_one_read(begun) and (found := find_on_device(bench.samples, begun.ranks, True)):
        search = begun.completed(*found)
        works["bracket"] = lambda: find_on_device(bench.samples, begun.ranks, True)
    while search.cells is not None:
        kind = "everything" if search.cells.everything else "keys" if search.cells.gathered else "slots"
        number = 1 + len(works.keys() - {"bracket"})
        works[f"pass {number}: {kind}"] = lambda at=search: count(bench.samples, at)
        search = search.counted(count(bench.samples, search).get())
    if bench.part.itemsize > 2:  # else the only pass counts every value
        counts = count(bench.samples, search)
        if not isinstance(counts, np.ndarray):  # else the read counted what proves it
            works["proof"] = lambda: count(bench.samples, search)
        search.proven_by(cupy.asnumpy(counts))
    ordered = np.sort(bench.part[~np.isnan(bench.part)] if bench.part.dtype.kind == "f" else bench.part)
    return works, all(to_sample(key, bench.part.dtype) == ordered[rank // bench.times]
                      for rank, key in search.keys.items())  # fmt: skip


def quantiles(bench: Bench) -> list[dict[str, Any]]:
    """Every pass of searches; their sum beside what CuPy takes."""
    rows = []
    for name, texts in ASKED.items():
        works, right = passes(bench, texts)
        row = bench.row(name, works, right)
        row["passes of the read"] = sum(row["GB/s"]["read"] / row["GB/s"][each] for each in works)
        if bench.what["distribution"] == OF_CUPY:
            row["GB/s"] |= bench.rates(peers(bench, texts))
        rows.append(row)
    return rows


def peers(bench: Bench, texts: Sequence[str]) -> Works:
    """What CuPy does for the same quantiles."""
    import cupy

    percents = cupy.asarray([100 * float(Fraction(text)) for text in texts])
    return {"cupy.percentile": lambda: cupy.percentile(bench.samples, percents),
            "cupy.sort": lambda: cupy.sort(bench.samples)}  # fmt: skip


def others(bench: Bench) -> list[dict[str, Any]]:
    """Digest, powers and calibration."""
    samples, times = bench.samples, bench.times
    whole = np.tile(bench.part, min(times, 4))
    agrees = bool((digest_on_device(samples[: len(whole)], 0) == digest_cpu(whole, 0)).all())
    rows = [bench.row("digest", {"ours": lambda: digest_on_device(samples, 0)}, agrees)]
    if bench.part.itemsize <= 4:
        both = SUMS | POWERS
        few = reduce_on_device_with_powers(samples[: len(bench.part)], both).get()
        right = bool((few == reduce_cpu_with_powers(bench.part, both)).all())
        works: Works = {"ours": lambda: reduce_on_device_with_powers(samples, both),
                        "sum, squares": lambda: reduce_on_device(samples, SUMS)}  # fmt: skip
        rows.append(bench.row("powers", works, right))
    for transform in ("none", "sqrt", "log10"):
        calibration = Calibration(0.1, 1.5, transform)
        got = calibrate(samples[: len(bench.part)], calibration).get()
        right = got.tobytes() == calibrate(bench.part, calibration).tobytes()
        some = Bench(**bench.what, nbytes=min(samples.nbytes, CALIBRATED_BYTES), repeats=bench.repeats)
        works = {"ours": lambda of=some.samples, by=calibration: calibrate(of, by)}
        rows.append(some.row(f"calibrate, {transform}", works, right))
    return rows


def measure(
    nbytes: int = 2**30, repeats: int = 5, dtypes: Sequence[str] = DTYPES, distributions: Sequence[str] = DISTRIBUTIONS
) -> dict[str, Any]:
    """All rows."""
    rows: list[Mapping[str, Any]] = []
    for dtype in dtypes:
        for distribution in distributions:
            bench = Bench(dtype, distribution, nbytes, repeats)
            rows += quantiles(bench)
            if distribution in ("uniform", "gaussian"):
                rows += others(bench)
    return {"bytes": nbytes, "repeats": repeats, "cases": rows}


def described(figures: Mapping[str, Any]) -> str:
    """Tables: the passes of quantiles, each on its worst distribution; digest, powers and calibration on theirs."""
    cases: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in figures["cases"]:
        cases.setdefault((row["case"], row["dtype"]), []).append(row)
    lines, rest = [], []
    for (case, dtype), rows in cases.items():
        if "passes of the read" not in rows[0]:
            rest.append([f"{case}, {dtype}", f"{min(row['share of read'] for row in rows):.3f}"])
            continue
        worst: dict[str, float] = {}
        for row in rows:
            for name, rate in row["GB/s"].items():
                name = name.partition(":")[0]
                worst[name] = min(rate / row["GB/s"]["read"], worst.get(name, math.inf))
        shown = [f"{worst[name]:.2f}" if name in worst else "" for name in PASSES]
        taken = max(row["passes of the read"] for row in rows)
        rates = rows[0]["GB/s"]
        peer = [f"{rates['read'] / rates[name] / rows[0]['passes of the read']:.1f}" if name in rates else ""
                for name in ("cupy.percentile", "cupy.sort")]  # fmt: skip
        lines.append([f"{case}, {dtype}", *shown, f"{taken:.2f}", *peer])
    columns = ["", *PASSES, "all, in reads", "cupy.percentile / all", "cupy.sort / all"]
    return f"{table(columns, lines)}\n\n{table(['', 'share of the read'], rest)}"


if __name__ == "__main__":
    save(measure(), sys.argv[1])
