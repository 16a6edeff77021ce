"""Bounds the error of each element of a product on the CPU, as `certificate.cuh` does on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.formats import BITS, LOST, MOST_PRODUCTS, MOST_TOTAL, Format

# Products at a time: sums of products of magnitudes of BITS bits are below 2**24, exact in float32 in any order.
INNER = 2**10

Array = NDArray[Any]


@dataclass
class Lines:
    """What is known of each row, or column.

    Attributes
    ----------
    size
        Upper bound on the sum of magnitudes, in units of 2**(exponent - BITS).
    loss
        Rounding moved no number by as much as 2**loss units; -inf if it moved none.
    first, end
        Place of the first number that is not zero, and the place after the last one.
    """

    size: Any = 0.0
    loss: Any = -np.inf
    first: Any = MOST_PRODUCTS
    end: Any = 0

    def add(self, values: Array, magnitudes: Array, moved: Array, exponents: Array, start: int, axis: int) -> None:
        """Take more numbers into account, from place `start` on; `moved`: by how much rounding moved each."""
        nonzero = np.isfinite(values) & (values != 0)
        self.size = self.size + (magnitudes + nonzero).sum(axis, keepdims=True)
        most = np.where(nonzero, moved, 0).max(axis, keepdims=True, initial=0)
        loss = np.maximum(np.frexp(most)[1] - exponents + BITS, 1 - LOST)
        self.loss = np.maximum(self.loss, np.where(most > 0, loss, -np.inf))
        places = np.arange(start, start + values.shape[axis]).reshape(-1, *[1] * (-1 - axis))
        self.first = np.minimum(
            self.first, np.where(nonzero, places, MOST_PRODUCTS).min(axis, keepdims=True, initial=MOST_PRODUCTS)
        )
        self.end = np.maximum(self.end, np.where(nonzero, places + 1, 0).max(axis, keepdims=True, initial=0))


class Certificate:
    """Tells which elements are certainly close enough to the product; the others are uncertain."""

    def __init__(self, format: Format) -> None:
        self.format = format
        self.lines = (Lines(), Lines())
        self.inner = 0
        self.totals: Any = 0.0  # lower bound on each element's sum of magnitudes, in units of its row and column

    def add(self, factors: Sequence[Array], rounded: Sequence[Array], exponents: Sequence[Array]) -> None:
        """Take more columns of A and rows of B into account, and the integers that they were rounded to."""
        tops = []
        for number, axis in enumerate((-1, -2)):
            whole, scale = rounded[number], exponents[number]
            magnitudes = np.floor(np.abs(whole) * 2.0 ** (BITS - self.format.kept))
            values = factors[number].astype(np.float64, copy=False)
            # Scaled back in two steps, as it was scaled. Where rounding moved a number, the difference is not zero.
            half = (scale - self.format.kept) // 2
            moved = np.abs(values - whole * np.ldexp(1.0, half) * np.ldexp(1.0, scale - self.format.kept - half))
            self.lines[number].add(values, magnitudes, moved, scale, self.inner, axis)
            tops.append(magnitudes.astype(np.float32))
        a, b = tops
        self.inner += a.shape[-1]
        for start in range(0, max(1, a.shape[-1]), INNER):
            total = np.matmul(a[..., start : start + INNER], b[..., start : start + INNER, :])
            self.totals = np.minimum(self.totals + total.astype(np.float64), float(MOST_TOTAL))

    def certain(self, rows: tuple[Any, ...] = (...,)) -> Array:
        """Which elements of some rows have, before the last rounding, an error within their share of the magnitudes."""
        of_a, of_b = self.lines
        size, lost = of_a.size[rows], of_a.loss[rows]
        precision = self.format.precision
        moved = np.ldexp(of_b.size, _whole(lost + precision)) * (lost > -np.inf)
        moved = moved + np.ldexp(size, _whole(of_b.loss + precision)) * (of_b.loss > -np.inf)
        both = lost + of_b.loss
        moved = moved + np.ldexp(float(self.inner), _whole(both + precision)) * (both > -np.inf)
        within = moved <= self.totals[rows] * self.format.share(self.inner)
        exact = (lost == -np.inf) & (of_b.loss == -np.inf)
        empty = np.maximum(of_a.first[rows], of_b.first) >= np.minimum(of_a.end[rows], of_b.end)
        return np.asarray(within | exact | empty)


def _whole(exponents: Array) -> Array:
    return np.where(np.isfinite(exponents), exponents, 0).astype(np.int64)
