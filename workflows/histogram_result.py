"""The result of a histogram, and its forms: UHI, plain numbers, arrays, a table, lines for the panel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Edges

# From this share of all samples on, the panel says how many lie outside of the range.
OUTSIDE_SHARE = 0.01


@dataclass(frozen=True)
class HistogramResult:
    """A verified histogram.

    Attributes
    ----------
    counts : int64 array, shape (bins,)
    edges : float64 array, shape (bins + 1,)
    underflow, overflow, nan
        Samples below the first edge, above the last one, and not a number.
    regular
        Whether the edges are evenly spaced.
    verification
        What was checked, set by `pipeline.run`.
    """

    counts: NDArray[np.int64]
    edges: Edges
    underflow: int
    overflow: int
    nan: int
    regular: bool
    verification: Any = field(default=None, compare=False, repr=False)

    @property
    def samples(self) -> int:
        """Number of samples, in bins or outside."""
        return int(self.counts.sum()) + self.underflow + self.overflow + self.nan

    def document(self) -> dict[str, Any]:
        """Two UHI histograms by name: `histogram`, and `nan`, the number of NaN, without axes; `uhi add` adds both."""
        return {"histogram": self.to_uhi(), "nan": _uhi([], self.nan)}

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
        return _uhi([axis | flow], values)

    def to_json(self) -> dict[str, Any]:
        """Histogram, samples, underflow, overflow and nan as plain numbers and lists."""
        flow = {"underflow": self.underflow, "overflow": self.overflow, "nan": self.nan}
        return {"histogram": self.to_uhi(), "samples": self.samples, **flow}

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

    def lines(self) -> list[tuple[str, str]]:
        """Range, where samples lie in it, how many lie outside, and the first ten counts, as the course prints them."""
        facts = [("range", f"[{self.edges[0]:g}, {self.edges[-1]:g}], bins: {len(self.counts):,}")]
        outside = self.underflow + self.overflow
        if outside > OUTSIDE_SHARE * self.samples:
            share = min(
                100 * outside / self.samples, 99.9 if outside < self.samples else 100
            )  # never rounded up to 100
            facts.append(("outside", f"{outside:,} samples ({share:.3g} %); --range auto, with --spool for "
                          "standard input, includes all that are finite"))  # fmt: skip
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
            ("mode", f"[{self.edges[fullest]:g}, {self.edges[fullest + 1]:g}{end}, {self.counts[fullest]:,} samples"),
            ("spread", f"{spread:.6g}, standard deviation from counts and bin centres"),
        ]


def _uhi(axes: list[dict[str, Any]], values: Any) -> dict[str, Any]:
    """Counts on these axes, in the UHI serialization schema."""
    info, storage = {"baru": {"format": 1}}, {"type": "int", "values": values}
    return {"uhi_schema": 1, "writer_info": info, "metadata": {}, "axes": axes, "storage": storage}
