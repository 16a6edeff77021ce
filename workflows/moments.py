"""Results from the exact sums and extremes in a partial of reduce, each rounded once."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import exact_sum, powers
from kernels.reduce import partial as layout
from kernels.reduce.partial import NAN, NEGATIVE, POSITIVE, SAMPLES

Number = int | float | None


class Moments:
    """The content of a partial of reduce, as numbers.

    Parameters
    ----------
    partial
    nan
        `propagate`, or `omit`: as if NaN were not there.
    ddof
        Variances divide by the number of samples minus this.
    """

    def __init__(self, partial: NDArray[np.int64], nan: str = "omit", ddof: int = 0) -> None:
        self.dtype = np.dtype(layout.DTYPES[partial[layout.CODE]])
        self._partial, self._ddof = partial, ddof
        self._has_nan = nan == "propagate" and bool(partial[NAN])
        self._positive, self._negative = bool(partial[POSITIVE]), bool(partial[NEGATIVE])
        self._count = int(partial[SAMPLES]) - (int(partial[NAN]) if nan == "omit" else 0)

    @cached_property
    def _sum(self) -> Fraction:
        return _exact(self._partial[layout.SUM_AT], exact_sum.SUM_BITS)

    @cached_property
    def _squares(self) -> Fraction:
        return _exact(self._partial[layout.SQUARES_AT], exact_sum.SQUARE_BITS)

    def value(self, name: str) -> Number:
        """Result of an operation of `workflows.reduce`, of those whose parts the partial has."""
        if name == "count":
            return self._count
        if name in ("argmin", "argmax", "min", "max"):
            return self._extreme(name)
        if self._has_nan:
            return math.nan
        if self._positive or self._negative:
            return self._infinite(name)
        if name in ("skewness", "kurtosis"):
            return self._standardized(name)
        result: Number
        if name == "sum":
            result = int(self._sum) if self.dtype.kind != "f" else exact_sum.quotient(self._sum)
        elif name == "norm":
            result = exact_sum.square_root(self._squares)
        elif name == "mean":
            result = exact_sum.quotient(self._sum / self._count) if self._count else math.nan
        elif self._count <= self._ddof:
            result = math.nan
        else:
            variance = (self._squares - self._sum**2 / self._count) / (self._count - self._ddof)
            result = exact_sum.quotient(variance) if name == "var" else exact_sum.square_root(variance)
        return result

    def _standardized(self, name: str) -> float:
        """m3 / m2**1.5, or m4 / m2**2 - 3, of central moments that divide by the number of samples."""
        n, total, squares = self._count, self._sum, self._squares
        # n**2 times the second moment, n**3 times the third and n**4 times the fourth: no division before the last one.
        second = n * squares - total**2
        if not second:
            return math.nan
        cubes = _exact(self._partial[powers.CUBES_AT], powers.CUBE_BITS)
        if name == "skewness":
            third = n**2 * cubes - 3 * n * total * squares + 2 * total**3
            size = exact_sum.square_root(third**2 / second**3)
            return -size if third < 0 else size
        fourths = _exact(self._partial[powers.FOURTHS_AT], powers.FOURTH_BITS)
        fourth = n**3 * fourths - 4 * n**2 * total * cubes + 6 * n * total**2 * squares - 3 * total**4
        return exact_sum.quotient(fourth / second**2 - 3)

    def _infinite(self, name: str) -> float:
        if name == "norm":
            return math.inf
        if name in ("var", "std", "skewness", "kurtosis") or (self._positive and self._negative):
            return math.nan
        return math.inf if self._positive else -math.inf

    def _extreme(self, name: str) -> Number:
        place = name.startswith("arg")
        key, at = (layout.MIN_KEY, layout.MIN_AT) if name.endswith("min") else (layout.MAX_KEY, layout.MAX_AT)
        if self._has_nan:
            return int(self._partial[layout.FIRST_NAN]) // 2 if place else math.nan
        position = int(self._partial[at])
        if position == layout.NOWHERE:
            return None if place else math.nan
        return position // 2 if place else layout.from_key(int(self._partial[key]), self.dtype, bool(position % 2))


def _exact(words: NDArray[np.int64], bits: int) -> Fraction:
    return Fraction(exact_sum.from_words(words), 2**bits)
