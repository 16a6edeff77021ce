"""Count samples into bins: every sample exactly once, in a bin, in underflow, in overflow or in NaN."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram import cpu, finite_range
from kernels.histogram.binning import Binning
from kernels.histogram.check import HistogramCheck, Plan, check_runs, plan
from kernels.histogram.check_range import finite_range_check
from kernels.histogram.cpu import count_runs, count_turns, histogram_cpu
from kernels.histogram.gpu import histogram
from kernels.histogram.reference import histogram_reference
from kernels.histogram.rows import histogram_runs, histogram_turns
from kernels.quantile.search import Search
from kernels.transpose.cpu import transpose_cpu
from workflows.aggregation import Aggregation, Lines, Survey
from workflows.bins import STATISTICS, Selected, completed, of_integers, with_quartiles, with_range, with_search
from workflows.histogram_options import HistogramOptions
from workflows.histogram_result import HistogramResult
from workflows.histogram_rows import HistogramColumns
from workflows.quartiles import PROOF, SEARCH
from workflows.rows import Stretch


def compute(block: Any, options: HistogramOptions) -> Any:
    """Counts of one block, on the device that holds it."""
    count = histogram_cpu if isinstance(block, np.ndarray) else histogram
    return count(block, options.binning(block.dtype))


def compute_rows(block: Any, options: tuple[HistogramOptions, ...], stretch: Stretch) -> Any:
    """Counts of each row of a stretch, on the device that holds it; None if a block of threads cannot hold those of one
    row, or the cache of a core those of all."""
    return count_rows(block, tuple(of_row.binning(block.dtype) for of_row in options), stretch)


def count_rows(block: Any, binnings: tuple[Binning, ...], stretch: Stretch) -> Any:
    """The same in bins of all rows or of each."""
    if isinstance(block, np.ndarray):
        if len(binnings) > 1:
            return None
        turns = stretch.bounds is None
        counts = count_turns(block, binnings[0], stretch.number, stretch.first) if turns else None
        if counts is not None or stretch.long:
            return counts
        samples, begins, ends = stretch.one_after_another(block, transpose_cpu)
        return count_runs(samples, binnings[0], begins, ends)
    row = stretch.row if len(binnings) > 1 else 0
    if stretch.bounds is None:
        return histogram_turns(block, binnings, stretch.number, stretch.first, row)
    return histogram_runs(block, binnings, stretch.bounds, row)


def reference(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """Counts of one block by ``numpy.histogram`` in float64."""
    return histogram_reference(block, options.all_edges)


@lru_cache(maxsize=16)
def _plan(options: HistogramOptions, dtype: np.dtype[Any]) -> Plan | None:
    """The plan of the check, made once for all parts of a task; options are compared by identity."""
    return plan(options.all_edges, dtype)


def check(options: HistogramOptions, dtype: np.dtype[Any]) -> HistogramCheck | None:
    """Counts by other ways than those of `compute`; None without a compiler."""
    planned = _plan(options, dtype)
    return None if planned is None else HistogramCheck(planned)


def check_lines(
    samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], options: HistogramOptions
) -> NDArray[np.int64] | None:  # fmt: skip
    """Counts of rows, by the plan of the check; None without a compiler."""
    planned = _plan(options, samples.dtype.newbyteorder("="))
    return None if planned is None else check_runs(planned, samples, begins, ends)


def broken(slots: NDArray[np.int64], samples: NDArray[np.int64]) -> int | None:
    """The first row whose counts are not as many as its samples, or not all positive."""
    wrong = (slots.sum(axis=1) != samples) | (slots.min(axis=1) < 0)
    return int(wrong.argmax()) if wrong.any() else None


def finalize(slots: NDArray[np.int64], options: HistogramOptions) -> HistogramResult:
    """Name the slots."""
    below, inside, above, nan = int(slots[0]), slots[1:-2], int(slots[-2]), int(slots[-1])
    return HistogramResult(inside, options.all_edges, below, above, nan, options.regular, options.scale, options.choice,
                           options.surveyed)  # fmt: skip


def every_sample_counted_once(slots: NDArray[np.int64], samples: int) -> str | None:
    """The counts add up to the number of samples, and none is negative."""
    total, least = np.add.reduce(slots), np.minimum.reduce(slots)  # methods of arrays take twice as long
    if total != samples:
        return f"every sample is counted once: expected {samples:,} in all, got {total:,}"
    return f"no count is negative: got {least:,}" if least < 0 else None


def label(slot: int, options: HistogramOptions) -> str:
    """Name of a slot, with the edges of a bin."""
    edges = options.all_edges
    bins = len(edges) - 1
    if 1 <= slot <= bins:
        return f"bin {slot - 1} [{edges[slot - 1]:g}, {edges[slot]:g}{']' if slot == bins else ')'}"
    return {0: "underflow", bins + 1: "overflow"}.get(slot, "NaN")


def _needed(options: HistogramOptions) -> bool:
    return options.edges is None and (options.range == "auto" or bool(options.rule))


def _searching(options: HistogramOptions) -> bool:
    return options.quartiles is not None and options.quartiles.searching


def _choose(options: HistogramOptions) -> Aggregation[HistogramOptions] | None:
    """What surveys the samples where bins depend on more than their range."""
    if options.quartiles is not None:
        return SEARCH if options.quartiles.searching else PROOF
    ranged = isinstance(options.bins, int) or options.scale != "linear" or options.statistics is not None
    return None if ranged else STATISTICS


def _instead(options: HistogramOptions) -> str:
    return "give --range LO HI" if options.range == "auto" and not options.rule else ""


def _resolved(options: HistogramOptions, surveyed: Any) -> HistogramOptions:
    """The options with what a survey found."""
    resolved = _with(options, surveyed)
    vars(resolved)["_surveyed"] = options.surveyed or options.range == "auto"
    return resolved


def _with(options: HistogramOptions, surveyed: Any) -> HistogramOptions:
    if isinstance(surveyed, Selected):
        return completed(options, surveyed)
    if isinstance(surveyed, Search):
        return with_search(options, surveyed)
    if isinstance(surveyed, float):
        return with_quartiles(options, surveyed)
    return with_range(options, float(surveyed[0]), float(surveyed[1]))


FINITE_RANGE: Aggregation[HistogramOptions] = Aggregation(
    name="finite range",
    summary="Finite minimum and maximum.",
    options=HistogramOptions,
    compute=lambda block, options: finite_range.finite_range(block),
    combine=finite_range.merge,
    finalize=lambda extremes, options: extremes,
    reference=lambda block, options: finite_range.finite_range_reference(block),
    invariants=(lambda extremes, samples: None if not np.isnan(extremes).any() else "a finite range is never NaN",),
    label=lambda position, options: ("minimum", "maximum")[position],
    empty=lambda dtype, options: finite_range.finite_range(np.empty(0, dtype)),
    check=lambda options, dtype: finite_range_check(dtype),
)

HISTOGRAM: Aggregation[HistogramOptions] = Aggregation(
    name="histogram",
    summary="Count samples into bins.",
    options=HistogramOptions,
    compute=compute,
    compute_rows=compute_rows,
    lines=Lines(
        results=lambda slots, options: HistogramColumns(slots, finalize(slots[0], options)),
        combine=operator.add,
        broken=broken,
        check=check_lines,
    ),
    combine=operator.add,
    finalize=finalize,
    reference=reference,
    invariants=(every_sample_counted_once,),
    label=label,
    empty=lambda dtype, options: np.zeros(len(options.all_edges) + 2, np.int64),
    check=check,
    cpu_source=cpu.SOURCE,
    prepare=lambda job, options, dtype: (job, of_integers(options) if dtype.kind in "iu" else options),
    options_of_rows=lambda options, number: options.of_rows(number),
    survey=Survey(_needed, FINITE_RANGE, _resolved, choose=_choose, proven=_searching, instead=_instead),
    formats=(".json", ".npz", ".csv", ".parquet", ".zip", ".h5", ".png", ".svg", ".pdf"),
    example="data.bin --bins 256 --range auto -o counts.png",
)
