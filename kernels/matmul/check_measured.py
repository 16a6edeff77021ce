"""The factors of a product of floats, whose rows and columns are measured before there is a product to check."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from kernels.common.row_tiles import on_tiles
from kernels.matmul.check_lines import Array, Batch, Lines, row_tiles, scaled_back
from kernels.matmul.factors import Factors
from kernels.matmul.formats import Format

HEIGHT = 128  # rows at a time: whole ones, which are contiguous in their file


class Measured:
    """A stack of products C of factors A and B.

    Parameters
    ----------
    factors
        In the dtype of the product.
    shape
        Of the product: (..., M, N).
    format
    columns
        Columns of B that were measured before.
    library
        Of `check_compiled.functions`, for a single matrix.

    Attributes
    ----------
    rows, columns
        Lines of the factors.
    product : float16, float32 or float64 array, shape (..., M, N)
        Set by `take`.
    overflowed_rows : bool array, shape (..., M, 1)
        Rows of C with infinities or NaN in columns and rows of finite numbers; set by `take`.
    """

    lines: type[Lines] = Lines
    product: Array
    overflowed_rows: Array

    def __init__(
        self, factors: Factors, shape: tuple[int, ...], format: Format, columns: Lines | None = None,
        library: ctypes.CDLL | None = None,
    ) -> None:  # fmt: skip
        self.factors, self.format, self.shape = factors, format, shape
        self.rows = self.lines(-1, format.kept, library)
        self.columns = columns or self.lines(-2, format.kept, library)
        self._parts = row_tiles(shape[:-2], factors.rows, HEIGHT)

        def measure(part: slice) -> tuple[Array, Array]:
            return self.rows.measured(factors.a(part, inner) for inner in factors.parts(part.stop - part.start))

        largest, nonfinite = zip(*on_tiles(measure, self._parts), strict=True)
        self.rows.settle(np.concatenate(largest, -2), np.concatenate(nonfinite, -2))
        if columns:
            return
        of_parts = on_tiles(lambda inner: self.columns.measured([factors.b(inner)]), factors.parts(factors.columns))
        largest, nonfinite = zip(*of_parts, strict=True)
        self.columns.settle(np.maximum.reduce(largest), np.logical_or.reduce(nonfinite))

    def take(self, product: Array, measure: bool = True) -> None:
        """The product, whose rows with overflows are noted now, or by who sees infinities or NaN in them."""
        self.product, self.overflowed_rows = product, np.zeros((*product.shape[:-1], 1), bool)
        self._finite = not (self.rows.nonfinite.any() or self.columns.nonfinite.any())
        if measure:
            on_tiles(self.note_overflows, self._parts)

    def note_overflows(self, part: slice) -> bool:
        """Note rows with overflows among some rows of C; whether there are any that were not noted."""
        tile, nonfinite = self.product[..., part, :], self.rows.some(self.rows.nonfinite, None, part)
        if not self.rows.measured([tile])[1].any():
            return False
        bad = (~(np.isfinite(tile) | self.columns.nonfinite)).any(-1, keepdims=True) & ~nonfinite
        noted = self.overflowed_rows[..., part, :]
        new = bool((bad & ~noted).any())
        noted |= bad
        if new:
            self._finite = False
        return new

    def scaled_product(self, batch: Batch, rows: Any, columns: Any) -> Array:
        """Some rows and columns of C, scaled, with zeros for those that are compared elsewhere."""
        product = self.finite_product(batch, rows, columns)
        scales = self.rows.some(self.rows.scales, batch, rows), self.columns.some(self.columns.scales, batch, columns)
        if self.format.precision == 53:
            return scaled_back(product, scales[0] + scales[1])
        scaled = np.multiply(product, np.ldexp(1.0, -scales[0]), dtype=np.float64)  # neither overflows nor underflows
        scaled *= np.ldexp(1.0, -scales[1])
        return scaled

    def finite_product(self, batch: Batch, rows: Any, columns: Any) -> Array:
        """Some rows and columns of C, with zeros for those that are compared elsewhere."""
        product = self.columns.some(self.rows.some(self.product, batch, rows), None, columns)
        if self._finite:
            return product
        return np.where(self.elsewhere(batch, rows, columns), product.dtype.type(0), product)

    def elsewhere(self, batch: Batch, rows: Any, columns: Any) -> Array:
        """Which elements are compared elsewhere: those of lines with infinities or NaN, and of rows with overflows."""
        of_rows = (self.rows.some(lines, batch, rows) for lines in (self.rows.nonfinite, self.overflowed_rows))
        elsewhere: Array = np.logical_or(*of_rows) | self.columns.some(self.columns.nonfinite, batch, columns)
        return elsewhere
