"""Histograms of rows on one GPU, all rows in one launch, as shares of the read stream.

python -m tests.benchmarks.rows_kernel OUT.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.gpu import histogram
from kernels.histogram.reference import histogram_reference
from kernels.histogram.rows import histogram_runs, histogram_turns
from kernels.study.roofline import read_stream
from tests.benchmarks.common import device_medians, save
from tests.benchmarks.distributions import COUNT, samples_of
from tests.benchmarks.markdown import table
from workflows.rows import Rows, split

DISTRIBUTIONS = ("uniform", "gaussian", "constant", "half outside")
RANGE = (0, 1024)
CHECKED = 64  # rows that the CPU counts


@dataclass(frozen=True)
class RowsCase:
    """Rows of a dtype: so many that take turns or are planar, or as many as there are of so many samples.

    `each`: every row has irregular edges of its own.
    """

    dtype: str
    layout: str
    number: int
    bins: int
    each: bool = False

    def edges(self, rows: int) -> NDArray[np.float64]:
        """Edges of all rows, or a line for each."""
        if not self.each:
            return np.linspace(*RANGE, self.bins + 1)
        return np.array([1024 * np.sort(np.random.default_rng(row).random(self.bins + 1)) for row in range(rows)])


CASES = (
    RowsCase("int16", "turns", 16, 1024), RowsCase("int16", "turns", 384, 1024), RowsCase("int32", "turns", 16, 1024),
    RowsCase("float32", "turns", 4, 1000), RowsCase("float32", "turns", 16, 1000, True),
    RowsCase("uint8", "turns", 3, 256),
    RowsCase("int16", "planar", 16, 1024), RowsCase("int16", "planar", 384, 1024),
    RowsCase("int32", "planar", 16, 1024), RowsCase("float32", "planar", 4, 1000),
    RowsCase("float32", "planar", 16, 1000, True),
    RowsCase("int16", "segments", 1000, 1024), RowsCase("int16", "segments", 2**20, 1024),
)  # fmt: skip


def measure(nbytes: int = 2**30, repeats: int = 10) -> dict[str, Any]:
    """Rates of every case on every distribution, as a share of the read stream, measured alternately."""
    import cupy

    ahead = cupy.zeros(nbytes // 4, cupy.uint32)
    rows = [
        _row(case, name, nbytes, repeats, lambda: read_stream(ahead)) for case in CASES for name in DISTRIBUTIONS
    ]  # fmt: skip
    worst = {}
    for row in rows:
        key = " ".join(
            map(str, (row["dtype"], row["layout"], row["number"], row["bins"], "each" * row["each"]))
        ).strip()
        worst[key] = min(worst.get(key, np.inf), row["share of read"])
    return {"bytes": nbytes, "repeats": repeats, "verified": all(row["verified"] for row in rows), "worst": worst,
            "cases": rows}  # fmt: skip


def _row(case: RowsCase, distribution: str, nbytes: int, repeats: int, lead: Callable[[], Any]) -> dict[str, Any]:
    import cupy

    itemsize = np.dtype(case.dtype).itemsize
    length = case.number * max(1, min(COUNT, nbytes // itemsize) // case.number)  # whole turns, rows or segments
    times = max(1, nbytes // itemsize // length)
    part = samples_of(distribution, case.dtype, np.linspace(*RANGE, case.bins + 1), length)
    if case.layout == "planar":
        samples = cupy.tile(cupy.asarray(part.reshape(case.number, -1)), (1, times)).reshape(-1)
    else:
        samples = cupy.tile(cupy.asarray(part), times)
    number = len(samples) // case.number if case.layout == "segments" else case.number
    lines = np.atleast_2d(case.edges(number))
    binnings = tuple(Binning(part.dtype, line, not case.each) for line in lines)
    bounds = np.arange(number + 1) * (len(samples) // number)

    def ours() -> Any:
        if case.layout == "turns":
            return histogram_turns(samples, binnings, number, 0)
        return histogram_runs(samples, binnings, bounds)

    words = samples[: len(samples) // 4 * 4].view(cupy.uint32)
    works = {"read": lambda: read_stream(words), "ours": ours}
    seconds = device_medians(works, repeats, lead)
    if distribution == "uniform" and number <= 384:
        layout = (
            Rows("row", None, None, number) if case.layout == "turns" else Rows("row", None, len(samples) // number)
        )

        def one_by_one() -> None:
            for row, _, run in split(layout, samples, 0):
                histogram(run, binnings[row % len(binnings)])

        seconds |= device_medians({"row by row": one_by_one}, 1, lead)
    rates = {name: samples.nbytes / taken / 1e9 for name, taken in seconds.items()}
    row = {"dtype": case.dtype, "layout": case.layout, "number": case.number, "bins": case.bins, "each": case.each,
           "distribution": distribution, "GB/s": rates, "share of read": rates["ours"] / rates["read"],
           "verified": _verified(case, ours(), part, times, lines)}  # fmt: skip
    shown = {name: round(rate) for name, rate in rates.items()}
    print(*list(row.values())[:6], shown, f"{row['share of read']:.3f}", row["verified"], flush=True)
    return row


def _verified(case: RowsCase, got: Any, part: NDArray[Any], times: int, lines: NDArray[np.float64]) -> bool:
    """Some rows by NumPy; all of them have as many samples as they should."""
    planar = part.reshape((case.number, -1) if case.layout == "planar" else (-1, case.number))
    of_part = planar.T if case.layout == "turns" else planar
    each, repeated = (times, 1) if case.layout != "segments" else (1, times)
    if got.shape != (len(of_part) * repeated, case.bins + 3) or not (got.sum(axis=1) == of_part.shape[1] * each).all():
        return False
    chosen = np.unique(np.linspace(0, len(got) - 1, CHECKED).astype(int))
    expected = [each * histogram_reference(of_part[row % len(of_part)], lines[row % len(lines)]) for row in chosen]
    return bool((np.array([got[int(row)].get() for row in chosen]) == expected).all())


def described(figures: Mapping[str, Any]) -> str:
    """A table: each case on its worst distribution, and how much longer one launch for each row takes."""
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for row in figures["cases"]:
        rows = f"segments of {row['number']:,}" if row["layout"] == "segments" else (
            f"{row['number']} {'interleaved' if row['layout'] == 'turns' else 'planar'}")  # fmt: skip
        edges = ", edges of their own" if row["each"] else ""
        cases.setdefault(f"{row['dtype']}, {rows}, {row['bins']} bins{edges}", []).append(row)
    lines = []
    for name, rows in cases.items():
        worst = min(row["share of read"] for row in rows)
        ratios = [row["GB/s"]["ours"] / row["GB/s"]["row by row"] for row in rows if "row by row" in row["GB/s"]]
        lines.append([name, f"{worst:.2f}", f"{min(ratios):.1f}" if ratios else ""])
    return table(["", "share of the read", "row by row / one launch"], lines)


if __name__ == "__main__":
    save(measure(), sys.argv[1])
