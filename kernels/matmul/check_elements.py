"""Checks elements of a product of floats one by one: against the exact product, the definition, or a wider bound."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from kernels.common.row_tiles import on_tiles, tiles
from kernels.matmul.check_exactly import DefinedCheck
from kernels.matmul.check_limits import LOOSE, SMALL, is_loose, share_of
from kernels.matmul.check_lines import (
    INNER,
    UNDERFLOW,
    UPWARDS,
    Array,
    Batch,
    Lines,
    add_product,
    directions,
    gamma_of,
    row_tiles,
    scaled_back,
    sizes_of,
    squares_of,
)
from kernels.matmul.factors import Factors
from kernels.matmul.formats import Format

HELD = 2**24  # elements that are examined at a time
COPIES = 4  # of each of them, beyond those of an element of the factors


class ElementCheck(DefinedCheck):
    """Checks elements of a stack of products one by one.

    Attributes
    ----------
    undetected
        Errors up to this were not looked for: in units of the root mean square of the finite elements of a row.
    """

    def __init__(
        self, factors: Factors, shape: tuple[int, ...], format: Format, columns: Lines | None = None,
        library: ctypes.CDLL | None = None,
    ) -> None:  # fmt: skip
        super().__init__(factors, shape, format, columns, library)
        self.undetected = 0.0
        self._held = factors.within(HELD, COPIES)
        self.chunks = sum(-(-(part.stop - part.start) // INNER) for part in factors.slices)

    def wrong_singly(self) -> list[str]:
        """Errors, element by element, some rows at a time."""
        rows = self.product.shape[-2]
        step = max(1, self._held * rows // max(1, self.product.size))
        lines: list[str] = []
        for start in range(0, rows, step):
            lines += self.wrong_block(None, slice(start, min(start + step, rows)), slice(None))
        return lines

    def wrong_block(self, batch: Batch, rows: Any, columns: Any) -> list[str]:
        """Errors in some rows and columns, element by element."""
        dtype: Any = np.float64
        if self.format.dtype == "float16":  # its numbers are exact in float32, for which BLAS takes half the time
            dtype = np.float32
        shape = self.columns.some(self.rows.some(self.product, batch, rows), None, columns).shape
        product, norms = np.zeros(shape, dtype), [np.zeros(1), np.zeros(1)]
        parts = row_tiles(shape[:-2], shape[-2])
        for a, b in self.factors.slabs():
            a = self.rows.rounded(a, batch, rows).astype(dtype, copy=False)
            b = self.columns.rounded(b, batch, columns).astype(dtype, copy=False)
            norms = [norms[0] + squares_of(a, -1), norms[1] + squares_of(b, -2)]

            def add(part: slice, a: Array = a, b: Array = b) -> None:
                add_product(product[..., part, :], a[..., part, :], b)

            on_tiles(add, parts)
        of_rows, of_columns = map(np.sqrt, norms)
        places = np.arange(self.product.shape[-2])[rows]

        def examine(part: slice, close: bool = False) -> tuple[Array, Array, Array]:
            lines = batch, places[part], columns
            return self._compare_tile(product[..., part, :], of_rows[..., part, :], of_columns, lines, close)

        lines = []
        for part, (bound, sizes, wrong) in zip(parts, on_tiles(examine, parts), strict=True):
            if wrong.any():
                with np.errstate(all="ignore"):
                    bound, sizes, wrong = examine(part, close=True)
            if wrong.any():
                lines += self.wrong_exactly(self._places(wrong, batch, places[part], columns))
                bound = np.where(wrong, 0, bound)  # those are right to the last bit, or noted already
            self._note(2 * bound, sizes)
        return lines

    def _compare_tile(
        self, product: Array, of_rows: Array, of_columns: Array, lines: tuple[Batch, Any, Any], close: bool
    ) -> tuple[Array, Array, Array]:
        """Compare a tile with its exact product but for the check's own rounding.

        Parameters
        ----------
        product
        of_rows, of_columns
            Norms of its rows and columns.
        lines
            Which tile.
        close
            Bound the check's own rounding by the magnitudes of all terms, where norms are of no use; otherwise all
            elements of such rows count as wrong.

        Returns
        -------
        bound
        sizes
            Root mean squares of rows.
        wrong
            Elements that are off by more than a rounding: wrong or uncertain. And those so small that they could be so.
        """
        got = self.scaled_product(*lines)
        whole = isinstance(lines[2], slice)
        sizes = sizes_of(got, self.columns.scales) if whole else self.row_sizes(*lines[:2])
        gamma = gamma_of(INNER + self.chunks + 1, 2.0**-53 if product.dtype == np.float64 else 2.0**-24)
        own = gamma * (of_rows * of_columns)
        loose = is_loose(own, sizes, LOOSE[self.format.dtype])
        if close and loose.any():
            own = np.where(loose, gamma * self._magnitudes(*lines), own)
        own += np.ldexp(np.ldexp(1.0, self.format.least - 1 - self.rows.some(self.rows.scales, *lines[:2])),
                        -self.columns.some(self.columns.scales, lines[0], lines[2]))  # fmt: skip
        own += UNDERFLOW * (self.inner + 1)
        off = np.abs(product - got)
        magnitudes = np.abs(got, out=got)
        bound = magnitudes * 2.0**-self.format.precision
        bound += own
        bound *= UPWARDS
        # Where rounding of the factors has moved an element too far, it is another one.
        small = magnitudes <= SMALL * (own + self.moved(of_rows, of_columns))
        right = (off <= bound) & (off < np.inf)  # scaling may overflow
        right &= ~(self._without_terms(small, lines) if close else small | loose)
        return bound, sizes, ~(right | self.elsewhere(*lines))

    def _magnitudes(self, batch: Batch, rows: Any, columns: Any) -> Array:
        """Sums of the magnitudes of all products, of rounded numbers."""
        total: Any = 0.0
        for a, b in self.factors.slabs():
            total = total + np.abs(self.rows.rounded(a, batch, rows)) @ np.abs(self.columns.rounded(b, batch, columns))
        return np.asarray(total)

    def wrong_elsewhere(self) -> list[str]:
        """Errors in rows and columns with infinities or NaN, and in rows with overflows."""
        shape = self.product.shape
        rows = np.broadcast_to(self.rows.nonfinite | self.overflowed_rows, (*shape[:-1], 1))[..., 0]
        columns = np.broadcast_to(self.columns.nonfinite, (*shape[:-2], 1, shape[-1]))[..., 0, :]
        lines: list[str] = []
        for batch in np.argwhere(rows.any(-1) | columns.any(-1)).tolist():
            for parts in ((np.flatnonzero(rows[*batch]), slice(None)), (slice(None), np.flatnonzero(columns[*batch]))):
                lines += self._wrong_conventionally(tuple(batch), *parts)
        return lines

    def _wrong_conventionally(self, batch: Batch, rows: Any, columns: Any) -> list[str]:
        """Errors beyond the bound of a conventional dot product; infinities and NaN are compared by their kind."""
        places = np.arange(self.product.shape[-2])[rows]
        length = len(np.arange(self.product.shape[-1])[columns])
        if not length:  # all of A would be read for nothing
            return []
        return [
            line
            for part in tiles(len(places), max(1, self._held // length))
            for line in self._wrong_rows_conventionally(batch, places[part], columns)
        ]

    def _wrong_rows_conventionally(self, batch: Batch, rows: Array, columns: Any) -> list[str]:
        got = self.columns.some(self.rows.some(self.product, batch, rows), None, columns)
        nonfinite = (of.some(of.nonfinite, batch, which) for of, which in ((self.rows, rows), (self.columns, columns)))
        special = any(lines.any() for lines in nonfinite)
        product, magnitudes = np.zeros(got.shape), np.zeros(got.shape)
        terms = np.zeros((3, *got.shape)) if special else None
        parts = row_tiles(got.shape[:-2], len(rows))
        for a, b in self.factors.slabs():
            scaled = self.columns.scaled(b, batch, columns)
            sizes = np.abs(scaled)

            def add(part: slice, a: Array = a, b: Array = b, scaled: Array = scaled, sizes: Array = sizes) -> None:
                tile = self.rows.scaled(a, batch, rows[part])
                product[..., part, :] += tile @ scaled
                magnitudes[..., part, :] += np.abs(tile) @ sizes
                if terms is not None:
                    some = self.rows.some(a, batch, rows[part]), self.columns.some(b, batch, columns)
                    terms[..., part, :] += directions(*some)

            on_tiles(add, parts)

        def compare(part: slice) -> tuple[float, Array, Array]:
            of_tile = (None if each is None else each[..., part, :] for each in (got, product, magnitudes, terms))
            errors, sizes, bad, open = self._compare_conventionally(batch, rows[part], columns, *of_tile)
            bad_places, open_places = (self._places(which, batch, rows[part], columns) for which in (bad, open))
            return share_of(errors, sizes), bad_places, open_places

        shares, wrong, unsure = zip(*on_tiles(compare, parts), strict=True)
        self.undetected = max(self.undetected, *shares)
        lines = [
            f"element {place} of the region: got {self.product[*place]}, which is not the sum of its products"
            for place in np.concatenate(wrong)[:3].tolist()
        ]
        return lines or self.wrong_exactly(np.concatenate(unsure), bounded=True)

    def _compare_conventionally(
        self, batch: Batch, rows: Array, columns: Any, got: Any, product: Any, magnitudes: Any, terms: Any
    ) -> tuple[Array, Array, Array, Array]:
        """Errors that may pass in a tile, root mean squares of its rows, which elements are wrong, and which of the
        others are so small, or large, that these errors could hide what they are."""
        got = got.astype(np.float64)
        scales = self.rows.some(self.rows.scales, batch, rows) + self.columns.some(self.columns.scales, batch, columns)
        bound = (self.conventional + gamma_of(self.inner + self.chunks)) * magnitudes
        bound += np.ldexp(self.halves, self.format.least - 1 - scales) + UNDERFLOW * (self.inner + 1)
        bound *= UPWARDS
        largest = np.ldexp(1 - 2.0 ** -(self.format.precision + 1), self.format.top - scales)
        scaled = scaled_back(got, scales)
        right = np.abs(scaled - product) <= bound
        infinite = np.isinf(got) & (np.sign(got) * product + bound >= largest)
        right |= infinite
        finite = np.isfinite(got)
        unsure = self._without_terms(np.abs(scaled) <= SMALL * bound, (batch, rows, columns))
        unsure |= infinite & (np.abs(product) - bound < largest)
        if terms is not None:
            plus, minus, undefined = np.asarray(terms > 0)
            undefined |= plus & minus
            right = np.where(undefined, got.view(np.uint64) == np.array(np.nan).view(np.uint64), right)
            right = np.where(~undefined & plus, got == np.inf, right)
            right = np.where(~undefined & minus, got == -np.inf, right)
            special = plus | minus | undefined
            finite &= ~special
            unsure &= ~special
        return *self.admitted(np.where(finite, 2 * bound, 0), batch, rows), ~right, unsure & right

    def admitted(self, errors: Array, batch: Batch, rows: Any) -> tuple[Array, Array]:
        """Errors that may pass in some rows, with `row_sizes`; with zeros if there are none, as in columns of NaN."""
        return errors, self.row_sizes(batch, rows) if errors.any() else np.zeros((*errors.shape[:-1], 1))

    def row_sizes(self, batch: Batch, rows: Any) -> Array:
        """Root mean squares of rows, of all their columns, with zeros for infinities and NaN."""
        of_columns = self.columns.some(self.columns.scales, batch, slice(None))
        scales = self.rows.some(self.rows.scales, batch, rows) + of_columns
        product = self.rows.some(self.product, batch, rows).astype(np.float64)
        product[~np.isfinite(product)] = 0
        return sizes_of(scaled_back(product, scales), of_columns)

    @property
    def own_gamma(self) -> float:
        """Of a sum of products in float64, as `add_product` computes it."""
        return gamma_of(INNER + self.chunks + 1)

    @property
    def conventional(self) -> float:
        """Error of an uncertain element, as a share of the sum of the magnitudes of its terms."""
        return gamma_of(self.format.gamma_terms(self.inner), 2.0**-self.format.precision)

    @property
    def halves(self) -> float:
        """Halves of the least number that it may be off by besides; only products of float64 underflow."""
        return float(max(1, self.inner)) if self.format.precision == 53 else 1.0

    def _note(self, errors: Array, sizes: Array) -> None:
        """Note errors, shape (..., rows, n), that may pass in rows of these root mean squares."""
        self.undetected = max(self.undetected, share_of(errors, sizes))
