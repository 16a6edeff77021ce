"""Edges of bins that are not given: on a logarithmic axis, and a whole number wide."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np

from kernels.histogram.binning import Edges

DIGITS = 60  # of edges before they are rounded to float64; a product of 2**20 factors is still right to 50
WHOLE = 2**53  # up to which every integer is a float64
MORE = 16  # in so many times as many bins as usual there are at least so many integers: one more hardly shows


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


def whole_bins(lowest: int, highest: int, most: int) -> tuple[int, int, int]:
    """Bins for integers from `lowest` to `highest`: at most `most`, as narrow as a whole number allows.

    The first edge is `lowest`, and the last one lies above `highest`: every bin holds as many integers as it is wide.
    Beyond 2**53 edges are multiples of the least power of two that float64 has all of, and `lowest` is not below the
    first one.

    Returns
    -------
    first edge, width and number of bins
    """
    unit = 1
    while True:
        first = lowest // unit * unit
        units = (max(highest, int(float(highest))) - first) // unit + 1  # samples are compared as float64
        width = -(-units // most)
        bins = -(-units // width)
        ends, parts = (first, first + bins * width * unit), (bins - 1) * width * unit  # which edges are computed from
        if all(abs(number) <= WHOLE * unit for number in (*ends, parts)):
            return first, width * unit, bins
        unit *= 2


def whole_division(lower: float, upper: float, most: int) -> tuple[int, int] | None:
    """As many bins of a whole number's width as a range can be divided into: up to `most` and at least half of it.

    If that cannot be, more: the fewest, up to `MORE` times `most`.

    Returns
    -------
    width and number of bins, or None if the range is no whole number wide, or has no such divisor
    """
    most_exact = WHOLE if lower.is_integer() else WHOLE / 2  # of halves
    if not ((2 * lower).is_integer() and (upper - lower).is_integer() and max(-lower, upper) <= most_exact):
        return None
    span = int(upper - lower)
    if span <= most:
        return 1, span
    fewer, more = range(most, most // 2 - 1, -1), range(most + 1, min(MORE * most, span) + 1)
    bins = next((bins for bins in (*fewer, *more) if span % bins == 0), None)
    return None if bins is None else (span // bins, bins)
