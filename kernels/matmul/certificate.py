"""How far an element may be from the product that was asked for, on the CPU; on a GPU it is `certificate.cuh`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.formats import BITS, HALF_WAY, LOST, MOST_PRODUCTS, Format

# Products at a time: sums of products of magnitudes of BITS bits are below 2**24, exact in float32 in any order.
INNER = 2**10
MOST = 2.0**32 - 1  # sums of them are not counted further
TERMS = 2**18  # of doubtful elements, at a time

Array = NDArray[Any]


@dataclass
class Lines:
    """What rows, or columns, are like.

    Attributes
    ----------
    size
        Sums of magnitudes, no less, in units of 2**(exponent - BITS).
    loss
        Rounding has moved no number by as much as 2**loss units; -inf where it moved none.
    first, end
        Where numbers are that are not zero: the place of the first, the one after the last.
    """

    size: Any = 0.0
    loss: Any = -np.inf
    first: Any = MOST_PRODUCTS
    end: Any = 0

    def add(self, values: Array, magnitudes: Array, moved: Array, exponents: Array, start: int, axis: int) -> None:
        """See more numbers, the first of which is at place `start`, and by how much rounding has moved each."""
        there = np.isfinite(values) & (values != 0)
        self.size = self.size + (magnitudes + there).sum(axis, keepdims=True)
        most = np.where(there, moved, 0).max(axis, keepdims=True, initial=0)
        loss = np.maximum(np.frexp(most)[1] - exponents + BITS, 1 - LOST)
        self.loss = np.maximum(self.loss, np.where(most > 0, loss, -np.inf))
        places = np.arange(start, start + values.shape[axis]).reshape(-1, *[1] * (-1 - axis))
        self.first = np.minimum(
            self.first, np.where(there, places, MOST_PRODUCTS).min(axis, keepdims=True, initial=MOST_PRODUCTS)
        )
        self.end = np.maximum(self.end, np.where(there, places + 1, 0).max(axis, keepdims=True, initial=0))


class Certificate:
    """Tells which elements are near enough to the product for sure; the others are doubtful."""

    def __init__(self, format: Format) -> None:
        self.format = format
        self.lines = (Lines(), Lines())
        self.inner = 0
        self.totals: Any = 0.0  # of each element, in units of its row and column: the sum of magnitudes is no less

    def add(self, factors: Sequence[Array], rounded: Sequence[Array], exponents: Sequence[Array]) -> None:
        """See more columns of A and rows of B, and the integers that they became."""
        found = []
        for number, axis in enumerate((-1, -2)):
            whole, scale = rounded[number], exponents[number]
            magnitudes = np.floor(np.abs(whole) * 2.0 ** (BITS - self.format.kept))
            values = factors[number].astype(np.float64, copy=False)
            # Back in two steps, as it came. Where rounding moved a number, their difference is a number, too.
            half = (scale - self.format.kept) // 2
            moved = np.abs(values - whole * np.ldexp(1.0, half) * np.ldexp(1.0, scale - self.format.kept - half))
            self.lines[number].add(values, magnitudes, moved, scale, self.inner, axis)
            found.append(magnitudes.astype(np.float32))
        a, b = found
        self.inner += a.shape[-1]
        for start in range(0, max(1, a.shape[-1]), INNER):
            total = np.matmul(a[..., start : start + INNER], b[..., start : start + INNER, :])
            self.totals = np.minimum(self.totals + total.astype(np.float64), MOST)

    def certain(self, rows: tuple[Any, ...] = (...,)) -> Array:
        """Which elements of some rows are no further off, before rounding, than a share of what their terms come to."""
        of_a, of_b = self.lines
        size, lost = of_a.size[rows], of_a.loss[rows]
        precision = self.format.precision
        moved = np.ldexp(of_b.size, _whole(lost + precision)) * (lost > -np.inf)
        moved = moved + np.ldexp(size, _whole(of_b.loss + precision)) * (of_b.loss > -np.inf)
        both = lost + of_b.loss
        moved = moved + np.ldexp(float(self.inner), _whole(both + precision)) * (both > -np.inf)
        found = moved <= self.totals[rows] * self.format.share(self.inner)
        exact = (lost == -np.inf) & (of_b.loss == -np.inf)
        empty = np.maximum(of_a.first[rows], of_b.first) >= np.minimum(of_a.end[rows], of_b.end)
        return np.asarray(found | exact | empty)


def _whole(exponents: Array) -> Array:
    return np.where(np.isfinite(exponents), exponents, 0).astype(np.int64)


class Dots:
    """Sums of products of some elements, term by term from the first on: each product rounded, and each sum.

    Parameters
    ----------
    places
        Of the elements in the product: indices along each axis.
    exponents
        Of their rows and columns, where factors have to be scaled lest sums overflow; else None.
    """

    def __init__(self, places: Sequence[Array], exponents: Sequence[Array] | None) -> None:
        self.places, self.exponents = places, exponents
        self.sums = np.zeros(len(places[0]))
        self.inner = 0

    def add(self, a: Array, b: Array, batch: tuple[int, ...]) -> None:
        """Add the terms of the next columns of A and rows of B, stacks that broadcast to `batch`."""
        *outer, rows, columns = self.places
        b = np.swapaxes(b, -1, -2)
        a, b = (np.broadcast_to(factor, (*batch, *factor.shape[-2:])) for factor in (a, b))
        length = a.shape[-1]
        self.inner += length
        step = max(1, TERMS // max(1, length))
        for start in range(0, len(rows) if length else 0, step):
            part = slice(start, start + step)
            x, y = (
                factor[(*(index[part] for index in outer), lines[part])].astype(np.float64)
                for factor, lines in ((a, rows), (b, columns))
            )
            if self.exponents:
                x, y = (
                    np.ldexp(factor, HALF_WAY - exponent[part, None])
                    for factor, exponent in zip((x, y), self.exponents, strict=True)
                )
            terms = x * y
            terms[:, 0] += self.sums[part]
            self.sums[part] = np.add.accumulate(terms, axis=1, out=terms)[:, -1]

    def rounded(self, dtype: np.dtype[Any]) -> Array:
        """The sums in a dtype, each rounded once."""
        sums = self.sums
        if self.exponents:
            sums = np.ldexp(sums, self.exponents[0] + self.exponents[1] - 2 * HALF_WAY)
        return sums.astype(dtype)
