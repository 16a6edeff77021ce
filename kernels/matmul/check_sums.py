"""Sums of groups of columns of C and of A' B', with signs: tile by tile, by check_sums.cpp, on all cores."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.common.row_tiles import on_tiles, tiles
from kernels.matmul.check_compiled import CACHE_LINE, GroupsOf, LimitsOf, Matrix, RoundsOf, aligned, depth_of, matrix_of
from kernels.matmul.check_defined import Support
from kernels.matmul.check_groups import Groups
from kernels.matmul.check_limits import Compared, Limits, OfColumns, gammas
from kernels.matmul.check_lines import INNER, TYPES, UPWARDS, Array, gamma_of, weights_of
from kernels.matmul.check_measured import Measured

# As in check_sums.cpp.
HEIGHT = 128

# Columns of a block, of which each sum adds up its own: a few of every group, and vectors of them stay in the cache.
WIDTH, OF_GROUP = 256, 16

HELD = 2**23  # numbers of sums of rows of B that are held at a time
ZEROS = 2**18  # products of elements that are zero, from which on it is worth to know which have terms
DOTS = 2 * INNER  # products of each of some elements that a thread adds up at a time


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
        self._width = max(WIDTH, OF_GROUP * groups.number // max(1, groups.rounds))
        self._arrays = *groups.members(self._width), groups.sums.astype(np.int32), groups.signs
        columns, starts, sums, signs = (array.ctypes.data for array in self._arrays)
        self._members, self._rounds = (
            GroupsOf(columns, starts, self._number, self._width),
            RoundsOf(sums, signs, groups.rounds, self._number),
        )
        self._type = TYPES.index(measured.format.dtype)
        # Numbers of 16 bits are computed with as floats, others as doubles.
        self._real: np.dtype[Any] = np.dtype(np.float64 if self._type else np.float32)
        self.unit, self.depth = 2.0**-53 if self._type else 2.0**-24, depth_of(self._arrays[1])
        factors = measured.factors
        powers = (
            of(None, slice(None)) for lines in (measured.rows, measured.columns) for of in (lines.powers, lines.halves)
        )
        self._row_powers, self._row_halves, self._column_powers, self._column_halves = (
            [power.reshape(-1).astype(self._real) for power in each] for each in powers
        )
        self._weights = weights_of(measured.columns.scales).astype(self._real)
        self.parts = tiles(factors.rows, HEIGHT) if parts is None else list(parts)
        self._slabs = tiles(factors.inner, max(1, factors.within(HELD) // max(1, self._number) // INNER) * INNER)
        # INNER products are added up in the check's arithmetic, and these sums as doubles. Of numbers of 16 bits the
        # total is rounded once more, and all that doubles lose is less than another rounding.
        self.terms = INNER + 3
        if self._type:
            pieces = [piece for slab in self._slabs for piece in factors.parts(HEIGHT, slab)]
            self.terms = INNER + sum(-(-(piece.stop - piece.start) // INNER) for piece in pieces) + 1

    def run(self, of_columns: OfColumns | None = None) -> OfColumns | None:
        """Compute the sums of A' B'; what does not depend on A is kept, unless there is too much of it."""
        everywhere, shape = range(len(self.parts)), (len(self.parts), HEIGHT)
        self._products = aligned((len(self.parts), self._number, HEIGHT), np.dtype(np.float64))
        self._norms, self._sizes = np.zeros(shape), np.zeros(shape)
        self.squares_of_sums, self.squares_of_columns = np.zeros(self._number), np.zeros(self._of.factors.columns)
        for slab in self._slabs:
            kept = of_columns or self._vectors(slab)
            self.squares_of_columns += kept.squares_of_columns
            self.squares_of_sums += kept.squares_of_sums
            self._multiply(slab, kept.vectors, everywhere, self._products, self._norms)
        return kept if len(self._slabs) == 1 else None

    def grouped(self, values: Array) -> Array:
        """Sums of numbers, one for each column, over groups."""
        of_rounds = np.broadcast_to(values.reshape(-1), self._groups.sums.shape)
        return np.bincount(self._groups.sums.reshape(-1), of_rounds.reshape(-1), self._number)

    def compared(self, number: int, limits: Limits, own: Array | None = None) -> Compared:
        """A tile of C against that of A' B'; `own` as in `Limits.bounds`. Overflows are noted if it has any."""
        part, products, sizes = self.parts[number], self._products[number], np.zeros(HEIGHT)
        rows, norms, halves = part.stop - part.start, np.sqrt(self._norms[number]), np.zeros(HEIGHT)
        halves[:rows] = limits.halves[part, 0]
        arrays = [array.astype(self._real) for array in (norms, halves, limits.own, limits.likely, limits.of_halves)]
        if own is not None:
            arrays.append(np.zeros(products.shape, self._real))
            arrays[-1][:, :rows] = own.T
        pointers = [array.ctypes.data for array in arrays] + [None] * (own is None)
        parts_of_bounds = LimitsOf(*pointers, limits.powers, limits.roundings, limits.underflow, UPWARDS)
        differences, likely, most = (aligned(products.shape, self._real, np.empty) for _ in range(3))
        self._call(
            "compare", self._product(number), self._members, parts_of_bounds, self._weights, products, sizes,
            self._buffer(self._width), differences, likely, most,
        )  # fmt: skip
        if not np.isfinite(sizes).all() and self._of.note_overflows(part):
            return self.compared(number, limits, own)
        self._sizes[number] = np.sqrt(sizes / self._of.factors.columns)
        differences, likely, most = (array[:, :rows].T for array in (differences, likely, most))
        return Compared(differences, likely, most, norms[:rows, None], self._sizes[number, :rows, None])

    def judged(self, number: int, compared: Compared, elsewhere: Array) -> tuple[int, float, float]:
        """How many sums of a tile differ more than is likely, and what may hide in others, and in right ones, at most.

        Parameters
        ----------
        number
        compared
            The tile.
        elsewhere : bool array, shape (rows,)
            Rows that are compared in another way.

        Returns
        -------
        off, admitted, most_admitted
            The errors are in units of the root mean square of a row.
        """
        rows, admitted, sizes = len(elsewhere), np.zeros(2), self._sizes[number]
        sums = compared.differences, compared.likely, compared.most
        elsewhere = np.ascontiguousarray(elsewhere)
        sizes = np.where(np.isfinite(sizes), sizes, 0)
        off = self._call("judge", rows, self._number, *sums, sizes, elsewhere, admitted)
        return off, *admitted.tolist()

    def own_bounds(self, numbers: Sequence[int]) -> dict[int, Array]:
        """The error of the sums of A' B' in some tiles, from the magnitudes of all terms."""
        bounds = aligned((len(numbers), self._number, HEIGHT), np.dtype(np.float64))
        of_product, of_group = gammas(self)
        for slab in self._slabs:
            vectors, sizes = (self._vectors(slab, sizes).vectors for sizes in (False, True))
            np.abs(vectors, out=vectors)
            vectors *= self._real.type(of_product)
            vectors += self._real.type(of_group) * sizes
            self._multiply(slab, vectors, numbers, bounds)
        bounds *= 1 + 2 * of_product  # the error of these sums
        heights = [self.parts[number].stop - self.parts[number].start for number in numbers]
        return {number: bounds[at].T[:height] for at, (number, height) in enumerate(zip(numbers, heights, strict=True))}

    def suspects(self, number: int, compared: Compared, share: float, most: int) -> Array | None:
        """Elements of a tile whose error, by the mean of their sums, is above a limit, and those that are not far above
        it themselves.

        Parameters
        ----------
        number
        compared
            The tile.
        share
            The limit of the sum of an element's sums, as a share of the root of the sum of the squares of theirs.
        most
            Number of suspects.

        Returns
        -------
        int64 array, shape (n, 2)
            Rows and columns of C; None if they are more.
        """
        places = np.empty((most, 2), np.int32)
        count = self._call(
            "suspects", self._product(number), self._rounds, compared.differences, compared.likely, share,
            self._buffer(self._of.factors.columns), places, most,
        )  # fmt: skip
        return places[:count] + np.array([self.parts[number].start, 0]) if count <= most else None

    def small(self, number: int, limits: Array, most: int, support: Callable[[], Support | None]) -> Array | None:
        """Elements of a tile up to the largest limit of their sums.

        Parameters
        ----------
        number
            The tile.
        limits : float64 array, shape (rows, sums)
            Below zero in rows to leave out.
        most
            Number of elements.
        support
            Called if many are +0: with it, those whose row and column share no place do not count.

        Returns
        -------
        int64 array, shape (n, 2)
            Rows and columns of C; None if they are more.
        """
        part, of = self.parts[number], self._of
        rows, columns = of.rows.scales[part], of.columns.scales.reshape(-1)
        by_column = np.where(of.columns.nonfinite.reshape(-1), np.nan, np.ldexp(1.0, -columns))
        limits = np.ascontiguousarray(limits * np.ldexp(1.0, rows))
        tile, places = matrix_of(of.product[part]), np.empty((most, 2), np.int32)
        largest, counts = limits.max(1, initial=-1), np.zeros(2, np.int64)
        bits: list[Any] = [None, None, 0]
        for again in (False, True):
            self._call("small", tile, self._rounds, by_column, largest, limits, *bits, places, most, counts)
            if again or counts[1] * of.factors.inner <= ZEROS:
                break
            if not (whole := support()):
                break
            bits = [whole.rows[part], whole.columns, whole.rows.shape[1]]
        return places[: counts[0]] + np.array([part.start, 0]) if counts[0] <= most else None

    def norms_of(self, rows: Array) -> Array:
        """Norms of some rows of A'; the tiles have to be all of C."""
        return np.asarray(np.sqrt(self._norms.reshape(-1)[rows]))

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
        factors, every = self._of.factors, slice(None)
        places = np.ascontiguousarray(places, np.int32)
        by_row, by_column = (
            [power.astype(np.float64) for power in powers] for powers in (self._row_powers, self._column_powers)
        )

        def add(inner: slice) -> Array:
            total = np.zeros(len(places))
            memory = np.empty(INNER * (factors.rows + factors.columns))
            a = self._of.rows.finite(factors.a(slice(0, factors.rows), inner), None, every)
            b = self._of.columns.finite(factors.b(inner), None, every)
            for part in tiles(inner.stop - inner.start, INNER):
                lines = matrix_of(a[:, part], by_row), matrix_of(b[part], (), by_column)
                self._call("dots", *lines, places, len(places), memory, total)
            return total

        elements = np.sum(on_tiles(add, tiles(factors.inner, DOTS)), 0)
        # Each number of a vector, of 16 bytes at least, adds up its share of the products; then they are added up.
        gamma = gamma_of(INNER // 2 + 1) + gamma_of(factors.inner)
        norms = np.sqrt(self._norms.reshape(-1)[places[:, 0]] * self.squares_of_columns[places[:, 1]])
        return elements, gamma * norms, self._sizes.reshape(-1)[places[:, 0]]

    def _vectors(self, slab: slice, sizes: bool = False) -> OfColumns:
        """Of some rows of B: their sums, or those of magnitudes."""
        factors, every = self._of.factors, slice(None)
        length = -(-(slab.stop - slab.start) // CACHE_LINE) * CACHE_LINE
        # Rows that are large powers of two apart would evict each other from the cache.
        vectors = aligned((self._number, length + CACHE_LINE // 2), self._real)

        def add(part: slice) -> tuple[Array, Array]:
            squares = np.zeros(factors.columns)
            own = vectors[:, part.start - slab.start : part.stop - slab.start]
            block = matrix_of(self._of.columns.finite(factors.b(part), None, every), (), self._column_powers)
            buffer = self._buffer(self._width)
            self._call("group_sums", block, sizes, self._members, squares, buffer, own, vectors.shape[1])
            return squares, np.square(own).sum(-1)

        of_columns, of_sums = zip(*on_tiles(add, factors.parts(factors.columns, slab)), strict=True)
        return OfColumns(vectors, np.sum(of_columns, 0), np.sum(of_sums, 0))

    def _multiply(
        self, slab: slice, vectors: Array, numbers: Sequence[int], out: Array, norms: Array | None = None
    ) -> None:
        """Add products of tiles of A with sums of rows of B, and squares of rows; without these, of magnitudes."""
        factors, rows = self._of.factors, self._of.rows

        def add(at: int) -> None:
            part = self.parts[numbers[at]]
            powers = [power[part] for power in self._row_powers]
            for inner in factors.parts(HEIGHT, slab):
                block = matrix_of(rows.finite(factors.a(part, inner), None, part), powers)
                some, squares = vectors[:, inner.start - slab.start :], None if norms is None else norms[at]
                self._call("products", block, norms is None, some, vectors.shape[1], self._number, squares, out[at])

        on_tiles(add, range(len(numbers)))

    def _product(self, number: int) -> Matrix:
        """A tile of C."""
        part = self.parts[number]
        by_row = [power[part] for power in self._row_halves]
        return matrix_of(self._of.finite_product(None, part, slice(None)), by_row, self._column_halves)

    def _buffer(self, columns: int) -> Array:
        """A vector for each of so many columns."""
        return aligned((min(columns, self._of.factors.columns), CACHE_LINE), np.dtype(np.uint8), np.empty)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a function, with the addresses of arrays."""
        addresses = (each.ctypes.data if isinstance(each, np.ndarray) else each for each in arguments)
        return getattr(self._library, name)(self._type, *addresses)
