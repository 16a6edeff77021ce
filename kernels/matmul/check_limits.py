"""How much sums of groups of columns may be off by: docs/verification.md derives it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.matmul.check_dense import Compared, Sums, gammas
from kernels.matmul.check_groups import Groups
from kernels.matmul.check_lines import LEAST_EXPONENT, UNDERFLOW, UPWARDS, Array
from kernels.matmul.check_measured import Measured

# What the check's own rounding may amount to, beside the elements of a row, before it is bounded more closely.
LOOSE = {"float16": 2.0**-7, "float32": 2.0**-12, "float64": 2.0**-32}
# Sums are examined from so many times the root of the sum of the squares of the largest possible roundings on. With
# random signs a right sum of float32 or float64 gets there with a probability of 2^-25, whatever is multiplied.
LIKELY = {"float16": 2.25, "float32": 6.0, "float64": 6.0}
LIKELY_MEAN = 1.8  # likewise of float16, for the mean of the sums that an element is in


@dataclass(frozen=True)
class Bounds:
    """How much the sums of a tile may be off by, in the scales of rows and columns: shape (..., rows, sums).

    Attributes
    ----------
    likely
        From here on sums are examined.
    most
        Of right sums.
    squares
        Of the limit for means of several sums.
    loose : bool array, shape (..., rows, 1)
        Rows where the check's own rounding is too large beside the elements to be of use.
    """

    likely: Array
    most: Array
    squares: Array
    loose: Array


class Limits:
    """Bounds of the sums of a product."""

    def __init__(self, measured: Measured, sums: Sums, groups: Groups) -> None:
        self._groups, self._format = groups, measured.format
        self._half = 2.0**-measured.format.precision  # of a unit in the last place of 1
        of_product, of_group = gammas(sums)
        of_sums, of_columns = (np.sqrt(of) for of in (sums.squares_of_sums, sums.grouped(sums.squares_of_columns)))
        # The check's own rounding, for rows of A' of norm 1: at most, and likely.
        self._own = of_product * of_sums + of_group * np.sqrt(groups.size) * of_columns
        self._likely_own = sums.unit * (np.sqrt(sums.terms) * of_sums + np.sqrt(sums.depth) * of_columns)
        self._powers = self._half + 2 * of_group
        # Half of the least number above zero for every element, each of which might be subnormal.
        halves = np.ldexp(1.0, measured.format.least - 1 - LEAST_EXPONENT - measured.rows.scales)
        self._halves = [measured.rows.some(halves, None, part) for part in sums.parts]
        self._of_halves = sums.grouped(np.ldexp(1.0, LEAST_EXPONENT - measured.columns.scales))
        self._underflow = measured.product.shape[-1] * UNDERFLOW * (measured.factors.inner + 1)

    def __call__(self, number: int, compared: Compared, own: Array | None = None) -> Bounds:
        """Those of a tile; `own` takes the place of the bound of the check's own rounding, where that is loose."""
        by_norm = compared.norms * self._own
        loose = is_loose(by_norm, compared.sizes, self._format.dtype)
        if own is not None:
            by_norm = np.where(loose, own, by_norm)
        others = self._halves[number] * self._of_halves + self._underflow
        most = (self._powers * compared.powers + others + by_norm) * UPWARDS
        if self._groups.size == 1:
            return Bounds(most, most, most, loose)
        roundings = self._half * np.sqrt(compared.squares, dtype=np.float64)
        others = others + compared.norms * self._likely_own
        likely = np.minimum(LIKELY[self._format.dtype] * roundings + others, most)
        return Bounds(likely, most, np.square(LIKELY_MEAN * roundings + others), loose)


def is_loose(bound: Array, sizes: Array, dtype: str) -> Array:
    """Rows, shape (..., M, 1), of a bound, shape (..., M, n), that is too large beside their elements to be of use."""
    most = bound.max(-1, keepdims=True, initial=0)
    loose: Array = (most > LOOSE[dtype] * sizes) & (most > 0)
    return loose


def share_of(errors: Array, sizes: Array) -> float:
    """The largest error, shape (..., rows, n), in units of the root mean square of its row."""
    errors = errors.max(-1, keepdims=True, initial=0)
    shares = np.divide(errors, sizes, out=np.zeros_like(errors), where=np.isfinite(sizes) & (sizes > 0))
    return float(shares.max(initial=0))
