"""Freivalds' check: C r against A (B r) for random r; of integers modulo primes, of floats within a bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.formats import Format
from kernels.matmul.reference import Slabs, of_batch

# Integers are compared modulo primes. No difference, below 2**158, is a multiple of more than 13 of them, and a vector
# hides one that is not with a probability of 1 / (p - 1): a wrong row escapes all trials with less than 2**-20.
PRIMES = tuple(n for n in range(2**12, 2**13) if all(n % d for d in range(2, 91)))
TRIALS = 4
INTEGER_ESCAPE = (13 / len(PRIMES) + 1 / (PRIMES[0] - 1)) ** TRIALS

VECTORS = 20  # of random signs
UNIT = 2.0**-53
# Rows and columns are scaled by powers of two to magnitudes of 1/2 to 1, so that nothing overflows. Lines below this
# exponent are scaled as if they had it, so that scaling back the elements of C does not overflow either.
LEAST_EXPONENT = -500
# UNDERFLOW exceeds the sum of all underflows of the check; UPWARDS covers the rounding of the bound itself.
UNDERFLOW, UPWARDS = 2.0**-1000, 1 + 2.0**-20

HEIGHT = 256  # rows of a matrix at a time: temporaries stay in the cache

Array = NDArray[Any]


def wrong_integers(slabs: Slabs, product: Array, random: np.random.Generator) -> list[str]:
    """Rows whose sums with a random vector differ modulo a prime. All numbers are integers below 2**53, in float64."""
    primes = [int(prime) for prime in random.choice(PRIMES, TRIALS)]
    vectors = [np.asarray(random.integers(1, prime, (product.shape[-1], 1)), np.float64) for prime in primes]
    sums: list[Array] = [np.zeros((*product.shape[:-1], 1)) for _ in primes]
    for a, b in slabs():
        for number, prime in enumerate(primes):
            inner = _modulo(b, prime) @ vectors[number] % prime
            sums[number] = (sums[number] + _modulo(a, prime) @ inner) % prime
    wrong = []
    for prime, vector, expected in zip(primes, vectors, sums, strict=True):
        got = np.asarray(_modulo(product, prime) @ vector % prime)
        for place in map(tuple, np.argwhere(~(got == expected))[:3].tolist()):
            wrong.append(f"row {place[:-1]}: expected {expected[place]:.0f} modulo {prime}, got {got[place]:.0f}")
    return wrong


def _modulo(values: Array, prime: int) -> Array:
    return np.remainder(values, values.dtype.type(prime) if values.dtype.itemsize > 1 else np.int64(prime)).astype(
        np.float64
    )


class FloatCheck:
    """Checks a stack of products C of factors A and B, which `slabs` reads part by part.

    A row of C, without the columns where B has infinities or NaN, is compared with that of A B by its sums with random
    signs r. Every element of a right result is within gamma(K) of the sum of the magnitudes of its K terms, with the
    unit of its format, and within K halves of the least number where products underflow. So the sums over a right row
    of N elements, computed here in float64, differ by no more than

        (gamma(K) + gamma(K + 2 N + parts)) |A| (|B| |r|)  +  K N halves of the least number,

    which in float64 is 2 gamma |A| (|B| |r|) with the gamma of K + N + parts.
    So an element that is wrong by more than twice that escapes with a probability of at most 1/2 for each vector,
    whatever else is wrong, because at most one of its two signs hides it; the only wrong one in a row never escapes.

    Rows with infinities or NaN in A, or overflows in C, are checked element by element.
    """

    escape = 2.0**-VECTORS

    def __init__(self, slabs: Slabs, product: Array, format: Format, random: np.random.Generator) -> None:
        self.slabs, self.format, self.product = slabs, format, product
        self.inner = self.parts = 0
        tops: list[Any] = [0.0, 0.0]
        nonfinite: list[Any] = [np.False_, np.False_]
        for blocks in slabs():
            self.parts += 1
            self.inner += blocks[0].shape[-1]
            for number, (block, axis) in enumerate(zip(blocks, (-1, -2), strict=True)):
                most, least = block.max(axis, keepdims=True, initial=0), block.min(axis, keepdims=True, initial=0)
                largest = np.maximum(most, -least)
                finite = np.isfinite(largest)
                nonfinite[number] = nonfinite[number] | ~finite
                if not finite.all():
                    largest = np.max(np.abs(block), axis, keepdims=True, initial=0, where=np.isfinite(block))
                tops[number] = np.maximum(tops[number], largest)
        self.scales = [np.maximum(np.frexp(top)[1], LEAST_EXPONENT) for top in tops]
        self.nonfinite = nonfinite
        self.nonfinite_rows, self.nonfinite_columns = nonfinite
        overflowed = ~np.isfinite(product)
        if overflowed.any():
            overflowed &= ~(nonfinite[0] | nonfinite[1])
        self.single_rows = overflowed.any(-1, keepdims=True) & ~self.nonfinite_rows
        self.largest = np.zeros((*product.shape[:-1], 1))  # magnitudes in the rows of C that are compared
        self.signs = random.choice([-1.0, 1.0], (product.shape[-1], VECTORS))

    def scaled(self, a: Array, b: Array) -> tuple[Array, Array]:
        """A part of A and B, scaled, with zeros for the rows and columns that are checked element by element."""
        blocks = [block * np.ldexp(1.0, -scale) for block, scale in zip((a, b), self.scales, strict=True)]
        blocks = [
            np.where(nonfinite, 0, block) if nonfinite.any() else block
            for block, nonfinite in zip(blocks, self.nonfinite, strict=True)
        ]
        return blocks[0], blocks[1]

    def compare(self) -> tuple[Array, Array]:
        """Differences by row and vector, and the bound of each row; in the scales of the row and the columns."""
        *batch, rows, columns = self.product.shape
        sums, magnitudes = np.zeros((*batch, rows, VECTORS)), np.zeros((*batch, rows, 1))
        for a, b in self.slabs():
            b = self._in_scale(1, b, (...,))
            of_signs, of_ones = b @ self.signs, np.abs(b) @ np.ones((columns, 1))
            for part in _tiles(batch, rows):
                tile = self._in_scale(0, a[part], part)
                sums[part] += tile @ of_signs
                magnitudes[part] += np.abs(tile, out=tile) @ of_ones
        for part in _tiles(batch, rows):
            tile = self._product_in_scale(part)
            sums[part] -= tile @ self.signs
            self.largest[part] = np.maximum(
                tile.max(-1, keepdims=True, initial=0), -tile.min(-1, keepdims=True, initial=0)
            )
        bound = (self.gamma + _gamma(self.inner + 2 * columns + self.parts)) * magnitudes
        # `underflow`, added up along a row.
        halves = self._halves() * np.ldexp(1.0, -self.scales[1]).sum(-1, keepdims=True)
        bound += np.ldexp(halves, self.format.least - 1 - self.scales[0]) + columns * UNDERFLOW * (self.inner + 1)
        return np.abs(sums, out=sums), bound * UPWARDS

    def _in_scale(self, number: int, block: Array, part: tuple[Any, ...]) -> Array:
        """Rows of A, or B, scaled, with zeros for those that are checked element by element."""
        scaled: Array = np.multiply(block, np.ldexp(1.0, -self.scales[number][part]), dtype=np.float64)
        nonfinite = self.nonfinite[number][part]
        return np.where(nonfinite, 0, scaled) if nonfinite.any() else scaled

    def _product_in_scale(self, part: tuple[Any, ...]) -> Array:
        """Rows of C, likewise."""
        product, scales = self.product[part], (self.scales[0][part], self.scales[1])
        if self.format.precision < 53:  # neither step overflows or underflows
            scaled = np.multiply(product, np.ldexp(1.0, -scales[0]), dtype=np.float64)
            scaled *= np.ldexp(1.0, -scales[1])
        else:
            scaled = _scaled_back(product, scales[0] + scales[1])
        elsewhere = self.nonfinite_rows[part] | self.single_rows[part] | self.nonfinite_columns
        return np.where(elsewhere, 0, scaled) if elsewhere.any() else scaled

    @property
    def gamma(self) -> float:
        """Bound on the error of an element, as a share of the sum of the magnitudes of its terms."""
        return _gamma(self.format.gamma_terms(self.inner), 2.0**-self.format.precision)

    def underflow(self) -> Array:
        """Bound on the error of an element, and of the check, where products underflow; in the scales of both lines."""
        least = np.ldexp(self._halves(), self.format.least - 1 - (self.scales[0] + self.scales[1]))
        return np.asarray(least + UNDERFLOW * (self.inner + 1))

    def _halves(self) -> float:
        """Halves of the least number that an element may be off by; only products of float64 underflow."""
        return float(max(1, self.inner)) if self.format.precision == 53 else 1.0

    def wrong(self) -> list[str]:
        """Errors, row by row."""
        differences, bound = self.compare()
        elsewhere = np.broadcast_to(self.nonfinite_rows | self.single_rows, bound.shape)
        bad = ~(differences <= bound) & ~elsewhere
        lines = []
        for *place, vector in np.argwhere(bad)[:3].tolist():
            difference, most = differences[*place, vector], bound[*place, 0]
            lines.append(f"row {place} of the region: a sum with random signs is off by {difference:.3g} in its scale, "
                         f"expected {most:.3g} at most")  # fmt: skip
        # No sum of products is larger than this; a larger one may have overflowed above.
        for place in np.argwhere(~(self.largest[..., 0] <= 2 * self.inner + 1))[:3].tolist():
            lines.append(f"row {place} of the region: expected sums of {self.inner} products, got one of "
                         f"{self.largest[*place, 0]:.3g} in its scale")  # fmt: skip
        return lines + self._wrong_singly()

    def _wrong_singly(self) -> list[str]:
        """Errors in elements with infinities or NaN among their factors, and in rows with overflows."""
        shape = self.product.shape
        rows = np.broadcast_to(self.nonfinite_rows | self.single_rows, (*shape[:-1], 1))[..., 0]
        columns = np.broadcast_to(self.nonfinite_columns, (*shape[:-2], 1, shape[-1]))[..., 0, :]
        lines: list[str] = []
        for batch in np.argwhere(rows.any(-1) | columns.any(-1)).tolist():
            for parts in ((np.flatnonzero(rows[*batch]), slice(None)), (slice(None), np.flatnonzero(columns[*batch]))):
                lines += self._wrong_part(tuple(batch), *parts)
        return lines

    def _wrong_part(self, batch: tuple[int, ...], rows: Any, columns: Any) -> list[str]:
        """Element by element: infinities and NaN by their kind, others against a product in float64."""
        got = self.product[batch][rows][:, columns].astype(np.float64)
        if not got.size:
            return []
        product, magnitudes = np.zeros(got.shape), np.zeros(got.shape)
        terms = np.zeros((3, *got.shape))
        for blocks in self.slabs():
            a, b = of_batch(blocks[0], batch)[rows], of_batch(blocks[1], batch)[:, columns]
            terms += _directions(a, b)
            a, b = (of_batch(block, batch) for block in self.scaled(*blocks))
            a, b = a[rows], b[:, columns]
            product, magnitudes = product + a @ b, magnitudes + np.abs(a) @ np.abs(b)
        of_row, of_column = of_batch(self.scales[0], batch)[rows], of_batch(self.scales[1], batch)[:, columns]
        scales = of_row + of_column
        scaled = _scaled_back(got, scales)
        bound = (self.gamma + _gamma(self.inner + self.parts)) * magnitudes
        bound = (bound + of_batch(self.underflow(), batch)[rows][:, columns]) * UPWARDS
        largest = np.ldexp(1 - 2.0 ** -(self.format.precision + 1), self.format.top - scales)
        right = np.abs(scaled - product) <= bound
        right |= np.isinf(got) & (np.sign(got) * product + bound >= largest)
        plus, minus, undefined = np.asarray(terms > 0)
        undefined |= plus & minus
        right = np.where(undefined, np.isnan(got), right)
        right = np.where(~undefined & plus, got == np.inf, right)
        right = np.where(~undefined & minus, got == -np.inf, right)
        places = np.argwhere(~right)[:3]
        return [
            f"matrix {list(batch)} of the region, element {place} of those with infinities, NaN or overflows: got "
            f"{got[*place]}, which is not the sum of its products"
            for place in places.tolist()
        ]


def _gamma(count: int, unit: float = UNIT) -> float:
    """Bound on the error of a sum of so many products in any order, as a share of the sum of their magnitudes."""
    return count * unit / (1 - count * unit)


def _tiles(batch: Sequence[int], rows: int) -> Iterator[tuple[Any, ...]]:
    """Some rows of a matrix at a time; stacks as they are."""
    if batch:
        yield (...,)
        return
    for start in range(0, rows, HEIGHT):
        yield (slice(start, start + HEIGHT),)


def _scaled_back(values: Array, scales: Array) -> Array:
    """Numbers divided by powers of two, in two steps that overflow only if the result does."""
    half = scales // 2
    scaled: Array = values * np.ldexp(1.0, -half) * np.ldexp(1.0, half - scales)
    return scaled


def _directions(a: Array, b: Array) -> Array:
    """Whether each sum has terms that are +inf, -inf or undefined: positive numbers if it has."""
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
