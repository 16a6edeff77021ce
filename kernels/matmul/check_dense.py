"""Sums of groups of columns of C and of A' B', with signs: of stacks of matrices, and without a compiler, by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.common.row_tiles import on_tiles
from kernels.matmul.check_groups import Groups
from kernels.matmul.check_limits import Compared, Limits, OfColumns, gammas
from kernels.matmul.check_lines import (
    INNER,
    Array,
    add_product,
    row_tiles,
    sizes_of,
    squares_of,
)
from kernels.matmul.check_measured import Measured


class DenseSums:
    """Sums of groups of columns, as products with the matrix of signs; a stack of products is one tile."""

    unit = 2.0**-53

    def __init__(self, measured: Measured, groups: Groups) -> None:
        self._of, self._groups = measured, groups
        self.parts, self.depth = [slice(0, measured.factors.rows)], groups.size
        self._tiles = row_tiles(measured.shape[:-2], measured.factors.rows)
        self.terms = INNER + sum(-(-(part.stop - part.start) // INNER) for part in measured.factors.slices) + 1

    def run(self, of_columns: OfColumns | None = None) -> None:
        """Compute the sums of A' B'; what does not depend on A is not kept."""
        of = self._of
        *batch, rows, _ = of.shape
        self._products = np.zeros((*batch, rows, self._groups.number))
        self._norms = np.zeros((*batch, rows, 1))
        self.squares_of_sums = self.squares_of_columns = np.zeros(1)
        for a, b in of.factors.slabs():
            vectors, squares = self._vectors(b)
            self.squares_of_sums = self.squares_of_sums + squares_of(vectors, -2)
            self.squares_of_columns = self.squares_of_columns + squares

            def add(part: slice, a: Array = a, vectors: Array = vectors) -> None:
                tile = of.rows.rounded(a, None, part)
                add_product(self._products[..., part, :], tile, vectors)
                self._norms[..., part, :] += squares_of(tile, -1)

            on_tiles(add, self._tiles)

    def grouped(self, values: Array) -> Array:
        """Sums of numbers, shape (..., 1, N), over groups."""
        grouped: Array = values @ np.abs(self._groups.matrix)
        return grouped

    def compared(self, number: int, limits: Limits, own: Array | None = None) -> Compared:
        """C against A' B'; `own` as in `Limits.bounds`."""
        of, signs = self._of, self._groups.matrix
        ones = np.abs(signs)

        def compare(part: slice) -> tuple[Array, ...]:
            tile = of.scaled_product(None, part, slice(None))
            powers = np.ldexp(0.5, np.frexp(tile)[1]) * (tile != 0)
            norms = np.sqrt(self._norms[..., part, :])
            sums = powers @ ones, np.square(powers) @ ones
            bounds = limits.bounds(part, norms, *sums, None if own is None else own[..., part, :])
            differences = self._products[..., part, :] - tile @ signs
            return differences, *bounds, norms, sizes_of(tile, of.columns.scales)

        return Compared(
            *(np.concatenate(of_tiles, -2) for of_tiles in zip(*on_tiles(compare, self._tiles), strict=True))
        )

    def own_bounds(self, numbers: Sequence[int]) -> dict[int, Array]:
        """The error of the sums of A' B', from the magnitudes of all terms."""
        of, signs, (of_product, of_group) = self._of, self._groups.matrix, gammas(self)
        own: Any = 0.0
        for a, b in of.factors.slabs():
            b = of.columns.rounded(b, None, slice(None))
            vectors = of_product * np.abs(b @ signs) + of_group * (np.abs(b) @ np.abs(signs))
            own = own + np.abs(of.rows.rounded(a, None, slice(None))) @ vectors
        return {0: np.asarray(own)}

    def _vectors(self, b: Array) -> tuple[Array, Array]:
        """Sums of the rows of B, shape (..., rows, sums), and squares of columns."""
        vectors = np.empty((*b.shape[:-1], self._groups.number))

        def add(part: slice) -> Array:
            tile = self._of.columns.rounded(b[..., part, :], None, slice(None))
            np.matmul(tile, self._groups.matrix, out=vectors[..., part, :])
            return squares_of(tile, -2)

        return vectors, sum(on_tiles(add, row_tiles(b.shape[:-2], b.shape[-2], INNER)), np.zeros(1))
