"""Products of float16 and float32 matrices on the CPU: one product in float64, a few elements exactly.

Of two matrices `cpu_sums.hpp` makes it, which rounds what it multiplies: BLAS needs memory for rounded factors, and
more than twice the time where it does not know the CPU. It multiplies stacks, and everything without a compiler.

The error bound of float64 sums of products of the integers of docs/matmul.md is far below half a unit of the result. If
both ends of the interval round to the same number, that is the element. The few others are deferred and computed
exactly, and so are elements that are not certain to be close enough.
"""

from __future__ import annotations

import ctypes
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.row_tiles import on_tiles
from kernels.common.row_tiles import tiles as tiles_of
from kernels.matmul import cpu_direct
from kernels.matmul.cpu import INNER, PIECE, ROWS, CpuProduct, Scales, tiles
from kernels.matmul.cpu_deferred import Deferred, Dots, address_of, lines_of
from kernels.matmul.cpu_direct import DirectProduct
from kernels.matmul.formats import BITS, FORMATS, bits_of

SOURCE = Path(__file__).with_suffix(".cpp")

SUMMED = 256  # products that are added up at a time: fewer defer fewer elements, but take longer
CACHE_LINE = 64
FIRST, MORE = 32, 1024  # products that mostly, or else sometimes, show an element to be certain; exact in float32
ROUNDED = 2**15  # elements that are rounded at a time
HEIGHT, ACROSS, PANEL = 2048, 768, 24  # of a tile that is added up at once: cpu_sums.hpp packs as many columns at most
UPWARDS = 1 + 2.0**-20  # covers the rounding of the bound itself
ALONE = 32  # where fewer than one element in so many is deferred, each is computed on its own
TERMS = 2**18  # of such elements, at a time
DOTS = 512  # elements that a thread adds up exactly at a time

Array = NDArray[Any]


