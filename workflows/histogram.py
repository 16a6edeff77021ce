"""Count samples into bins: every sample exactly once, in a bin, in underflow, in overflow or in NaN."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram import cpu, finite_range
from kernels.histogram.binning import MAX_BINS, Binning, Edges
from kernels.histogram.check import HistogramCheck, Plan, plan
from kernels.histogram.check_range import finite_range_check
from kernels.histogram.cpu import histogram_cpu
from kernels.histogram.gpu import histogram
from kernels.histogram.reference import histogram_reference
from workflows.aggregation import Aggregation, Survey
from workflows.histogram_result import HistogramResult
from workflows.readers import explained, read_npy, read_text

MAX_EDGES_TEXT = 2**26  # characters: 64 per edge


def read_bound(word: str) -> float:
    """One of the two numbers of `--range`."""
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"expected two numbers LO HI, or auto, got {word!r}") from None


def read_edges(path: str) -> Edges:
    """Edges in a text file or a .npy file."""
    with explained(path, "a file of numbers, one a line"):
        numbers = read_npy(path, MAX_BINS + 1) if path.endswith(".npy") else read_text(path, MAX_EDGES_TEXT)
        return numbers.astype(np.float64)


@dataclass(frozen=True, eq=False)
class HistogramOptions:
    """Options of the histogram; raises ValueError for invalid bins."""

    bins: int = field(
        default=1024,
        metadata={
            "help": f"Number of equal bins, 1 to {MAX_BINS}.",
            "advice": "no rule chooses the number; range='auto' takes the range of the data, edges= uneven bins",
        },
    )
    range: tuple[float, float] | str = field(
        default=(0.0, 1024.0),
        metadata={
            "help": "First and last edge, in the unit of the samples; the last bin includes its upper edge. "
            "`--range auto` takes the finite minimum and maximum of the data, in one extra pass.",
            "metavar": "LO HI",
            "read": read_bound,
            "words": 2,
            "alone": "auto",
        },
    )
    edges: Edges | None = field(
        default=None,
        metadata={
            "help": "File of bin edges, ascending: text, one a line, or .npy. Replaces --bins and --range.",
            "metavar": "FILE",
            "read": read_edges,
            "of_file": True,
        },
    )

    def __post_init__(self) -> None:
        if self.edges is not None:
            try:
                edges = np.asarray(self.edges, np.float64)
            except (TypeError, ValueError):
                raise ValueError(f"--edges: expected an array of ascending numbers, got {self.edges!r}"[:200]) from None
            _check_edges(edges)
            # Make the options consistent: the edges determine --bins and --range.
            vars(self).update(edges=edges, bins=len(edges) - 1, range=(float(edges[0]), float(edges[-1])))
        else:
            if not 1 <= self.bins <= MAX_BINS:
                raise ValueError(f"--bins: expected 1 to {MAX_BINS}, got {self.bins}")
            if isinstance(self.range, str):
                if self.range != "auto":
                    raise ValueError(f"--range: expected LO HI or auto, got {self.range!r}")
            else:
                try:
                    lower, upper = map(float, self.range)
                except (TypeError, ValueError):
                    raise ValueError(f"--range: expected LO HI or auto, got {self.range!r}"[:200]) from None
                _check_range(lower, upper, self.bins)
                vars(self).update(range=(lower, upper))

    @cached_property
    def all_edges(self) -> Edges:
        """float64 edges, shape (bins + 1,)."""
        if self.edges is not None:
            return self.edges
        if isinstance(self.range, str):
            raise ValueError("--range auto: the range is not known before the data was read")
        return np.linspace(*self.range, self.bins + 1)

    @cached_property
    def _binnings(self) -> dict[np.dtype[Any], Binning]:
        return {}

    def binning(self, dtype: np.dtype[Any]) -> Binning:
        """Binning of samples of a dtype; computed once."""
        native = dtype.newbyteorder("=")
        known = self._binnings.get(native)
        if known is None:
            made = Binning(native, self.all_edges, regular=self.edges is None)
            known = self._binnings.setdefault(native, made)  # another thread may have been faster
        return known


def _check_range(lower: float, upper: float, bins: int) -> None:
    if not (np.isfinite(lower) and np.isfinite(upper)):
        raise ValueError(f"--range: expected two finite numbers, got {lower} {upper}")
    if not lower < upper:
        raise ValueError(f"--range: expected LO below HI, got {lower} {upper}")
    with np.errstate(over="ignore", invalid="ignore"):
        if not (np.diff(np.linspace(lower, upper, bins + 1)) > 0).all():
            raise ValueError(f"--bins: {bins} bins over {lower} to {upper} have no distinct finite edges in float64; "
                             "use fewer bins, or a range that is wider and not beyond 1e308")  # fmt: skip


def _check_edges(edges: Edges) -> None:
    if edges.ndim != 1 or not 2 <= len(edges) <= MAX_BINS + 1:
        raise ValueError(f"--edges: expected 2 to {MAX_BINS + 1} numbers, got {edges.size} in shape {edges.shape}")
    if not np.isfinite(edges).all():
        raise ValueError("--edges: expected finite numbers, got NaN or infinity; what lies outside is counted anyway")
    falls = np.flatnonzero(~(np.diff(edges) > 0))
    if len(falls):
        i = int(falls[0])
        raise ValueError(f"--edges: expected strictly ascending numbers, got {edges[i]} before {edges[i + 1]} "
                         f"at positions {i} and {i + 1}; sort them and drop repeated ones")  # fmt: skip


def compute(block: Any, options: HistogramOptions) -> Any:
    """Counts of one block, on the device that holds it."""
    count = histogram_cpu if isinstance(block, np.ndarray) else histogram
    return count(block, options.binning(block.dtype))


def reference(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """Counts of one block by ``numpy.histogram`` in float64."""
    return histogram_reference(block, options.all_edges)


@lru_cache(maxsize=16)
def _plan(options: HistogramOptions, dtype: np.dtype[Any]) -> Plan | None:
    """Made once for all parts of a task; options are told apart by identity."""
    return plan(options.all_edges, dtype)


def check(options: HistogramOptions, dtype: np.dtype[Any]) -> HistogramCheck | None:
    """Counts by other ways than those of `compute`; None without a compiler."""
    planned = _plan(options, dtype)
    return None if planned is None else HistogramCheck(planned)


def finalize(slots: NDArray[np.int64], options: HistogramOptions) -> HistogramResult:
    """Name the slots."""
    below, inside, above, nan = int(slots[0]), slots[1:-2], int(slots[-2]), int(slots[-1])
    return HistogramResult(inside, options.all_edges, below, above, nan, regular=options.edges is None)


def every_sample_counted_once(slots: NDArray[np.int64], samples: int) -> str | None:
    """The counts add up to the number of samples, and none is negative."""
    total = int(slots.sum())
    if total != samples:
        return f"every sample is counted once: expected {samples:,} in all, got {total:,}"
    return f"no count is negative: got {int(slots.min()):,}" if slots.min() < 0 else None


def label(slot: int, options: HistogramOptions) -> str:
    """Name of a slot, with the edges of a bin."""
    edges = options.all_edges
    bins = len(edges) - 1
    if 1 <= slot <= bins:
        return f"bin {slot - 1} [{edges[slot - 1]:g}, {edges[slot]:g}{']' if slot == bins else ')'}"
    return {0: "underflow", bins + 1: "overflow"}.get(slot, "NaN")


def _with_range(options: HistogramOptions, extremes: NDArray[np.float64]) -> HistogramOptions:
    """The options with the range of the data, widened as in NumPy if that is a single value."""
    lower, upper = float(extremes[0]), float(extremes[1])
    if lower > upper:
        raise ValueError("--range auto: expected at least one finite sample, got none; give --range LO HI")
    if lower == upper:
        # Beyond 2**29 adding 0.5 would be lost in float64, or leave too few float64 numbers for the bins.
        half = max(0.5, abs(lower) * 2.0**-30)
        lower, upper = lower - half, upper + half
    return replace(options, range=(lower, upper))


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
    combine=operator.add,
    finalize=finalize,
    reference=reference,
    invariants=(every_sample_counted_once,),
    label=label,
    empty=lambda dtype, options: np.zeros(options.bins + 3, np.int64),
    check=check,
    cpu_source=cpu.SOURCE,
    survey=Survey(lambda options: options.edges is None and options.range == "auto", FINITE_RANGE, _with_range),
    formats=(".json", ".npz", ".csv", ".png"),
    example="data.bin --bins 256 --range auto -o counts.png",
)
