"""The result of a histogram, and its forms: UHI, plain numbers, arrays, a table, lines for the panel."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Edges
from workflows.plottable import BinAxis, boost_histogram_of
from workflows.shown import PlottedHistogram, how_many

# From this share of all samples on, the panel says how many lie outside of the range.
OUTSIDE_SHARE = 0.01


@dataclass(frozen=True)
class Choice:
    """Why there are so many bins, where the samples decided on it.

    Attributes
    ----------
    rule
        NumPy's rule; empty for integers in bins of a whole number's width.
    width
        Of a bin, as the rule has it; 0 where it says nothing.
    asked
        Number of bins that it asks for; there may be fewer.
    """

    rule: str
    width: float
    asked: int

    def described(self, bins: int) -> str:
        """In words, of so many bins."""
        if not self.rule:
            return f"each {self.width:,} wide: as many integers"
        if not self.width:
            return f"by the rule {self.rule}, which has no width for these samples"
        asked = f"by the rule {self.rule}: at most {self.width:g} wide"
        return asked if bins == self.asked else f"{asked}, {self.asked:,} of them; {bins:,} are the most there can be"


@dataclass(frozen=True)
class HistogramResult(PlottedHistogram):
    """A verified histogram.

    Attributes
    ----------
    counts : int64 array, shape (bins,)
    edges : float64 array, shape (bins + 1,)
    underflow, overflow, nan
        Samples below the first edge, above the last one, and not a number.
    regular
        Whether the edges are evenly spaced.
    scale
        `log` if their ratios are equal, else `linear`.
    choice
        Why there are so many bins; None if the options say so.
    surveyed
        Whether the range is that of the samples.
    verification
        What was checked, set by `pipeline.run`.

    Examples
    --------
    >>> import numpy, pipeline
    >>> found = pipeline.run("histogram", numpy.array([1, 2, 2, 9]), bins=3, range=(0, 3))
    >>> found.counts.tolist(), found.edges.tolist(), found.overflow
    ([0, 1, 2], [0.0, 1.0, 2.0, 3.0], 1)
    """

    counts: NDArray[np.int64]
    edges: Edges
    underflow: int
    overflow: int
    nan: int
    regular: bool
    scale: str = "linear"
    choice: Choice | None = None
    surveyed: bool = False
    verification: Any = field(default=None, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HistogramResult):
            return NotImplemented
        names = [one.name for one in fields(self) if one.compare]
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    @property
    def samples(self) -> int:
        """Number of samples, in bins or outside."""
        return int(self.counts.sum()) + self.underflow + self.overflow + self.nan

    def document(self) -> dict[str, Any]:
        """Two UHI histograms by name: `histogram`, and `nan`, the number of NaN, without axes; `uhi add` adds both."""
        return {"histogram": self.to_uhi(), "nan": uhi([], self.nan)}

    @staticmethod
    def number_in_document(number: int) -> dict[str, Any]:
        """A number of samples, as NaN are counted there."""
        return uhi([], number)

    def to_uhi(self) -> dict[str, Any]:
        """All but NaN, for which UHI has no slot, in its serialization schema, which boost-histogram and hist read."""
        flow = {"underflow": True, "overflow": True, "circular": False}
        axis: dict[str, Any]
        if self.regular:
            axis = {"type": "regular", "lower": float(self.edges[0]), "upper": float(self.edges[-1])}
            axis |= {"bins": len(self.counts)}
        else:
            axis = {"type": "variable", "edges": self.edges.tolist()}
        values = [self.underflow, *self.counts.tolist(), self.overflow]
        return uhi([axis | flow], values, scale=self.scale, surveyed=self.surveyed, **self._why())

    def _why(self) -> dict[str, Any]:
        """The choice of bins as plain values."""
        return {} if self.choice is None else asdict(self.choice)

    def merged(self, other: HistogramResult, start: int) -> HistogramResult:
        """The counts of both; ValueError if their bins differ."""
        if not np.array_equal(self.edges, other.edges):
            raise ValueError(f"different axes, {_bins(self)} and {_bins(other)}")
        flow = {name: getattr(self, name) + getattr(other, name) for name in ("underflow", "overflow", "nan")}
        return replace(self, counts=self.counts + other.counts, choice=None, verification=None, **flow)

    kind = "COUNT"

    @property
    def axes(self) -> tuple[BinAxis, ...]:
        """The axis of the bins, for plotting libraries."""
        return (BinAxis(self.edges),)

    def values(self, flow: bool = False) -> NDArray[np.float64]:
        """Counts as float64, for plotting libraries; `flow`: between underflow and overflow."""
        counts = self.counts.astype(np.float64)
        return np.array([self.underflow, *counts, self.overflow]) if flow else counts

    def variances(self, flow: bool = False) -> NDArray[np.float64]:
        """The variances of the counts, which are equal to them."""
        return self.values(flow)

    def _to_boost_histogram_(self) -> Any:
        """For `boost_histogram.Histogram(result)` and `hist.Hist(result)`, which call it."""
        return boost_histogram_of(self.to_uhi())

    def to_json(self) -> dict[str, Any]:
        """Histogram, samples, underflow, overflow and nan as plain numbers and lists."""
        flow = {"underflow": self.underflow, "overflow": self.overflow, "nan": self.nan}
        return {"histogram": self.to_uhi(), "samples": self.samples, **flow, **self.choice_as_json()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """counts (bins,), edges (bins + 1,), and the 0-d underflow, overflow, nan."""
        flow = {name: np.array(getattr(self, name), np.int64) for name in ("underflow", "overflow", "nan")}
        return {"counts": self.counts, "edges": self.edges, **flow}

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """One row per bin, with its edges; underflow, overflow and NaN as rows that lack one edge or both."""
        lower, upper = self.edges[:-1].tolist(), self.edges[1:].tolist()
        rows = [("-inf", lower[0], self.underflow), *zip(lower, upper, self.counts.tolist(), strict=True)]
        rows += [(upper[-1], "inf", self.overflow), ("nan", "nan", self.nan)]
        return ("lower", "upper", "count"), rows

    def steps(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Counts and edges."""
        return self.counts, self.edges

    def choice_as_json(self) -> dict[str, Any]:
        """Why there are so many bins, and how many, if the samples decided on that."""
        return {} if self.choice is None else {"choice": asdict(self.choice) | {"bins": len(self.counts)}}

    def bins_lines(self) -> list[tuple[str, str]]:
        """Range and number of bins, and why there are so many."""
        scale = ", logarithmic scale" if self.scale == "log" else ""
        facts = [("range", f"[{self.edges[0]:g}, {self.edges[-1]:g}], bins: {len(self.counts):,}{scale}")]
        if self.choice is not None:
            facts.append(("bins", self.choice.described(len(self.counts))))
        return facts

    def lines(self) -> list[tuple[str, str]]:
        """Range, where samples lie in it, how many lie outside, and the first ten counts, as the course prints them."""
        facts = self.bins_lines()
        outside = self.underflow + self.overflow
        if outside > OUTSIDE_SHARE * self.samples:
            share = min(
                100 * outside / self.samples, 99.9 if outside < self.samples else 100
            )  # never rounded up to 100
            advice = "" if self.surveyed or self.scale == "log" else "; --range auto includes all that are finite"
            if advice and not self.counts.any():  # raw files are int32 unless --dtype says what they are
                advice = f"; is the dtype right?{advice[1:]}"
            facts.append(("outside", f"{how_many(outside)} ({share:.3g} %){advice}"))
        return [
            *facts,
            *self._moments(),
            ("samples", f"{self.samples:,}"),
            ("underflow", f"{self.underflow:,}"),
            ("overflow", f"{self.overflow:,}"),
            ("NaN", f"{self.nan:,}"),
            ("first ten counts", str(self.counts[:10].tolist())),
        ]

    def _moments(self) -> list[tuple[str, str]]:
        """Mean, mode and spread of the samples in bins, each taken to lie in the middle of its bin."""
        inside, fullest = int(self.counts.sum()), int(self.counts.argmax())
        if not inside:
            return [(name, "none, no sample lies in a bin") for name in ("mean", "mode", "spread")]
        centres, weights = self.edges[:-1] / 2 + self.edges[1:] / 2, self.counts / inside
        mean = float((weights * centres).sum())
        away = np.abs(centres / 2 - mean / 2)  # halves: a range may be wider than the largest float64
        scale = float(away[self.counts > 0].max()) or 1.0
        spread = 2 * scale * math.sqrt(float((weights * np.minimum(away / scale, 1) ** 2).sum()))
        # What reduce computes includes the samples outside.
        whose = "; exact: reduce --op mean,std" if inside == self.samples else ", of the samples in bins alone"
        end = "]" if fullest == len(self.counts) - 1 else ")"
        return [
            ("mean", f"{mean:.6g}, from counts and bin centres{whose}"),
            ("mode", f"[{self.edges[fullest]:g}, {self.edges[fullest + 1]:g}{end}, {how_many(self.counts[fullest])}"),
            ("spread", f"{spread:.6g}, standard deviation from counts and bin centres"),
        ]


def _bins(result: HistogramResult) -> str:
    return f"{len(result.counts):,} bins over [{result.edges[0]:g}, {result.edges[-1]:g}]"


def uhi(axes: list[dict[str, Any]], values: Any, **about: str | float) -> dict[str, Any]:
    """Counts on these axes, in the UHI serialization schema, with what this program also has to know about them."""
    info, storage = {"baru": {"format": 2, **about}}, {"type": "int", "values": values}
    return {"uhi_schema": 1, "writer_info": info, "metadata": {}, "axes": axes, "storage": storage}
