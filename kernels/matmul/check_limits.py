"""How much sums of groups of columns may be off by: docs/verification.md derives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from kernels.matmul.check_groups import Groups
from kernels.matmul.check_lines import LEAST_EXPONENT, UNDERFLOW, UPWARDS, Array, gamma_of
from kernels.matmul.check_measured import Measured

# What the check's own rounding may amount to, beside the elements of a row, before it is bounded more closely.
LOOSE = {"float16": 2.0**-7, "float32": 2.0**-12, "float64": 2.0**-32}
# Sums are examined from so many times the root of the sum of the squares of the largest possible roundings on. With
# random signs a right sum of float32 or float64 gets there with a probability of 2^-25, whatever is multiplied.
LIKELY = {"float16": 2.25, "float32": 6.0, "float64": 6.0}
# The same in the groups of large factors; of float16 hardly any right sum is examined then.
LOOSE_LARGE, LIKELY_LARGE = {"float16": 2.0**-3, "float64": 2.0**-31}, 3.5
# Elements up to so many times what could hide in them are computed from their definition: what is off by a quarter of
# itself does not pass, such as a wrong sign or exponent.
SMALL = 4.0
# Likewise of float16, of the mean of the sums that an element is in, as a share of the limit for that mean: in small
# groups, where elements below half of it are examined besides, and in others.
MEAN = 0.75, 1.0


@dataclass(frozen=True)
class Compared:
    """Sums of a tile, in the scales of rows and columns: arrays of shape (..., rows, sums), or (..., rows, 1).

    Attributes
    ----------
    differences
        Of C's sums and those of A' B'.
    likely
        From here on they are examined.
    most
        Those of right sums are within this.
    norms
        Of the rows of A'.
    sizes
        Root mean square of the rows of C, in the scale of the largest column.
    """

    differences: Array
    likely: Array
    most: Array
    norms: Array
    sizes: Array


class OfColumns(NamedTuple):
    """What sums of A' B' need of B': sums of its rows, shape (sums, K); squares of its columns, and of these sums."""

    vectors: Array
    squares_of_columns: Array
    squares_of_sums: Array


class Sums(Protocol):
    """Sums of groups of columns of C and of A' B'.

    Attributes
    ----------
    parts
        Rows of each tile.
    unit
        A result of the arithmetic is rounded by at most this share of it.
    depth, terms
        Additions until a number is part of the sum of its group, and of a sum of products, at most.
    squares_of_sums : shape (..., 1, sums)
        Of the numbers of B' with the signs, added up.
    squares_of_columns : shape (..., 1, N)
        Likewise of each column of B'.
    """

    parts: list[slice]
    unit: float
    depth: int
    terms: int
    squares_of_sums: Array
    squares_of_columns: Array

    def run(self, of_columns: OfColumns | None = None) -> OfColumns | None:
        """Compute the sums of A' B'; takes, and returns, what does not depend on A if that is kept."""

    def grouped(self, values: Array) -> Array:
        """Sums of numbers, shape (..., 1, N), over groups."""

    def compared(self, number: int, limits: Limits, own: Array | None = None) -> Compared:
        """A tile of C against that of A' B'; `own` as in `Limits.bounds`."""

    def own_bounds(self, numbers: Sequence[int]) -> dict[int, Array]:
        """The error of the sums of A' B' in some tiles, from the magnitudes of all terms."""


def gammas(sums: Sums) -> tuple[float, float]:
    """Bounds on the error of a sum of products, and of the sum of a group, as shares of their magnitudes."""
    return gamma_of(sums.terms, sums.unit), gamma_of(sums.depth, sums.unit)


class Limits:
    """What the bounds of all sums of a product are made of, in the scales of rows and columns.

    Attributes
    ----------
    powers
        What a right sum may be off by, for each unit of the powers of two at or below the elements of its group.
    roundings
        From where on it is examined, for each unit of the root of the sum of their squares.
    own, likely : shape (..., 1, sums)
        The check's own rounding for rows of A' of norm 1: at most, and likely.
    halves, of_halves : shapes (..., M, 1) and (..., 1, sums)
        Their product is half of the least number above zero for every element, which may be subnormal.
    underflow
        More than all underflows of the check.
    """

    def __init__(self, measured: Measured, sums: Sums, groups: Groups) -> None:
        format = measured.format
        self.dtype, half = format.dtype, 2.0**-format.precision
        of_product, of_group = gammas(sums)
        of_sums, of_columns = (np.sqrt(of) for of in (sums.squares_of_sums, sums.grouped(sums.squares_of_columns)))
        large = groups.are_large(self.dtype)
        self.loose = (LOOSE_LARGE if large else LOOSE).get(self.dtype, LOOSE[self.dtype])
        likely = LIKELY_LARGE if large and self.dtype == "float16" else LIKELY[self.dtype]
        # Of a large group float32 loses more than `UPWARDS` where it adds up the powers.
        self.powers, self.roundings = (half + 2 * of_group) * (1 + groups.size * sums.unit), likely * half
        self.own = of_product * of_sums + of_group * np.sqrt(groups.size) * of_columns
        self.likely = sums.unit * (np.sqrt(sums.terms) * of_sums + np.sqrt(sums.depth) * of_columns)
        if groups.size == 1:  # nothing could cancel: everything up to the bound is likely
            self.roundings, self.likely = 4 * half, 2 * self.own
        between = LEAST_EXPONENT if format.precision == 53 else 0  # keeps both factors in range
        self.halves = np.ldexp(1.0, format.least - 1 - between - measured.rows.scales)
        self.of_halves = sums.grouped(np.ldexp(1.0, between - measured.columns.scales))
        self.underflow = measured.shape[-1] * UNDERFLOW * (measured.factors.inner + 1)

    def bounds(
        self, part: slice, norms: Array, powers: Array, squares: Array, own: Array | None = None
    ) -> tuple[Array, Array]:
        """From where on the sums of a tile are examined, and the most that right ones are off by.

        Parameters
        ----------
        part
            Rows of the tile.
        norms : shape (..., rows, 1)
            Of the rows of A'.
        powers, squares : shape (..., rows, sums)
            Sums over groups of the powers of two at or below the magnitudes of elements of C, and of their squares.
        own : likewise
            Takes the place of the bound of the check's own rounding by norms.
        """
        others = self.halves[..., part, :] * self.of_halves + self.underflow
        most = (others + (norms * self.own if own is None else own) + self.powers * powers) * UPWARDS
        return np.minimum(others + norms * self.likely + self.roundings * np.sqrt(squares), most), most

    def are_loose(self, norms: Array, sizes: Array) -> bool:
        """Whether the check's own rounding is not small beside the elements of some row."""
        return bool(is_loose(norms * self.own.max(-1, keepdims=True, initial=0), sizes, self.loose).any())


def is_loose(bound: Array, sizes: Array, share: float) -> Array:
    """Rows, shape (..., M, 1), of a bound, shape (..., M, n), that exceeds a share of the size of their elements."""
    most = bound.max(-1, keepdims=True, initial=0)
    loose: Array = (most > share * sizes) & (most > 0)
    return loose


def share_of(errors: Array, sizes: Array) -> float:
    """The largest error, shape (..., rows, n), in units of the root mean square of its row."""
    errors = errors.max(-1, keepdims=True, initial=0)
    shares = np.divide(errors, sizes, out=np.zeros_like(errors), where=np.isfinite(sizes) & (sizes > 0))
    return float(shares.max(initial=0))
