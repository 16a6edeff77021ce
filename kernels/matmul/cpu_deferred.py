"""Elements of a product on the CPU that float64 does not decide, computed exactly, and put in place."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.cpu import CpuProduct
from kernels.matmul.formats import FORMATS
from kernels.matmul.rounding import to_float

COLUMNS, PADDING = 16, 8  # as in cpu_narrow.cpp

Array = NDArray[Any]


class Dots:
    """Elements of a product of two matrices that are no dot products by definition, sorted by column: compiled."""

    exact = None

    def __init__(self, library: ctypes.CDLL, product: Array, places: tuple[Array, ...], exponents: list[Array]) -> None:
        self._library, self.product = library, product
        self.places, self._exponents, self._sums = places, exponents, np.zeros((len(places[0]), 2), np.uint64)
        self._powers = [np.ldexp(1.0, FORMATS[product.dtype.name].kept - of) for of in exponents]

    def add(self, a: Array, b: Array) -> None:
        """Add the products of the next part."""
        (a, b), (rows, columns) = map(lines_of, (a, b)), self.places
        memory = np.empty((COLUMNS + 1, len(b) + PADDING), np.int64)
        of_rows, of_columns, *others = (
            array.ctypes.data for array in (*self._powers, rows, columns, memory, self._sums)
        )
        self._library.add_dots(*address_of(a), of_rows, *address_of(b), of_columns, b.shape[1], len(b), *others[:2],
                               len(rows), *others[2:])  # fmt: skip

    def finish(self) -> int:
        """Put them in place; none is uncertain."""
        (rows, columns), (of_rows, of_columns) = self.places, self._exponents
        format = FORMATS[self.product.dtype.name]
        low, high = self._sums.T
        sign = (high.view(np.int64) >> 63).view(np.uint64)
        exponents = of_rows[rows, 0] + of_columns[0, columns] - 2 * format.kept
        self.product[self.places] = to_float([low, high, sign], exponents, format)
        return 0


class Deferred:
    """Elements of a product, rows of a matrix, or matrices of a stack, to be computed exactly and put in place."""

    def __init__(
        self, product: Array, places: tuple[Array, ...], exponents: list[Array], nonfinite: list[Array]
    ) -> None:
        self.product, self.places = product, places
        self.exact = CpuProduct((product.dtype, product.dtype), product.dtype)
        self.exact.exponents, self.exact.nonfinite = self._chosen(*exponents), self._chosen(*nonfinite)
        self.result: Array | None = None

    def _chosen(self, a: Array, b: Array) -> list[Array]:
        """The parts of the factors that they need, as stacks; for single elements stacks of rows and columns."""
        if self.product.ndim == 2 and len(self.places) == 1:
            return [a[self.places], b]
        batch = self.product.shape[:-2]
        a, b = (np.broadcast_to(factor, (*batch, *factor.shape[-2:])) for factor in (a, b))
        if len(self.places) < self.product.ndim:
            return [a[self.places], b[self.places]]
        *outer, rows, columns = self.places
        return [a[(*outer, rows)][:, None], np.swapaxes(b, -1, -2)[(*outer, columns)][..., None]]

    def add(self, a: Array, b: Array) -> None:
        """Add the products of the next part."""
        (self.exact.add if self.result is None else self.exact.recompute)(*self._chosen(a, b))

    def finish(self) -> int:
        """Put them in place, unless all parts have to be seen again; returns the number of uncertain elements."""
        uncertain = 0
        if self.result is None:
            self.result = self.exact.finish()
            uncertain = self.exact.uncertain
        if not self.exact.needs_recompute():
            self.product[self.places] = self.result.reshape(self.product[self.places].shape)
        return uncertain


def lines_of(values: Array) -> Array:
    """Rows of float32 without gaps between their numbers."""
    values = values.astype(np.float32, copy=False)
    return values if values.strides[1] == 4 and values.strides[0] >= 0 else np.ascontiguousarray(values)


def address_of(lines: Array) -> tuple[int, int]:
    """Address of rows, and from one to the next in elements."""
    return lines.ctypes.data, lines.strides[0] // 4
