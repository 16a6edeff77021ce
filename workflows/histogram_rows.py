"""The histograms of many rows with the same bins, as columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workflows.columns import Columns
from workflows.histogram_result import HistogramResult


class HistogramColumns(Columns):
    """Histograms with the same bins.

    Parameters
    ----------
    slots : int64 array, shape (rows, bins + 3)
        Underflow, the bins, overflow, NaN.
    first
        The histogram of the first row.
    """

    def __init__(self, slots: NDArray[np.int64], first: HistogramResult) -> None:
        self.slots, self._first = slots, first

    def __len__(self) -> int:
        return len(self.slots)

    def of(self, row: int) -> HistogramResult:
        slots = self.slots[row]
        below, above, nan = slots[[0, -2, -1]].tolist()
        return replace(self._first, counts=slots[1:-2], underflow=below, overflow=above, nan=nan)

    def arrays(self) -> dict[str, NDArray[Any]]:
        flow = {"underflow": self.slots[:, 0], "overflow": self.slots[:, -2], "nan": self.slots[:, -1]}
        return {"counts": self.slots[:, 1:-2], "edges": self._first.edges, **flow}

    def to_json(self) -> list[Any]:
        return [one.to_json() for one in self]

    def table(self) -> tuple[tuple[str, ...], list[list[tuple[Any, ...]]]]:
        lower, upper = self._first.edges[:-1].tolist(), self._first.edges[1:].tolist()
        bounds = [("-inf", lower[0]), *zip(lower, upper, strict=True), (upper[-1], "inf"), ("nan", "nan")]
        return ("lower", "upper", "count"), [
            [(*ends, count) for ends, count in zip(bounds, line, strict=True)] for line in self.slots.tolist()
        ]
