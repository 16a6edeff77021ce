"""Freivalds' check of products of floats: every row within a bound that holds for any right result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.modular import Format

VECTORS = 20  # of random signs
UNIT = 2.0**-53
# Rows and columns are scaled by powers of two to magnitudes of 1/2 to 1, so that nothing overflows here. Smaller ones
# than this one stay smaller, so that neither does what is above their products.
LEAST_EXPONENT = -500
# Above what all underflows in here add up to; and what rounding the bound itself takes away.
UNDERFLOW, UPWARDS = 2.0**-1000, 1 + 2.0**-20

Array = NDArray[Any]
Slabs = Callable[[], Iterator[tuple[Array, Array]]]


class FloatCheck:
    """A stack of products C that was found, and the factors A and B, which `slabs` reads part by part.

    A row of C, without the columns where B has infinities or NaN, is compared with that of A B by its sums with random
    signs r. Every element of a right result is within gamma(K) of the sum of the magnitudes of its K terms, with the
    unit of its format, and within K halves of its least number where products underflow. So a right row of N elements,
    and this check in float64, give numbers that differ by no more than

        (gamma(K) + gamma(K + 2 N + parts)) |A| (|B| |r|)  +  K N halves of the least number,

    which in float64 is 2 gamma |A| (|B| |r|) with the gamma of K + N + parts.
    So an element that is wrong by more than twice that escapes, whatever else is wrong, with a probability of 1/2 for
    each vector, and of 0 where it is the only one in its row: of the two signs of its own at most one hides it.

    Rows with infinities or NaN in A, or overflows in C, are looked at element by element.
    """

    escape = 2.0**-VECTORS

    def __init__(self, slabs: Slabs, found: Array, format: Format, random: np.random.Generator) -> None:
        self.slabs, self.format, self.found = slabs, format, found
        self.inner = self.parts = 0
        tops: list[Any] = [0.0, 0.0]
        wild: list[Any] = [np.False_, np.False_]
        for blocks in slabs():
            self.parts += 1
            self.inner += blocks[0].shape[-1]
            for number, (block, axis) in enumerate(zip(blocks, (-1, -2), strict=True)):
                largest = np.max(np.abs(block), axis, keepdims=True, initial=0)
                if not np.isfinite(largest).all():
                    wild[number] |= ~np.isfinite(largest)
                    largest = np.max(np.abs(block), axis, keepdims=True, initial=0, where=np.isfinite(block))
                tops[number] = np.maximum(tops[number], largest)
        self.scales = [np.maximum(np.frexp(top)[1], LEAST_EXPONENT) for top in tops]
        self.wild = wild
        self.wild_rows, self.wild_columns = wild
        overflowed = ~np.isfinite(found) & ~(wild[0] | wild[1])
        self.single_rows = overflowed.any(-1, keepdims=True) & ~self.wild_rows
        self.c = _scaled_back(found.astype(np.float64), self.scales[0] + self.scales[1])
        self.c[np.broadcast_to(self.wild_columns | self.wild_rows | self.single_rows, self.c.shape)] = 0
        self.signs = random.choice([-1.0, 1.0], (found.shape[-1], VECTORS))

    def scaled(self, a: Array, b: Array) -> tuple[Array, Array]:
        """A part of A and B in their scales, with zeros for the rows and columns that are looked at elsewhere."""
        blocks = [block * np.ldexp(1.0, -scale) for block, scale in zip((a, b), self.scales, strict=True)]
        blocks = [
            np.where(wild, 0, block) if wild.any() else block for block, wild in zip(blocks, self.wild, strict=True)
        ]
        return blocks[0], blocks[1]

    def compare(self) -> tuple[Array, Array]:
        """Differences by row and vector, and the bound of each row; in its scale times those of the columns."""
        *batch, rows, columns = self.c.shape
        sums = np.zeros((*batch, rows, VECTORS))
        magnitudes: Any = 0.0
        ones = np.ones((columns, 1))
        for a, b in self.slabs():
            a, b = self.scaled(a, b)
            sums += a @ (b @ self.signs)
            np.abs(a, out=a), np.abs(b, out=b)
            magnitudes = magnitudes + a @ (b @ ones)
        differences = np.abs(sums - self.c @ self.signs)
        bound = (self.gamma + _gamma(self.inner + 2 * columns + self.parts)) * magnitudes
        bound = bound + self.underflow().sum(-1, keepdims=True)
        return differences, np.broadcast_to(bound * UPWARDS, (*batch, rows, 1))

    @property
    def gamma(self) -> float:
        """How far an element may be off, as a share of the sum of the magnitudes of its terms."""
        return _gamma(self.format.gamma_terms(self.inner), 2.0**-self.format.precision)

    def underflow(self) -> Array:
        """How far an element, and the check, may be off where products underflow; in the scales of row and column."""
        halves = self.inner if self.format.precision == 53 else 1  # the products of others do not underflow in float64
        least = np.ldexp(float(max(1, halves)), self.format.least - 1 - (self.scales[0] + self.scales[1]))
        return np.asarray(least + UNDERFLOW * (self.inner + 1))

    def wrong(self) -> list[str]:
        """What is wrong, row by row."""
        differences, bound = self.compare()
        elsewhere = np.broadcast_to(self.wild_rows | self.single_rows, bound.shape)
        bad = ~(differences <= bound) & ~elsewhere
        lines = []
        for *place, vector in np.argwhere(bad)[:3].tolist():
            difference, most = differences[*place, vector], bound[*place, 0]
            lines.append(f"row {place} of the region: a sum with random signs is off by {difference:.3g} in its scale, "
                         f"expected {most:.3g} at most")  # fmt: skip
        # No sum of products is larger than this; what is, overflows above and hides in its own magnitude.
        for place in np.argwhere(~(np.abs(self.c) <= 2 * self.inner + 1))[:3].tolist():
            lines.append(f"element {place} of the region: expected a sum of {self.inner} products, got "
                         f"{self.found[*place]}")  # fmt: skip
        return lines + self._wrong_singly()

    def _wrong_singly(self) -> list[str]:
        """Elements with infinities or NaN among their factors, and rows in which a sum is too large for the format."""
        shape = self.found.shape
        rows = np.broadcast_to(self.wild_rows | self.single_rows, (*shape[:-1], 1))[..., 0]
        columns = np.broadcast_to(self.wild_columns, (*shape[:-2], 1, shape[-1]))[..., 0, :]
        lines: list[str] = []
        for batch in np.argwhere(rows.any(-1) | columns.any(-1)).tolist():
            for parts in ((np.flatnonzero(rows[*batch]), slice(None)), (slice(None), np.flatnonzero(columns[*batch]))):
                lines += self._wrong_part(tuple(batch), *parts)
        return lines

    def _wrong_part(self, batch: tuple[int, ...], rows: Any, columns: Any) -> list[str]:
        """Element by element: the class of those that are not finite, and others against a product in float64."""
        found = self.found[batch][rows][:, columns].astype(np.float64)
        if not found.size:
            return []
        product, magnitudes = np.zeros(found.shape), np.zeros(found.shape)
        terms = np.zeros((3, *found.shape))
        for blocks in self.slabs():
            a, b = of_batch(blocks[0], batch)[rows], of_batch(blocks[1], batch)[:, columns]
            terms += _directions(a, b)
            a, b = (of_batch(block, batch) for block in self.scaled(*blocks))
            a, b = a[rows], b[:, columns]
            product, magnitudes = product + a @ b, magnitudes + np.abs(a) @ np.abs(b)
        of_row, of_column = of_batch(self.scales[0], batch)[rows], of_batch(self.scales[1], batch)[:, columns]
        scales = of_row + of_column
        scaled = _scaled_back(found, scales)
        bound = (self.gamma + _gamma(self.inner + self.parts)) * magnitudes
        bound = (bound + of_batch(self.underflow(), batch)[rows][:, columns]) * UPWARDS
        largest = np.ldexp(1 - 2.0 ** -(self.format.precision + 1), self.format.top - scales)
        right = np.abs(scaled - product) <= bound
        right |= np.isinf(found) & (np.sign(found) * product + bound >= largest)
        plus, minus, undefined = np.asarray(terms > 0)
        undefined |= plus & minus
        right = np.where(undefined, np.isnan(found), right)
        right = np.where(~undefined & plus, found == np.inf, right)
        right = np.where(~undefined & minus, found == -np.inf, right)
        places = np.argwhere(~right)[:3]
        return [
            f"matrix {list(batch)} of the region, element {place} of those with infinities, NaN or overflows: got "
            f"{found[*place]}, which is not the sum of its products"
            for place in places.tolist()
        ]


def _gamma(count: int, unit: float = UNIT) -> float:
    """How far the sum of so many products may be off, as a share of the sum of their magnitudes; in any order."""
    return count * unit / (1 - count * unit)


def _scaled_back(values: Array, scales: Array) -> Array:
    """Numbers divided by powers of two, in two steps: neither overflows unless the result does."""
    half = scales // 2
    found: Array = values * np.ldexp(1.0, -half) * np.ldexp(1.0, half - scales)
    return found


def of_batch(block: Array, batch: Sequence[int]) -> Array:
    """The matrix of a stack that goes into a matrix of the product."""
    own = batch[len(batch) - (block.ndim - 2) :]
    found: Array = block[tuple(0 if length == 1 else index for index, length in zip(own, block.shape, strict=False))]
    return found


def _directions(a: Array, b: Array) -> Array:
    """Numbers of terms of each sum that are +inf, -inf and undefined; more than none is all that counts."""
    ones = np.float32
    up_a, down_a, up_b, down_b = ((x == inf).astype(ones) for x in (a, b) for inf in (np.inf, -np.inf))
    more_a, less_a = ((np.isfinite(a) & sign).astype(ones) for sign in (a > 0, a < 0))
    more_b, less_b = ((b > 0).astype(ones), (b < 0).astype(ones))
    plus = up_a @ more_b + down_a @ less_b + more_a @ up_b + less_a @ down_b
    minus = up_a @ less_b + down_a @ more_b + more_a @ down_b + less_a @ up_b
    zero_a, zero_b = (a == 0).astype(ones), (b == 0).astype(ones)
    undefined = (up_a + down_a) @ zero_b + zero_a @ (up_b + down_b)
    undefined += np.isnan(a).any(-1, keepdims=True)
    undefined += np.isnan(b).any(-2, keepdims=True)
    return np.stack((plus, minus, undefined))