class NarrowCpuProduct(Scales):
    """The product of two stacks of float16 or float32 matrices; the interface and the bits are those of `CpuProduct`.

    Parameters
    ----------
    result
        Dtype of the factors and of the product.
    whole
        Whether one part is all of it: sums of tiles are then rounded while they are in the caches, and take no memory.
    out
        Where the product of two matrices may be put.
    """

    scaled = True

    def __init__(self, result: np.dtype[Any], whole: bool = False, out: Array | None = None) -> None:
        super().__init__()
        self.result, self.format = result, FORMATS[result.name]
        self._whole, self._out = whole, out
        self._factors: tuple[Array, Array] | None = None  # of which `finish` makes the sums
        self.squares: list[Array] = []  # sums of squares of rows and columns
        self.sums: Array = np.zeros(0)  # of products, in float64
        self.least: Array = np.zeros(0)  # in each row, the least sum of products of top bits
        self.inner = self.parts = self.seen = 0  # products in a sum; partial sums; products seen by `recompute`
        self.deferred: list[Deferred | Dots] = []
        self.uncertain = 0

    def measure(self, a: Array, b: Array) -> None:
        """Take the next part into account."""
        super().measure(a.astype(self.result, copy=False), b.astype(self.result, copy=False))

    def add(self, a: Array, b: Array) -> None:
        """Add the products of the next part; all parts have been measured."""
        a, b = a.astype(self.result, copy=False), b.astype(self.result, copy=False)
        grids = self._grids()
        self.shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        library = functions() if len(self.shape) == 2 and a.shape[-1] else None
        if not self.parts:
            self.squares = [np.zeros(exponents.shape) for exponents in self.exponents]
            self.least = self._least(a, b, grids)
            if library and self._whole:
                self._factors = lines_of(a), lines_of(b)
            else:
                self.sums = np.empty(self.shape)
        if library is None:
            self._add(a, b, grids)
        elif not self._factors:
            self._sum(library, (lines_of(a), lines_of(b)), grids, self.squares, self.sums, not self.parts)
        self.inner += a.shape[-1]
        self.parts += max(1, -(-a.shape[-1] // SUMMED))

    def _grids(self) -> list[Array]:
        """The spacing of float64 next to these numbers is the unit of the integers."""
        return [np.ldexp(1.5, 52 - self.format.kept + exponents) for exponents in self.exponents]

    def _add(self, a: Array, b: Array, grids: list[Array]) -> None:
        b = _rounded(b, grids[1])
        self.squares[1] += np.square(b).sum(-2, keepdims=True)
        for rows in tiles(self.sums.shape, ROWS):
            tile, sums = _rounded(a[rows], grids[0][rows]), self.sums[rows]
            self.squares[0][rows] += np.square(tile).sum(-1, keepdims=True)
            if not self.parts:
                sums[...] = 0
            for first in range(0, a.shape[-1], SUMMED):
                sums += np.matmul(tile[..., first : first + SUMMED], b[..., first : first + SUMMED, :])

    def _sum(
        self, library: ctypes.CDLL, factors: tuple[Array, Array], grids: list[Array], squares: list[Array],
        sums: Array, begin: bool = True,
    ) -> None:  # fmt: skip
        """Add products of rows and columns to sums, or begin them, and squares of their rounded numbers to squares."""
        a, b = factors
        memory = np.empty(library.memory_numbers(SUMMED) + CACHE_LINE // 8)
        line = memory.ctypes.data + -memory.ctypes.data % CACHE_LINE
        of_a, of_b = ((grid.ctypes.data, square.ctypes.data) for grid, square in zip(grids, squares, strict=True))
        library.add_products(*address_of(a), *of_a, *address_of(b), *of_b, *a.shape, b.shape[1], SUMMED, begin,
                             sums.ctypes.data, line)  # fmt: skip

    def _least(self, a: Array, b: Array, grids: list[Array]) -> Array:
        """In each row, the least sum of products of magnitudes of BITS bits: of the first, or if needed of more."""
        # Sums of zeros are certain; infinities and NaN are deferred anyhow.
        other = (self.largest[1] == 0) | self.nonfinite[1]

        def of_rows(rows: tuple[Any, ...]) -> Array:
            least: Array = np.zeros(0)
            for products in (FIRST, MORE):
                x, y = (
                    np.floor(np.abs(_rounded(factor, grid)) * np.ldexp(1.0, BITS - scale)).astype(np.float32)
                    for factor, grid, scale in ((a[rows][..., :products], grids[0][rows], self.exponents[0][rows]),
                                                (b[..., :products, :], grids[1], self.exponents[1]))
                )  # fmt: skip
                sums = np.matmul(x, y)
                least = (np.where(other, np.inf, sums) if other.any() else sums).min(-1, keepdims=True, initial=np.inf)
                if (least >= self.format.enough(max(2, a.shape[-1]))).all():
                    break
            return least

        return np.concatenate([np.zeros((*self.shape[:-2], 0, 1)), *on_tiles(of_rows, tiles(self.shape, ROWS))], -2)

    def finish(self) -> Array:
        """The product; `recompute` changes its deferred elements in place."""
        deferred = ~(self.least >= self.format.enough(self.inner)) | self.nonfinite[0]
        if self._factors:
            self.product = np.empty(self.shape, self.result) if self._out is None else self._out
            between = np.empty(self.shape, np.bool_)
            self._round_tiles(self.product, between)
            self._factors = None
        else:
            self.product, between = self._between(self.sums, self.squares)
            self.sums = np.zeros(0)
        some = deferred.any() or self.nonfinite[1].any()
        self._defer(between, np.broadcast_to(deferred | self.nonfinite[1], self.shape) if some else None)
        return self.product

    def _round_tiles(self, product: Array, between: Array) -> None:
        """Add up and round tile by tile, on all cores, in memory that tiles use in turns."""
        library, grids, spare = functions(), self._grids(), list[Array]()
        assert library and self._factors
        a, b = self._factors

        def round_tile(place: tuple[slice, slice]) -> None:
            rows, columns = place
            factors, shape = (a[rows], b[:, columns]), product[place].shape
            memory = spare.pop() if spare else np.empty(largest)
            sums, squares = memory[: prod(shape)].reshape(shape), [np.zeros((shape[0], 1)), np.zeros((1, shape[1]))]
            self._sum(library, factors, [grids[0][rows], grids[1][:, columns]], squares, sums)
            product[place], between[place] = self._between(sums, squares)
            spare.append(memory)

        wide = -(-self.shape[1] // max(1, -(-self.shape[1] // ACROSS)))
        steps = HEIGHT, max(1, -(-wide // PANEL)) * PANEL
        largest = prod(map(min, steps, self.shape))
        of_rows, of_columns = map(tiles_of, self.shape, steps)
        on_tiles(round_tile, [(rows, columns) for rows in of_rows for columns in of_columns])

    def _between(self, sums: Array, squares: list[Array]) -> tuple[Array, Array]:
        """Sums, rounded, and which of them are between two numbers, within the errors that follow from squares."""
        count = min(self.inner, SUMMED) + self.parts + 2  # two for the ends of the interval
        gamma = UPWARDS * count * 2.0**-53 / (1 - count * 2.0**-53)
        # Cauchy-Schwarz: magnitudes of products add up to no more than the product of both Euclidean norms.
        of_a, of_b = gamma * np.sqrt(squares[0]), np.sqrt(squares[1])
        shape, bits = sums.shape, f"u{self.result.itemsize}"
        product, between = np.empty(shape, self.result), np.empty(shape, np.bool_)
        if len(shape) == 2 and self.result == np.float32 and (library := functions()):
            addresses = (array.ctypes.data for array in (of_a, of_b, product, between))
            library.round_sums(sums.ctypes.data, *shape, *addresses)
            return product, between
        for rows in tiles(shape, max(1, ROUNDED // max(1, shape[-1]))):
            off = of_a[rows] * of_b
            low, high = (end.astype(self.result) for end in (sums[rows] - off, sums[rows] + off))
            between[rows] = low.view(bits) != high.view(bits)
            product[rows] = high
        return product, between

    def _defer(self, elements: Array, uncertain: Array | None) -> None:
        """Have elements computed exactly: whole rows, or whole matrices of a stack, where these have many of them.

        So are those, if any, that may have infinities or NaN in their sums, or be dot products by definition.
        """
        if uncertain is not None:
            elements |= uncertain
        if not elements.any():
            return
        single = elements.ndim == 2
        axes = -1 if single else (-2, -1)
        crowded = np.count_nonzero(elements, axes) * ALONE > prod(elements.shape[-1 if single else -2 :])
        elements[crowded] = False
        if single and (library := functions()):
            places = np.nonzero(elements if uncertain is None else elements & ~uncertain)
            order = np.lexsort(places)  # by column
            for start in range(0, len(order), DOTS):
                part = tuple(np.ascontiguousarray(index[order[start : start + DOTS]]) for index in places)
                self.deferred.append(Dots(library, self.product, part, self.exponents))
            elements = np.zeros((0, 0), bool) if uncertain is None else elements & uncertain
        for kind, step in (
            (crowded, ROWS if single else max(1, ROWS // elements.shape[-2])),
            (elements, max(1, TERMS // max(1, self.inner))),
        ):
            places = np.nonzero(kind)
            for start in range(0, len(places[0]), step):
                part = tuple(index[start : start + step] for index in places)
                self.deferred.append(Deferred(self.product, part, self.exponents, self.nonfinite))

    def needs_recompute(self) -> bool:
        """Whether `recompute` has to see every part (again) before the product is final."""
        return bool(self.deferred)

    def recompute(self, a: Array, b: Array) -> None:
        """Compute the deferred elements: the next part, from the first one on."""
        self.seen += a.shape[-1]
        on_tiles(lambda deferred: deferred.add(a, b), self.deferred)
        if self.seen < self.inner:
            return
        self.seen = 0
        self.uncertain += sum(deferred.finish() for deferred in self.deferred)
        self.deferred = [deferred for deferred in self.deferred if deferred.exact and deferred.exact.needs_recompute()]


def product_on_cpu(
    dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any], whole: tuple[Array, Array] | None = None,
    out: Array | None = None,
) -> Any:  # fmt: skip
    """The fastest product on the CPU for these dtypes; `whole`: both factors, if one part is all of them."""
    if whole and cpu_direct.suits(result, *whole) and (library := cpu_direct.functions()):
        return DirectProduct(library, dtypes, result, out)
    narrow = result.kind == "f" and result.itemsize < 8
    return NarrowCpuProduct(result, whole is not None, out) if narrow else CpuProduct(dtypes, result)


def cpu_bytes(
    dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any], sizes: tuple[int, int, int, int]
) -> int:
    """Approximate memory of a product on the CPU, besides the given parts of the factors and the result.

    Parameters
    ----------
    dtypes, result, sizes
        As of `kernels.matmul.memory.device_bytes`.
    """
    matrices, rows, part, columns = sizes
    if result.kind == "f" and result.itemsize < 8:  # sums, and what rounding them takes
        return matrices * (16 * rows * columns + 4 * part * (rows + columns))
    floats = result.name in FORMATS
    pieces = [-(-(bits_of(dtype) + 1) // PIECE) for dtype in dtypes]
    sums, part = 8 * (sum(pieces) - 1) + 16 * floats, min(part, INNER)
    nbytes = rows * columns * sums + min(rows, ROWS) * columns * (128 if floats else 48)
    for lines, count in zip((rows, columns), pieces, strict=True):
        nbytes += lines * part * (8 * count + 32)
    return matrices * nbytes


def functions() -> ctypes.CDLL | None:
    """What is compiled; None without a C++ compiler."""
    library = cxx.library(SOURCE)
    if library is not None:
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        types: dict[str, tuple[Any, ...]] = {
            "add_products": (*[pointer, size, pointer, pointer] * 2, *[size] * 4, ctypes.c_int, pointer, pointer),
            "round_sums": (pointer, size, size, *[pointer] * 4),
            "add_dots": (*[pointer, size, pointer] * 2, size, size, pointer, pointer, size, pointer, pointer),
        }
        library.memory_numbers.argtypes, library.memory_numbers.restype = (size,), size
        for name, arguments in types.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, None
    return library


def _rounded(values: Array, grid: Array) -> Array:
    """Numbers rounded to multiples of the float64 spacing at `grid`, ties to even."""
    out = np.add(values, grid, dtype=np.float64)
    out -= grid
    return out
