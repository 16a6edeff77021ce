"""Products of float16 and float32 matrices on the CPU: one product in float64, a few elements exactly.

The error bound of float64 sums of products of the integers of docs/matmul.md is far below half a unit of the result. If
both ends of the interval round to the same number, that is the element. The few others are deferred and computed
exactly, and so are elements that are not certain to be close enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.cpu import ROWS, CpuProduct, Scales, tiles
from kernels.matmul.formats import BITS, FORMATS

SUMMED = 256  # products that BLAS adds up at a time: fewer defer fewer elements, but take longer
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
        self.deferred: list[_Deferred] = []
        self.uncertain = 0

    def measure(self, a: Array, b: Array) -> None:
        """Take the next part into account."""
        super().measure(a.astype(self.result, copy=False), b.astype(self.result, copy=False))

    def add(self, a: Array, b: Array) -> None:
        """Add the products of the next part; all parts have been measured."""
        a, b = a.astype(self.result, copy=False), b.astype(self.result, copy=False)
        # The spacing of float64 next to these numbers is the unit of the integers.
        grids = [np.ldexp(1.5, 52 - self.format.kept + exponents) for exponents in self.exponents]
        b = _on_grid(b, grids[1])
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        if not self.parts:
            self.sums, self.least = np.zeros(shape), np.zeros((*shape[:-1], 1))
            self.squares = [np.zeros(exponents.shape) for exponents in self.exponents]
        self.squares[1] += np.square(b).sum(-2, keepdims=True)
        product = np.empty((min(ROWS, shape[0]), shape[1]) if len(shape) == 2 else shape)
        for rows in tiles(shape, ROWS):
            tile, sums = _on_grid(a[rows], grids[0][rows]), self.sums[rows]
            self.squares[0][rows] += np.einsum("...k,...k->...", tile, tile)[..., None]
            if not self.parts:
                self.least[rows] = self._least(tile, b, self.exponents[0][rows])
            for first in range(0, a.shape[-1], SUMMED):
                ends = slice(first, first + SUMMED)
                sums += np.matmul(tile[..., ends], b[..., ends, :], out=product[: len(sums)])
        self.inner += a.shape[-1]
        self.parts += max(1, -(-a.shape[-1] // SUMMED))

    def _least(self, a: Array, b: Array, exponents: Array) -> Array:
        """In each row, the least sum of products of magnitudes of BITS bits: of the first, or if needed of more."""
        # Sums of zeros are certain; infinities and NaN are deferred anyhow.
        other = (self.largest[1] == 0) | self.nonfinite[1]
        least: Array = np.zeros(0)
        for products in (FIRST, MORE):
            x, y = (
                np.floor(np.abs(factor) * np.ldexp(1.0, BITS - scale)).astype(np.float32)
                for factor, scale in ((a[..., :products], exponents), (b[..., :products, :], self.exponents[1]))
            )
            least = np.where(other, np.inf, np.matmul(x, y)).min(-1, keepdims=True, initial=np.inf)
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
        deferred = np.broadcast_to(deferred, self.sums.shape).copy()
        product, bits = np.empty(self.sums.shape, self.result), f"u{self.result.itemsize}"
        for rows in tiles(product.shape, max(1, ROUNDED // max(1, product.shape[-1]))):
            off = of_a[rows] * of_b
            low, high = (end.astype(self.result) for end in (self.sums[rows] - off, self.sums[rows] + off))
            deferred[rows] |= low.view(bits) != high.view(bits)
            product[rows] = high
        self.sums = np.zeros(0)
        self.product = product
        self._defer(deferred)
        return product

    def _defer(self, elements: Array) -> None:
        """Have elements computed exactly: whole rows, or whole matrices of a stack, where these have many of them."""
        if not elements.any():
            return
        single = elements.ndim == 2
        crowded = elements.mean(-1 if single else (-2, -1)) * ALONE > 1
        elements[crowded] = False
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
        self.deferred = [deferred for deferred in self.deferred if deferred.exact.needs_recompute()]


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


def _on_grid(values: Array, grid: Array) -> Array:
    """Numbers rounded to multiples of the float64 spacing at `grid`, ties to even."""
    rounded: Array = np.add(values, grid, dtype=np.float64)
    rounded -= grid
    return rounded
