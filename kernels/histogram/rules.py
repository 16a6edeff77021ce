"""NumPy's rules for the number of bins, from exact statistics of the samples.

The formulas are those of `numpy.histogram_bin_edges` (NumPy 2.4, numpy/lib/_histograms_impl.py), term by term, so that
the number of bins is NumPy's. Standard deviation, skewness and quartiles are the exact ones, rounded once, where NumPy
rounds at every step: widths may differ in the last digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType


@dataclass(frozen=True)
class Statistics:
    """What rules use of the samples in the range.

    Attributes
    ----------
    samples
        Their number.
    extent
        Maximum less minimum.
    deviation, skewness, iqr
        Standard deviation, skewness and interquartile range; None where a rule does not need them.
    integers
        Whether the samples are integers: their bins are at least 1 wide.
    """

    samples: int
    extent: float
    deviation: float | None = None
    skewness: float | None = None
    iqr: float | None = None
    integers: bool = False


def _sqrt(of: Statistics) -> float:
    return of.extent / math.sqrt(of.samples)


def _sturges(of: Statistics) -> float:
    return of.extent / (math.log2(of.samples) + 1.0)


def _rice(of: Statistics) -> float:
    return float(of.extent / (2.0 * of.samples ** (1.0 / 3)))


def _scott(of: Statistics) -> float:
    assert of.deviation is not None
    return float((24.0 * math.pi**0.5 / of.samples) ** (1.0 / 3.0) * of.deviation)


def _doane(of: Statistics) -> float:
    assert of.deviation is not None and of.skewness is not None
    if of.samples <= 2 or not of.deviation > 0:
        return 0.0
    n = of.samples
    error = math.sqrt(6.0 * (n - 2) / ((n + 1.0) * (n + 3)))
    return of.extent / (1.0 + math.log2(n) + math.log2(1.0 + abs(of.skewness) / error))


def _fd(of: Statistics) -> float:
    assert of.iqr is not None
    return float(2.0 * of.iqr * of.samples ** (-1.0 / 3.0))


def _auto(of: Statistics) -> float:
    return min(max(_fd(of), _sqrt(of) / 2), _sturges(of))


RULES: Mapping[str, Callable[[Statistics], float]] = MappingProxyType({
    "auto": _auto, "fd": _fd, "doane": _doane, "scott": _scott, "rice": _rice, "sturges": _sturges, "sqrt": _sqrt,
})  # fmt: skip
# What each needs beside the number of samples and their extremes.
NEED_DEVIATION, NEED_SKEWNESS, NEED_QUARTILES = ("scott", "doane"), ("doane",), ("fd", "auto")


def bins_by_rule(rule: str, of: Statistics, span: float) -> tuple[float, int]:
    """Width and number of bins.

    Parameters
    ----------
    rule
        One of RULES.
    of
    span
        Last edge less the first one.

    Returns
    -------
    width
        What the rule says; 0 where it says nothing, e.g. because all samples are equal.
    bins
        As many as cover the span, at least 1: they are as wide as that, or less.
    """
    width = RULES[rule](of) if of.samples else 0.0
    if of.integers and width > 0:
        width = max(width, 1.0)
    if not (width > 0 and math.isfinite(width)):
        return 0.0, 1
    ratio: float | Fraction = span / width
    return width, math.ceil(ratio if math.isfinite(ratio) else Fraction(span) / Fraction(width))
