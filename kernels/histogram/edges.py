"""Edges of bins that are not given: on a logarithmic axis, and a whole number wide."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np

from kernels.histogram.binning import Edges

DIGITS = 60  # of edges before they are rounded to float64; a product of 2**20 factors is still right to 50
WHOLE = 2**53  # up to which every integer is a float64


def log_edges(lower: float, upper: float, bins: int) -> Edges:
    """Edges whose ratios are equal, as `numpy.geomspace` has them, each rounded once.

    NumPy's own depend on its logarithm and power, which differ between CPUs in the last digit.

    Parameters
    ----------
    lower, upper
        First and last edge, 0 < lower < upper.
    bins

    Returns
    -------
    float64 array, shape (bins + 1,)
    """
    context = Context(prec=DIGITS, Emin=-100_000, Emax=100_000)
    edge = Decimal(lower)
    ratio = context.exp(context.divide(context.ln(context.divide(Decimal(upper), edge)), Decimal(bins)))
    edges = np.empty(bins + 1)
    for i in range(bins + 1):
        edges[i] = float(edge)
        edge = context.multiply(edge, ratio)
    edges[0], edges[-1] = lower, upper
    return edges


def whole_bins(lowest: int, highest: int, most: int) -> tuple[int, int] | None:
    """Bins for integers from `lowest` to `highest`: at most `most`, as narrow as a whole number allows.

    The first edge is `lowest`, the last one lies above `highest`: every bin holds as many integers as it is wide.

    Returns
    -------
    width and number of bins, or None where float64 does not have all edges
    """
    integers = highest - lowest + 1
    width = -(-integers // most)
    bins = -(-integers // width)
    return (width, bins) if max(abs(lowest), abs(lowest + bins * width)) <= WHOLE else None


def whole_division(lower: float, upper: float, most: int) -> tuple[int, int] | None:
    """As many bins of a whole number's width as a range can be divided into, up to `most` and at least half of it.

    Returns
    -------
    width and number of bins, or None if the range does not end at whole numbers, or has no such divisor
    """
    if not (lower.is_integer() and upper.is_integer() and max(abs(lower), abs(upper)) <= WHOLE):
        return None
    span = int(upper) - int(lower)
    if span <= most:
        return 1, span
    bins = next((bins for bins in range(most, most // 2 - 1, -1) if span % bins == 0), None)
    return None if bins is None else (span // bins, bins)
