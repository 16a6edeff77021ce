"""Elements of a product on the CPU that are dot products by definition, docs/matmul.md: in order, term by term."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product as every
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.row_tiles import on_tiles, tiles
from kernels.matmul.formats import HALF_WAY

SOURCE = Path(__file__).with_suffix(".cpp")

HIGH, ACROSS = 512, 768  # rows and columns of a call
COMPILED = 64  # elements of a matrix from which a call takes less time than NumPy does
TERMS = 2**18  # that NumPy multiplies at a time

Array = NDArray[Any]


class DotProducts:
    """Sums of products for some elements, term by term from the first on; each product and each sum is rounded.

    Parameters
    ----------
    which : bool array, the shape of the product
        The elements.
    exponents
        Of rows and columns, if factors have to be scaled to keep sums from overflowing; else None.

    Attributes
    ----------
    sums : float64 array, the shape of the product
        So far. Those of other elements may be anything.
    """

    def __init__(self, which: Array, exponents: Sequence[Array] | None) -> None:
        self.which, self.exponents = np.ascontiguousarray(which), exponents
        self.sums = np.zeros(which.shape)
        self.inner = 0

    def add(self, a: Array, b: Array) -> None:
        """Add the terms of the next columns of A and rows of B, stacks that broadcast."""
        self.inner += a.shape[-1]
        factors = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
        if self.exponents:
            factors = tuple(np.ldexp(factor, HALF_WAY - of) for factor, of in zip(factors, self.exponents, strict=True))
        batch = self.which.shape[:-2]
        a, b = (np.broadcast_to(factor, (*batch, *factor.shape[-2:])) for factor in factors)
        library = functions() if self.which.shape[-2] * self.which.shape[-1] >= COMPILED else None
        if library is None:
            self._add(a, b)
            return
        for index in np.ndindex(batch):
            if self.which[index].any():
                self._add_compiled(library, _lines_of(a[index]), _lines_of(b[index]), index)

    def _add_compiled(self, library: ctypes.CDLL, a: Array, b: Array, index: tuple[int, ...]) -> None:
        """Of one matrix, on all cores."""
        which, sums = self.which[index], self.sums[index]

        def add(place: tuple[slice, slice]) -> None:
            memory = np.empty(library.dots_memory())
            rows, columns = a[place[0]], b[:, place[1]]
            library.add_in_order(
                rows.ctypes.data, rows.strides[0] // 8, columns.ctypes.data, columns.strides[0] // 8, *rows.shape,
                columns.shape[1], which[place].ctypes.data, sums[place].ctypes.data, sums.strides[0] // 8,
                memory.ctypes.data,
            )  # fmt: skip

        on_tiles(add, [place for place in every(tiles(len(a), HIGH), tiles(b.shape[1], ACROSS)) if which[place].any()])

    def _add(self, a: Array, b: Array) -> None:
        """By NumPy."""
        *outer, rows, columns = np.nonzero(self.which)
        b, length = np.swapaxes(b, -1, -2), a.shape[-1]
        step = max(1, TERMS // max(1, length))
        for start in range(0, len(rows) if length else 0, step):
            *stack, i, j = place = tuple(index[start : start + step] for index in (*outer, rows, columns))
            terms = a[(*stack, i)] * b[(*stack, j)]
            terms[:, 0] += self.sums[place]
            self.sums[place] = np.add.accumulate(terms, axis=1, out=terms)[:, -1]

    def rounded(self, dtype: np.dtype[Any]) -> Array:
        """The sums, each rounded once to a dtype."""
        sums = self.sums
        if self.exponents:
            sums = np.ldexp(sums, self.exponents[0] + self.exponents[1] - 2 * HALF_WAY)
        return sums.astype(dtype)


def _lines_of(matrix: Array) -> Array:
    """Rows without gaps between their numbers, forwards."""
    dense = matrix.strides[1] == matrix.itemsize and matrix.strides[0] >= 0
    return matrix if dense else np.ascontiguousarray(matrix)


def functions() -> ctypes.CDLL | None:
    """What is compiled; None without a C++ compiler."""
    library = cxx.library(SOURCE)
    if library is not None:
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        library.dots_memory.argtypes, library.dots_memory.restype = (), size
        library.add_in_order.argtypes = (pointer, size, pointer, size, *[size] * 3, pointer, pointer, size, pointer)
        library.add_in_order.restype = None
    return library
