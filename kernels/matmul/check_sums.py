"""Sums of groups of columns of C and of A' B', with signs: tile by tile, by check_sums.cpp, on all cores."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import cxx
from kernels.common.tiles import on_tiles, tiles
from kernels.matmul.check_dense import Compared, gammas
from kernels.matmul.check_groups import Groups
from kernels.matmul.check_lines import INNER, Array, gamma_of, weights_of
from kernels.matmul.check_measured import Measured

SOURCE = Path(__file__).with_suffix(".cpp")

# As in check_sums.cpp.
TYPES = ("float16", "float32", "float64")
HEIGHT, LANES = 64, 8

HELD = 2**23  # numbers of sums of rows of B that are held at a time
DOTS = 4 * INNER  # products of each of some elements that a thread adds up at a time
CACHE_LINE = 64

_pointer, _size = ctypes.c_void_p, ctypes.c_size_t


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("numbers", _pointer), *((name, _size) for name in ("rows", "columns", "stride")),
        ("by_row", _pointer * 3), ("by_column", _pointer * 3),
    )  # fmt: skip


class _Groups(ctypes.Structure):
    _fields_ = (("columns", _pointer), ("starts", _pointer), ("sums", _size))


class _Members(ctypes.Structure):
    _fields_ = (("sums", _pointer), ("signs", _pointer), ("rounds", _size))


def functions() -> ctypes.CDLL | None:
    """What is compiled; None without a C++ compiler."""
    library = cxx.library(SOURCE)
    if library is None:
        return None
    matrix, number = ctypes.POINTER(_Matrix), ctypes.c_int
    groups, members = ctypes.POINTER(_Groups), ctypes.POINTER(_Members)
    types: dict[str, tuple[Any, ...]] = {
        "group_sums": (None, matrix, number, groups, *[_pointer] * 3, _size),
        "products": (None, matrix, number, _pointer, _size, _size, _pointer, _pointer),
        "compare": (None, matrix, groups, *[_pointer] * 6),
        "suspects": (_size, matrix, members, *[_pointer] * 4, _size),
        "dots": (None, matrix, matrix, _pointer, _size, _pointer, _pointer),
    }
    for name, (result, *arguments) in types.items():
        function = getattr(library, name)
        function.argtypes, function.restype = (number, *arguments), result
    return library


class TileSums:
    """Sums of groups of columns of one matrix, tile by tile: `Sums` says what they are.

    Parameters
    ----------
    library
        Of `functions`.
    measured
        Of matrices, whose dtype is one of `TYPES`.
    groups
    parts
        Rows of tiles of `HEIGHT` rows, or fewer; by default all.
    """

    def __init__(
        self, library: ctypes.CDLL, measured: Measured, groups: Groups, parts: Sequence[slice] | None = None
    ) -> None:
        self._library, self._of, self._groups, self._number = library, measured, groups, groups.number
        columns, starts = groups.members
        self._members = _Groups(columns.ctypes.data, starts.ctypes.data, self._number)
        self._type = TYPES.index(measured.format.dtype)
        # Numbers of 16 bits are computed with as floats, others as doubles.
        self._real: np.dtype[Any] = np.dtype(np.float64 if self._type else np.float32)
        self.unit, self.depth = 2.0**-53 if self._type else 2.0**-24, -(-groups.size // LANES) + 4
        factors = measured.factors
        self.parts = tiles(factors.rows, HEIGHT) if parts is None else list(parts)
        self._slabs = tiles(factors.inner, max(1, HELD // max(1, self._number) // INNER) * INNER)
        pieces = [piece for slab in self._slabs for piece in factors.parts(HEIGHT, slab)]
        self.terms = INNER + sum(-(-(piece.stop - piece.start) // INNER) for piece in pieces) + 1

    def run(self) -> None:
        """Compute the sums of A' B'."""
        everywhere, shape = range(len(self.parts)), (len(self.parts), HEIGHT)
        self._products = _aligned((len(self.parts), self._number, HEIGHT), self._real)
        self._norms, self._sizes = np.zeros(shape), np.zeros(shape)
        self.squares_of_sums, self.squares_of_columns = np.zeros(self._number), np.zeros(self._of.factors.columns)
        for slab in self._slabs:
            vectors, of_columns, of_sums = self._vectors(slab)
            self.squares_of_columns += of_columns
            self.squares_of_sums += of_sums
            self._multiply(slab, vectors, everywhere, self._products, self._norms)

    def grouped(self, values: Array) -> Array:
        """Sums of numbers, one for each column, over groups."""
        of_rounds = np.broadcast_to(values.reshape(-1), self._groups.sums.shape)
        return np.bincount(self._groups.sums.reshape(-1), of_rounds.reshape(-1), self._number)

    def compared(self, number: int) -> Compared:
        """A tile of C against that of A' B'; once only."""
        products, sizes, buffer = self._products[number], self._sizes[number], self._buffer()
        powers, squares = (_aligned(products.shape, self._real) for _ in range(2))
        matrix, weights = self._product(number), weights_of(self._of.columns.scales).astype(self._real)
        self._library.compare(
            self._type, matrix, self._members, weights.ctypes.data, sizes.ctypes.data, buffer.ctypes.data,
            *(array.ctypes.data for array in (products, powers, squares)),
        )  # fmt: skip
        rows = matrix.rows
        differences, powers, squares = (array.T[:rows] for array in (products, powers, squares))
        sizes, norms = np.sqrt(sizes / self._of.factors.columns), np.sqrt(self._norms[number])
        return Compared(differences, powers, squares, sizes[:rows, None], norms[:rows, None])

    def own_bounds(self, numbers: Sequence[int]) -> dict[int, Array]:
        """The error of the sums of A' B' in some tiles, from the magnitudes of all terms."""
        bounds = _aligned((len(numbers), self._number, HEIGHT), self._real)
        of_product, of_group = gammas(self)
        for slab in self._slabs:
            vectors, sizes = (self._vectors(slab, sizes)[0] for sizes in (False, True))
            np.abs(vectors, out=vectors)
            vectors *= self._real.type(of_product)
            vectors += self._real.type(of_group) * sizes
            self._multiply(slab, vectors, numbers, bounds)
        heights = [self.parts[number].stop - self.parts[number].start for number in numbers]
        each = zip(numbers, bounds, heights, strict=True)
        return {number: bound.T[:height].astype(np.float64) for number, bound, height in each}

    def suspects(self, number: int, squares: Array, most: int) -> Array | None:
        """Elements of a tile whose error, by the mean of their sums, is above the limit of that mean; and zeros.

        Parameters
        ----------
        number
        squares : shape (rows, sums)
            Of the limits of the sums.
        most
            Number of suspects.

        Returns
        -------
        int64 array, shape (n, 2)
            Rows and columns of C; None if they are more.
        """
        matrix, limits = self._product(number), _aligned((self._number, HEIGHT), self._real)
        limits.T[: len(squares)] = squares
        places, buffer = np.empty((most, 2), np.int32), self._buffer()
        sums, signs = self._groups.sums.astype(np.int32), self._groups.signs
        count = self._library.suspects(
            self._type, matrix, _Members(sums.ctypes.data, signs.ctypes.data, len(sums)),
            self._products[number].ctypes.data, limits.ctypes.data, buffer.ctypes.data, places.ctypes.data, most,
        )  # fmt: skip
        return places[:count] + np.array([self.parts[number].start, 0]) if count <= most else None

    def dots(self, places: Array) -> tuple[Array, Array, Array]:
        """Some elements of A' B'.

        Parameters
        ----------
        places : int array, shape (n, 2)
            Their rows and columns. The tiles have to be all of C.

        Returns
        -------
        elements, bounds, sizes : float64 arrays, shape (n,)
            The elements, bounds of their errors, and the root mean square of the row of C that they are in.
        """
        factors, rows, columns = self._of.factors, self._of.rows, self._of.columns
        places = np.ascontiguousarray(places, np.int32)
        by_row, by_column = (self._reals(lines.powers(None, slice(None))) for lines in (rows, columns))

        def add(inner: slice) -> Array:
            total = np.zeros(len(places))
            a = rows.finite(factors.a(slice(0, factors.rows), inner), None, slice(None))
            b = columns.finite(factors.b(inner), None, slice(None))
            memory = np.empty(INNER * (factors.rows + factors.columns), self._real)
            for part in tiles(inner.stop - inner.start, INNER):
                self._library.dots(
                    self._type, self._matrix(a[:, part], by_row, None), self._matrix(b[part], None, by_column),
                    places.ctypes.data, len(places), memory.ctypes.data, total.ctypes.data,
                )  # fmt: skip
            return total

        elements = np.sum(on_tiles(add, tiles(factors.inner, DOTS)), 0)
        # Each number of a vector, of 16 bytes at least, adds up so many products.
        gamma = gamma_of(INNER * self._real.itemsize // 16 + 1, self.unit) + gamma_of(factors.inner)
        norms = np.sqrt(self._norms.reshape(-1)[places[:, 0]] * self.squares_of_columns[places[:, 1]])
        return elements, gamma * norms, np.sqrt(self._sizes.reshape(-1)[places[:, 0]] / factors.columns)

    def _vectors(self, slab: slice, sizes: bool = False) -> tuple[Array, Array, Array]:
        """Sums of the rows of B, or of magnitudes, shape (sums, rows); squares of columns, and of these sums."""
        factors, columns, every = self._of.factors, self._of.columns, slice(None)
        length = -(-(slab.stop - slab.start) // CACHE_LINE) * CACHE_LINE
        # Rows that are large powers of two apart would evict each other from the cache.
        vectors = _aligned((self._number, length + CACHE_LINE // 2), self._real)
        powers = self._reals(columns.powers(None, every))

        def add(part: slice) -> tuple[Array, Array]:
            squares, buffer = np.zeros(factors.columns), self._buffer()
            own = vectors[:, part.start - slab.start : part.stop - slab.start]
            block = self._matrix(columns.finite(factors.b(part), None, every), None, powers)
            self._library.group_sums(
                self._type, block, sizes, self._members, squares.ctypes.data, buffer.ctypes.data,
                own.ctypes.data, vectors.shape[1],
            )  # fmt: skip
            return squares, np.square(own, dtype=np.float64).sum(-1)

        of_columns, of_sums = zip(*on_tiles(add, factors.parts(factors.columns, slab)), strict=True)
        return vectors, np.sum(of_columns, 0), np.sum(of_sums, 0)

    def _multiply(
        self, slab: slice, vectors: Array, numbers: Sequence[int], out: Array, norms: Array | None = None
    ) -> None:
        """Add products of tiles of A with sums of rows of B, and squares of rows; without these, of magnitudes."""
        factors, rows = self._of.factors, self._of.rows

        def add(at: int) -> None:
            part = self.parts[numbers[at]]
            powers = self._reals(rows.powers(None, part))
            for inner in factors.parts(HEIGHT, slab):
                block = self._matrix(rows.finite(factors.a(part, inner), None, part), powers, None)
                self._library.products(
                    self._type, block, norms is None, vectors[:, inner.start - slab.start :].ctypes.data,
                    vectors.shape[1], self._number, None if norms is None else norms[at].ctypes.data,
                    out[at].ctypes.data,
                )  # fmt: skip

        on_tiles(add, range(len(numbers)))

    def _product(self, number: int) -> Any:
        """A tile of C."""
        of, part, every = self._of, self.parts[number], slice(None)
        powers = self._reals(of.rows.halves(part)), self._reals(of.columns.halves(every))
        return self._matrix(of.finite_product(None, part, every), *powers)

    def _matrix(self, block: Array, by_row: Sequence[Array] | None, by_column: Sequence[Array] | None) -> Any:
        """What functions take."""
        if block.strides[1] != block.itemsize:
            block = np.ascontiguousarray(block)
        pointers = [(_pointer * 3)(*(powers.ctypes.data for powers in by or ())) for by in (by_row, by_column)]
        matrix = _Matrix(block.ctypes.data, *block.shape, block.strides[0] // block.itemsize, *pointers)
        matrix.arrays = block, by_row, by_column  # live as long
        return matrix

    def _reals(self, powers: Sequence[Array]) -> list[Array]:
        return [power.reshape(-1).astype(self._real) for power in powers]

    def _buffer(self) -> Array:
        """A vector for each column."""
        return _aligned((self._of.factors.columns, CACHE_LINE), np.dtype(np.uint8))


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros from the start of a cache line on."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.zeros(nbytes + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + nbytes].view(dtype).reshape(shape)
