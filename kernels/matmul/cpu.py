"""Exact matrix products on the CPU: integers split into pieces whose products float64 adds up without rounding."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.certificate import Certificate
from kernels.matmul.cpu_dots import DotProducts
from kernels.matmul.formats import FORMATS, Format, bits_of
from kernels.matmul.rounding import WORDS, to_float, to_integer

ROWS = 256  # of A and of the product at a time: temporaries stay in the cache
PIECE = 19  # bits of a piece: at most 2**18 in magnitude
# Products at a time. All partial sums of 4 * 2**11 products of pieces are below 2**53: BLAS may add in any order.
INNER = 2**11

Array = NDArray[Any]


class Scales:
    """Scales of rows of A and columns of B, from the largest magnitude of each over all parts."""

    def __init__(self) -> None:
        self.largest: list[Array] = []  # finite magnitudes in rows of A, in columns of B
        self.exponents: list[Array] = []  # the least powers of two above these
        self.nonfinite: list[Array] = []  # whether they have infinities or NaN

    def measure(self, a: Array, b: Array) -> None:
        """Take the next part into account: columns of A and rows of B."""
        largest, nonfinite = map(list, zip(_largest(a, -1), _largest(b, -2), strict=True))
        self.largest = list(map(np.maximum, self.largest, largest)) if self.largest else largest
        self.nonfinite = list(map(np.logical_or, self.nonfinite, nonfinite)) if self.nonfinite else nonfinite
        self.exponents = [np.frexp(of.astype(np.float64))[1].astype(np.int64) for of in self.largest]


class CpuProduct(Scales):
    """The product of two stacks of matrices that come in parts: columns of A and rows of B.

    Parameters
    ----------
    dtypes
        Of both factors: integers, or one float dtype.
    result
        Of the product: int64 or int32 for integers, else that of the factors.
    """

    def __init__(self, dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any]) -> None:
        super().__init__()
        self.result = result
        self.format: Format | None = FORMATS.get(result.name)
        self.counts = tuple(-(-(bits_of(dtype) + 1) // PIECE) for dtype in dtypes)
        self.sums: list[Array] = []  # of products, in units of 1, 2**PIECE, 4**PIECE …
        self.terms: list[Array] = []  # number of infinite terms, sum of their signs, number of NaN
        self.certificate = Certificate(self.format) if self.format else None
        self.dots: DotProducts | None = None
        self.uncertain = 0

    @property
    def scaled(self) -> bool:
        """Whether all parts have to be measured before one is added."""
        return self.format is not None

    def measure(self, a: Array, b: Array) -> None:
        """Take the next part into account; integers have no scales."""
        if self.format:
            super().measure(a.astype(self.result, copy=False), b.astype(self.result, copy=False))

    def add(self, a: Array, b: Array) -> None:
        """Add the products of the next part; all parts have been measured."""
        if self.format:
            a, b = a.astype(self.result, copy=False), b.astype(self.result, copy=False)
        for first in range(0, max(1, a.shape[-1]), INNER):
            self._add(a[..., first : first + INNER], b[..., first : first + INNER, :])

    def _add(self, a: Array, b: Array) -> None:
        if self.format:
            if any(nonfinite.any() for nonfinite in self.nonfinite):
                terms = _nonfinite_terms(a, b)
                self.terms = [old + new for old, new in zip(self.terms, terms, strict=True)] if self.terms else terms
            rounded = [self._rounded(*pair) for pair in zip((a, b), self.exponents, strict=True)]
            assert self.certificate
            self.certificate.add((a, b), rounded, self.exponents)
            a, b = rounded
        count_a, count_b = self.counts
        # Pieces of A side by side in ascending order, those of B in descending order: one product of matrices adds up
        # all products of pieces that belong to the same power of two.
        downwards = np.concatenate(_pieces(b, count_b)[::-1], axis=-2)
        inner, places = a.shape[-1], count_a + count_b - 1
        if not self.sums:
            outer = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            self.sums = [np.zeros((*outer, a.shape[-2], b.shape[-1]), np.int64) for _ in range(places)]
        for rows in tiles(self.sums[0].shape, ROWS):
            upwards = np.concatenate(_pieces(a[rows], count_a), axis=-1)
            sums = [of_place[rows] for of_place in self.sums]
            for place, of_place in enumerate(sums):
                first, last = max(0, place - count_b + 1), min(place, count_a - 1)
                of_a = slice(first * inner, (last + 1) * inner)
                beginning = (count_b - 1 - place + first) * inner
                of_b = slice(beginning, beginning + of_a.stop - of_a.start)
                of_place += np.matmul(upwards[..., of_a], downwards[..., of_b, :]).astype(np.int64)
            _carry(sums)

    def _rounded(self, values: Array, exponents: Array) -> Array:
        """Numbers times a power of two, rounded to integers, ties to even; zero for infinities and NaN."""
        assert self.format
        shifts = self.format.kept - exponents
        # In two steps, because the power may overflow float64; numbers that underflow on the way vanish anyhow.
        half = shifts // 2
        scaled = values.astype(np.float64)
        scaled *= np.ldexp(1.0, half)
        scaled *= np.ldexp(1.0, shifts - half)
        if not np.isfinite(scaled).all():
            scaled[~np.isfinite(scaled)] = 0
        return np.rint(scaled, out=scaled)

    def finish(self) -> Array:
        """The product, rounded once; `recompute` changes its uncertain elements in place.

        Raises
        ------
        OverflowError
            If an integer does not fit.
        """
        shape = self.sums[0].shape
        self.product, uncertain = np.empty(shape, self.result), np.zeros(shape, np.bool_)
        for rows in tiles(shape, ROWS):
            words = _words([sums[rows] for sums in self.sums])
            if self.format is None:
                self.product[rows] = to_integer(words, self.result)
            else:
                self.product[rows], uncertain[rows] = self._finished(words, rows)
        self.sums = []
        self.uncertain = int(np.count_nonzero(uncertain))
        self._defer(uncertain, False)
        return self.product

    def _finished(self, words: list[Array], rows: tuple[Any, ...]) -> tuple[Array, Array]:
        """Rows of a product of floats, and which of their elements are uncertain."""
        assert self.format and self.certificate
        product = to_float(words, self.exponents[0][rows] + self.exponents[1] - 2 * self.format.kept, self.format)
        nonfinite = np.broadcast_to(self.nonfinite[0][rows] | self.nonfinite[1], product.shape)
        if self.terms:
            infinite, signs, undefined = (of[rows] for of in self.terms)
            sums = np.where((undefined > 0) | (np.abs(signs) < infinite), np.nan, np.copysign(np.inf, signs))
            product[nonfinite] = sums[nonfinite].astype(product.dtype)
        return product, ~(self.certificate.certain(rows) | nonfinite)

    def _defer(self, which: Array, scaled: bool) -> None:
        """Have elements computed term by term, once all parts are seen again."""
        self.dots = DotProducts(which, self.exponents if scaled else None) if which.any() else None

    def needs_recompute(self) -> bool:
        """Whether `recompute` has to see every part (again) before the product is final."""
        return self.dots is not None

    def recompute(self, a: Array, b: Array) -> None:
        """Compute the uncertain elements term by term: the next part, from the first one on."""
        assert self.dots and self.certificate
        self.dots.add(a, b)
        if self.dots.inner < self.certificate.inner:
            return
        # Sums that overflowed on the way are computed once more, scaled so that they cannot.
        finite = np.isfinite(self.dots.sums)
        np.copyto(self.product, self.dots.rounded(self.result), where=self.dots.which & finite)
        self._defer(self.dots.which & ~finite, True)


def tiles(shape: tuple[int, ...], height: int) -> Iterator[tuple[Any, ...]]:
    """Some rows of a matrix at a time; stacks as they are."""
    if len(shape) > 2:
        yield (...,)
        return
    for start in range(0, shape[0], height):
        yield (slice(start, start + height),)


def _largest(values: Array, axis: int) -> tuple[Array, Array]:
    """The largest finite magnitude along an axis, and whether there are infinities or NaN."""
    # Two passes, but no copy of all magnitudes.
    most, least = values.max(axis, keepdims=True, initial=0), values.min(axis, keepdims=True, initial=0)
    largest = np.maximum(most, -least)
    nonfinite = ~np.isfinite(largest)
    if nonfinite.any():
        largest = np.abs(values).max(axis, keepdims=True, initial=0, where=np.isfinite(values))
    return largest, nonfinite


def _nonfinite_terms(a: Array, b: Array) -> list[Array]:
    """`CpuProduct.terms` of each sum, counted by products of matrices of zeros and ones."""
    inf_a, inf_b = np.isinf(a).astype(np.float64), np.isinf(b).astype(np.float64)
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    zero_a, zero_b = (a == 0).astype(np.float64), (b == 0).astype(np.float64)
    sign_a, sign_b = np.where(nan_a, 0, np.sign(a)), np.where(nan_b, 0, np.sign(b))
    infinite = inf_a @ np.abs(sign_b) + np.abs(sign_a) @ inf_b - inf_a @ inf_b
    signs = (inf_a * sign_a) @ sign_b + sign_a @ (inf_b * sign_b) - (inf_a * sign_a) @ (inf_b * sign_b)
    some_nan = nan_a.any(-1, keepdims=True) | nan_b.any(-2, keepdims=True)
    return [infinite, signs, inf_a @ zero_b + zero_a @ inf_b + some_nan]


def _pieces(values: Array, count: int) -> list[Array]:
    """Integers as float64 arrays of PIECE bits each, the lowest first, each piece rounded to nearest."""
    pieces: list[Array] = []
    if values.dtype.kind == "f":
        for place in range(count - 1, 0, -1):
            pieces.append(np.rint(values * 2.0 ** (-PIECE * place)))
            values = values - pieces[-1] * 2.0 ** (PIECE * place)
        return [values, *pieces[::-1]]
    if values.dtype != np.uint64:
        values = values.astype(np.int64)
    for _ in range(count - 1):
        low = (values & values.dtype.type(2**PIECE - 1)).astype(np.int64)
        upper = low >> (PIECE - 1)
        pieces.append((low - (upper << PIECE)).astype(np.float64))
        values = (values >> values.dtype.type(PIECE)).astype(np.int64) + upper
    return [*pieces, values.astype(np.float64)]


def _carry(sums: list[Array]) -> None:
    """Propagate carries: all sums but the last become non-negative and less than 2**PIECE."""
    for lower, upper in pairwise(sums):
        upper += lower >> PIECE
        lower &= 2**PIECE - 1


def _words(sums: list[Array]) -> list[Array]:
    """Sums as integers in two's complement: 64-bit words, the lowest first."""
    words = [np.zeros(sums[0].shape, np.uint64) for _ in range(WORDS)]
    for number, digits in enumerate(sums):
        word, shift = divmod(PIECE * number, 64)
        last = number == len(sums) - 1
        words[word] |= digits.view(np.uint64) << np.uint64(shift)
        if shift and word + 1 < WORDS:
            words[word + 1] |= (digits >> (64 - shift)).view(np.uint64)
        if last:
            for above in words[word + (2 if shift else 1) :]:
                above |= (digits >> 63).view(np.uint64)
    return words
