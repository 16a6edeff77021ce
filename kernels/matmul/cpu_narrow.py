"""Products of float16 and float32 matrices on the CPU: one product in float64, a few elements exactly.

Of two matrices `cpu_sums.hpp` makes it, which rounds what it multiplies: BLAS needs memory for rounded factors, and
more than twice the time where it does not know the CPU. It multiplies stacks, and everything without a compiler.

The error bound of float64 sums of products of the integers of docs/matmul.md is far below half a unit of the result. If
both ends of the interval round to the same number, that is the element. The few others are deferred and computed
exactly, and so are elements that are not certain to be close enough.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.matmul.cpu import ROWS, CpuProduct, Scales, tiles
from kernels.matmul.formats import BITS, FORMATS
from kernels.matmul.rounding import to_float

SOURCE = Path(__file__).with_suffix(".cpp")

# As in cpu_narrow.cpp.
COLUMNS, PADDING = 16, 8

SUMMED = 256  # products that are added up at a time: fewer defer fewer elements, but take longer
CACHE_LINE = 64
FIRST, MORE = 32, 1024  # products that mostly, or else sometimes, show an element to be certain; exact in float32
ROUNDED = 2**15  # elements that are rounded at a time
UPWARDS = 1 + 2.0**-20  # covers the rounding of the bound itself
ALONE = 32  # where fewer than one element in so many is deferred, each is computed on its own
TERMS = 2**18  # of such elements, at a time

Array = NDArray[Any]


class NarrowCpuProduct(Scales):
    """The product of two stacks of float16 or float32 matrices; the interface and the bits are those of `CpuProduct`.

    Parameters
    ----------
    result
        Dtype of the factors and of the product.
    """

    scaled = True

    def __init__(self, result: np.dtype[Any]) -> None:
        super().__init__()
        self.result, self.format = result, FORMATS[result.name]
        self.squares: list[Array] = []  # sums of squares of rows and columns
        self.sums: Array = np.zeros(0)  # of products, in float64
        self.least: Array = np.zeros(0)  # in each row, the least sum of products of top bits
        self.inner = self.parts = self.seen = 0  # products in a sum; partial sums; products seen by `recompute`
        self.deferred: list[_Deferred | _Dots] = []
        self.uncertain = 0

    def measure(self, a: Array, b: Array) -> None:
        """Take the next part into account."""
        super().measure(a.astype(self.result, copy=False), b.astype(self.result, copy=False))

    def add(self, a: Array, b: Array) -> None:
        """Add the products of the next part; all parts have been measured."""
        a, b = a.astype(self.result, copy=False), b.astype(self.result, copy=False)
        # The spacing of float64 next to these numbers is the unit of the integers.
        grids = [np.ldexp(1.5, 52 - self.format.kept + exponents) for exponents in self.exponents]
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        if not self.parts:
            self.sums, self.least = np.empty(shape), np.zeros((*shape[:-1], 1))
            self.squares = [np.zeros(exponents.shape) for exponents in self.exponents]
            for rows in tiles(shape, ROWS):
                self.least[rows] = self._least(a[rows], b, grids[0][rows], grids[1], self.exponents[0][rows])
        if len(shape) == 2 and a.shape[-1] and (library := functions()):
            self._add_compiled(library, _lines(a), _lines(b), grids)
        else:
            self._add(a, b, grids)
        self.inner += a.shape[-1]
        self.parts += max(1, -(-a.shape[-1] // SUMMED))

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

    def _add_compiled(self, library: ctypes.CDLL, a: Array, b: Array, grids: list[Array]) -> None:
        memory = np.empty(library.memory_numbers(SUMMED) + CACHE_LINE // 8)
        line = memory.ctypes.data + -memory.ctypes.data % CACHE_LINE
        of_a, of_b = ((grid.ctypes.data, square.ctypes.data) for grid, square in zip(grids, self.squares, strict=True))
        library.add_products(*_address(a), *of_a, *_address(b), *of_b, *a.shape, b.shape[1], SUMMED, not self.parts,
                             self.sums.ctypes.data, line)  # fmt: skip

    def _least(self, a: Array, b: Array, grid_a: Array, grid_b: Array, exponents: Array) -> Array:
        """In each row, the least sum of products of magnitudes of BITS bits: of the first, or if needed of more."""
        # Sums of zeros are certain; infinities and NaN are deferred anyhow.
        other = (self.largest[1] == 0) | self.nonfinite[1]
        least: Array = np.zeros(0)
        for products in (FIRST, MORE):
            x, y = (
                np.floor(np.abs(_rounded(factor, grid)) * np.ldexp(1.0, BITS - scale)).astype(np.float32)
                for factor, grid, scale in ((a[..., :products], grid_a, exponents),
                                            (b[..., :products, :], grid_b, self.exponents[1]))
            )  # fmt: skip
            sums = np.matmul(x, y)
            least = (np.where(other, np.inf, sums) if other.any() else sums).min(-1, keepdims=True, initial=np.inf)
            if (least >= self.format.enough(max(2, a.shape[-1]))).all():
                break
        return least

    def finish(self) -> Array:
        """The product; `recompute` changes its deferred elements in place."""
        count = min(self.inner, SUMMED) + self.parts + 2  # two for the ends of the interval
        gamma = UPWARDS * count * 2.0**-53 / (1 - count * 2.0**-53)
        # Cauchy-Schwarz: magnitudes of products add up to no more than the product of both Euclidean norms.
        of_a, of_b = gamma * np.sqrt(self.squares[0]), np.sqrt(self.squares[1])
        deferred = ~(self.least >= self.format.enough(self.inner)) | self.nonfinite[0] | self.nonfinite[1]
        self.product, between = self._between(of_a, of_b)
        self.sums = np.zeros(0)
        self._defer(between | deferred, deferred)
        return self.product

    def _between(self, of_a: Array, of_b: Array) -> tuple[Array, Array]:
        """The product, rounded, and which elements are between two numbers, within errors of_a times of_b."""
        shape, bits = self.sums.shape, f"u{self.result.itemsize}"
        product, between = np.empty(shape, self.result), np.empty(shape, np.bool_)
        if len(shape) == 2 and self.result == np.float32 and (library := functions()):
            addresses = (array.ctypes.data for array in (of_a, of_b, product, between))
            library.round_sums(self.sums.ctypes.data, *shape, *addresses)
            return product, between
        for rows in tiles(shape, max(1, ROUNDED // max(1, shape[-1]))):
            off = of_a[rows] * of_b
            low, high = (end.astype(self.result) for end in (self.sums[rows] - off, self.sums[rows] + off))
            between[rows] = low.view(bits) != high.view(bits)
            product[rows] = high
        return product, between

    def _defer(self, elements: Array, uncertain: Array) -> None:
        """Have elements computed exactly: whole rows, or whole matrices of a stack, where these have many of them.

        `uncertain` are those that may have infinities or NaN in their sums, or be dot products by definition.
        """
        if not elements.any():
            return
        single = elements.ndim == 2
        crowded = elements.mean(-1 if single else (-2, -1)) * ALONE > 1
        elements[crowded] = False
        if single and (library := functions()) and len((places := np.nonzero(elements & ~uncertain))[0]):
            self.deferred.append(_Dots(library, self.product, places, self.exponents))
            elements &= uncertain
        for kind, step in (
            (crowded, ROWS if single else max(1, ROWS // elements.shape[-2])),
            (elements, max(1, TERMS // max(1, self.inner))),
        ):
            places = np.nonzero(kind)
            for start in range(0, len(places[0]), step):
                part = tuple(index[start : start + step] for index in places)
                self.deferred.append(_Deferred(self.product, part, self.exponents, self.nonfinite))

    def needs_recompute(self) -> bool:
        """Whether `recompute` has to see every part (again) before the product is final."""
        return bool(self.deferred)

    def recompute(self, a: Array, b: Array) -> None:
        """Compute the deferred elements: the next part, from the first one on."""
        self.seen += a.shape[-1]
        for deferred in self.deferred:
            deferred.add(a, b)
        if self.seen < self.inner:
            return
        self.seen = 0
        self.uncertain += sum(deferred.finish() for deferred in self.deferred)
        self.deferred = [deferred for deferred in self.deferred if deferred.exact and deferred.exact.needs_recompute()]


class _Dots:
    """Elements of a product of two matrices that are no dot products by definition, likewise: compiled."""

    exact = None

    def __init__(self, library: ctypes.CDLL, product: Array, places: tuple[Array, ...], exponents: list[Array]) -> None:
        self._library, self.product = library, product
        order = np.lexsort(places)  # by column
        self.places = tuple(np.ascontiguousarray(index[order]) for index in places)
        self._exponents, self._sums = exponents, np.zeros((len(order), 2), np.uint64)
        self._powers = [np.ldexp(1.0, FORMATS[product.dtype.name].kept - of) for of in exponents]

    def add(self, a: Array, b: Array) -> None:
        """Add the products of the next part."""
        (a, b), (rows, columns) = map(_lines, (a, b)), self.places
        memory = np.empty((COLUMNS + 1, len(b) + PADDING), np.int64)
        of_rows, of_columns, *others = (
            array.ctypes.data for array in (*self._powers, rows, columns, memory, self._sums)
        )
        self._library.add_dots(*_address(a), of_rows, *_address(b), of_columns, b.shape[1], len(b), *others[:2],
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


class _Deferred:
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


def product_on_cpu(dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any]) -> Any:
    """The faster of the two products on the CPU for these dtypes."""
    narrow = result.kind == "f" and result.itemsize < 8
    return NarrowCpuProduct(result) if narrow else CpuProduct(dtypes, result)


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


def _lines(values: Array) -> Array:
    """Rows of float32 without gaps between their numbers."""
    values = values.astype(np.float32, copy=False)
    return values if values.strides[1] == 4 and values.strides[0] >= 0 else np.ascontiguousarray(values)


def _address(lines: Array) -> tuple[int, int]:
    """Address of rows, and from one to the next in elements."""
    return lines.ctypes.data, lines.strides[0] // 4
