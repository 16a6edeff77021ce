"""Which order statistics a quantile is made of, by each method of `numpy.quantile`, in exact arithmetic.

R. J. Hyndman and Y. Fan, Sample quantiles in statistical packages, The American Statistician 50 (1996), 361-365, give
nine of the methods; lower, higher, midpoint and nearest are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

HALF = Fraction(1, 2)

# alpha and beta: between the order statistics around n q + alpha + q (1 - alpha - beta) - 1.
CONTINUOUS: Mapping[str, tuple[Fraction, Fraction]] = MappingProxyType({
    "linear": (Fraction(1), Fraction(1)), "interpolated_inverted_cdf": (Fraction(0), Fraction(1)),
    "hazen": (HALF, HALF), "weibull": (Fraction(0), Fraction(0)),
    "median_unbiased": (Fraction(1, 3), Fraction(1, 3)), "normal_unbiased": (Fraction(3, 8), Fraction(3, 8)),
})  # fmt: skip
SELECTING = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")  # they give one of the samples
METHODS = ("linear", "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf",
           "hazen", "weibull", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint",
           "nearest")  # fmt: skip


class Between(NamedTuple):
    """A quantile: the order statistic `low`, counted from 0, plus `weight` times the difference of `high` to it."""

    low: int
    high: int
    weight: Fraction


@lru_cache(2**13)  # a search asks again and again
def between(method: str, q: Fraction, n: int) -> Between:
    """Where a quantile lies.

    Parameters
    ----------
    method
        One of `METHODS`.
    q
        0 to 1.
    n
        Number of samples, at least 1.

    Returns
    -------
    Between
        0 <= low <= high < n, 0 <= weight < 1; one that selects a sample has weight 0 and low == high.
    """
    if method in CONTINUOUS:
        alpha, beta = CONTINUOUS[method]
        place = n * q + alpha + q * (1 - alpha - beta) - 1
        weight = place - math.floor(place)
    elif method == "midpoint":
        place = (n - 1) * q
        weight = HALF if place.denominator > 1 else Fraction(0)
    elif method == "averaged_inverted_cdf":
        place = n * q - 1
        weight = HALF if place.denominator == 1 else Fraction(0)
        place = place if weight else Fraction(math.ceil(place))
    else:
        place, weight = Fraction(_selected(method, q, n)), Fraction(0)
    low = math.floor(place)
    if low < 0 or low >= n - 1:
        end = 0 if low < 0 else n - 1
        return Between(end, end, Fraction(0))
    return Between(low, low + 1 if weight else low, weight)


def _selected(method: str, q: Fraction, n: int) -> int:
    """The place of the sample, which may lie outside."""
    if method == "lower":
        return math.floor((n - 1) * q)
    if method == "higher":
        return math.ceil((n - 1) * q)
    if method == "nearest":
        return round((n - 1) * q)  # to even, as numpy.around
    if method == "inverted_cdf":
        return math.ceil(n * q) - 1
    place = n * q - Fraction(3, 2)  # closest_observation
    low = math.floor(place)
    return low if place == low and low % 2 else low + 1
