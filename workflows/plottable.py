"""Axes and values of histograms as plotting libraries expect them: the protocol PlottableHistogram of UHI.

The protocol's `counts()` is left out: `counts` of a result is an array.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Traits(NamedTuple):
    """Whether bins are discrete, the axis begins again where it ends, and what lies outside is counted."""

    discrete: bool = False
    circular: bool = False
    underflow: bool = True
    overflow: bool = True


ROWS = Traits(discrete=True, underflow=False, overflow=False)


@dataclass(frozen=True, eq=False)
class BinAxis:
    """Bins between edges; an item is the pair of edges of a bin."""

    edges: NDArray[Any]
    traits: Traits = field(default=Traits())

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __getitem__(self, bin_: int) -> tuple[float, float]:
        return float(self.edges[:-1][bin_]), float(self.edges[1:][bin_])

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return iter(zip(self.edges[:-1].tolist(), self.edges[1:].tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BinAxis) and np.array_equal(self.edges, other.edges)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class NameAxis:
    """A bin for each name; an item is the name."""

    names: Sequence[str]
    traits: Traits = field(default=ROWS)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, bin_: int) -> str:
        return self.names[bin_]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)


def boost_histogram_of(described: dict[str, Any]) -> Any:
    """The histogram of boost-histogram that a UHI object describes; called by boost-histogram only."""
    library = sys.modules["boost_histogram"]
    return library.Histogram(library.serialization.from_uhi(described))
