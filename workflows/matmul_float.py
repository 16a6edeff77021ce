"""Freivalds' check of products of floats: every row within a bound that holds for any right result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.formats import Format

VECTORS = 20  # of random signs
UNIT = 2.0**-53
# Rows and columns are scaled by powers of two to magnitudes of 1/2 to 1, so that nothing overflows here. Smaller ones
# than this one stay smaller, so that neither does what is above their products.
LEAST_EXPONENT = -500
# Above what all underflows in here add up to; and what rounding the bound itself takes away.
UNDERFLOW, UPWARDS = 2.0**-1000, 1 + 2.0**-20

HEIGHT = 256  # rows of a matrix at a time: what is made of them stays in the cache

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
                most, least = block.max(axis, keepdims=True, initial=0), block.min(axis, keepdims=True, initial=0)
                largest = np.maximum(most, -least)
                finite = np.isfinite(largest)
                wild[number] = wild[number] | ~finite
                if not finite.all():
                    largest = np.max(np.abs(block), axis, keepdims=True, initial=0, where=np.isfinite(block))
                tops[number] = np.maximum(tops[number], largest)
        self.scales = [np.maximum(np.frexp(top)[1], LEAST_EXPONENT) for top in tops]
        self.wild = wild
        self.wild_rows, self.wild_columns = wild
        beyond = ~np.isfinite(found)
        overflowed = beyond & ~(wild[0] | wild[1]) if beyond.any() else beyond
        self.single_rows = overflowed.any(-1, keepdims=True) & ~self.wild_rows
        self.largest = np.zeros((*found.shape[:-1], 1))  # magnitudes in the rows of C that were compared
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
        *batch, rows, columns = self.found.shape
        sums, magnitudes = np.zeros((*batch, rows, VECTORS)), np.zeros((*batch, rows, 1))
        for a, b in self.slabs():
            b = self._in_scale(1, b, (...,))
            of_signs, of_ones = b @ self.signs, np.abs(b) @ np.ones((columns, 1))
            for part in _tiles(batch, rows):
                tile = self._in_scale(0, a[part], part)
                sums[part] += tile @ of_signs
                magnitudes[part] += np.abs(tile, out=tile) @ of_ones
        for part in _tiles(batch, rows):
            tile = self._found_in_scale(part)
            sums[part] -= tile @ self.signs
            self.largest[part] = np.maximum(
                tile.max(-1, keepdims=True, initial=0), -tile.min(-1, keepdims=True, initial=0)
            )
        bound = (self.gamma + _gamma(self.inner + 2 * columns + self.parts)) * magnitudes
        # As `underflow` has it, added up along a row.
        halves = self._halves() * np.ldexp(1.0, -self.scales[1]).sum(-1, keepdims=True)
        bound += np.ldexp(halves, self.format.least - 1 - self.scales[0]) + columns * UNDERFLOW * (self.inner + 1)
        return np.abs(sums, out=sums), bound * UPWARDS

    def _in_scale(self, number: int, block: Array, part: tuple[Any, ...]) -> Array:
        """Rows of A, or B, in their scale, with zeros for what is looked at elsewhere."""
        scaled: Array = np.multiply(block, np.ldexp(1.0, -self.scales[number][part]), dtype=np.float64)
        wild = self.wild[number][part]
        return np.where(wild, 0, scaled) if wild.any() else scaled

    def _found_in_scale(self, part: tuple[Any, ...]) -> Array:
        """The same of rows of C."""
        found, scales = self.found[part], (self.scales[0][part], self.scales[1])
        if self.format.precision < 53:  # neither step over- or underflows
            scaled = np.multiply(found, np.ldexp(1.0, -scales[0]), dtype=np.float64)
            scaled *= np.ldexp(1.0, -scales[1])
        else:
            scaled = _scaled_back(found, scales[0] + scales[1])
        elsewhere = self.wild_rows[part] | self.single_rows[part] | self.wild_columns
        return np.where(elsewhere, 0, scaled) if elsewhere.any() else scaled

    @property
    def gamma(self) -> float:
        """How far an element may be off, as a share of the sum of the magnitudes of its terms."""
        return _gamma(self.format.gamma_terms(self.inner), 2.0**-self.format.precision)

    def underflow(self) -> Array:
        """How far an element, and the check, may be off where products underflow; in the scales of row and column."""
        least = np.ldexp(self._halves(), self.format.least - 1 - (self.scales[0] + self.scales[1]))
        return np.asarray(least + UNDERFLOW * (self.inner + 1))

    def _halves(self) -> float:
        """Of the least number: by how many of them an element may be off. Products of others than float64 do not
        underflow."""
        return float(max(1, self.inner)) if self.format.precision == 53 else 1.0

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
        for place in np.argwhere(~(self.largest[..., 0] <= 2 * self.inner + 1))[:3].tolist():
            lines.append(f"row {place} of the region: expected sums of {self.inner} products, got one of "
                         f"{self.largest[*place, 0]:.3g} in its scale")  # fmt: skip
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


def _tiles(batch: Sequence[int], rows: int) -> Iterator[tuple[Any, ...]]:
    """Some rows of a matrix at a time; stacks as they are."""
    if batch:
        yield (...,)
        return
    for start in range(0, rows, HEIGHT):
        yield (slice(start, start + HEIGHT),)


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
