"""Products of float16 and of float32 matrices on the CPU: one product in float64, and exactly what that leaves open.

Sums of products of the integers of docs/matmul.md are off in float64 by no more than a bound, which is far below half a
unit of what they are rounded to. Where both ends of what an element may be round to the same number, that is it. The
few others are computed once more, exactly, and so are those that are not certain to be near enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.cpu import ROWS, ProductOnCpu, Scales, tiles
from kernels.matmul.formats import BITS, FORMATS

SUMMED = 256  # products that BLAS adds up at a time: fewer leave less open, and take more time each
FIRST, MORE = 32, 1024  # products that mostly tell, and those that may, that an element is certain; exact in float32
ROUNDED = 2**15  # elements that are rounded at a time
UPWARDS = 1 + 2.0**-20  # above what rounding takes from the bound itself
ALONE = 32  # where fewer than one element in so many is open, each is computed for itself
TERMS = 2**18  # of such elements at a time

Array = NDArray[Any]


class NarrowProductOnCpu(Scales):
    """The product of two stacks of matrices of float16 or float32; as `ProductOnCpu`, with the same bits.

    Parameters
    ----------
    result
        Dtype of the factors and of the product.
    """

    scaled = True

    def __init__(self, result: np.dtype[Any]) -> None:
        super().__init__()
        self.result, self.format = result, FORMATS[result.name]
        self.squares: list[Array] = []  # sums of their squares
        self.near: Array = np.zeros(0)  # the sums in float64
        self.least: Array = np.zeros(0)  # by row, the least sum of products of first bits that was found
        self.inner = self.parts = self.seen = 0  # products in a sum; parts in which they are added up; seen once more
        self.again: list[_Again] = []
        self.doubtful = 0

    def measure(self, a: Array, b: Array) -> None:
        """See the next part."""
        super().measure(a.astype(self.result, copy=False), b.astype(self.result, copy=False))

    def add(self, a: Array, b: Array) -> None:
        """Add the products of the next part; every part was measured before."""
        a, b = a.astype(self.result, copy=False), b.astype(self.result, copy=False)
        # Next to these numbers the spacing of float64 is that of the integers.
        grids = [np.ldexp(1.5, 52 - self.format.kept + exponents) for exponents in self.exponents]
        b = _on_grid(b, grids[1])
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        if not self.parts:
            self.near, self.least = np.zeros(shape), np.zeros((*shape[:-1], 1))
            self.squares = [np.zeros(exponents.shape) for exponents in self.exponents]
        self.squares[1] += np.square(b).sum(-2, keepdims=True)
        product = np.empty((min(ROWS, shape[0]), shape[1]) if len(shape) == 2 else shape)
        for rows in tiles(shape, ROWS):
            tile, near = _on_grid(a[rows], grids[0][rows]), self.near[rows]
            self.squares[0][rows] += np.einsum("...k,...k->...", tile, tile)[..., None]
            if not self.parts:
                self.least[rows] = self._least(tile, b, self.exponents[0][rows])
            for first in range(0, a.shape[-1], SUMMED):
                ends = slice(first, first + SUMMED)
                near += np.matmul(tile[..., ends], b[..., ends, :], out=product[: len(near)])
        self.inner += a.shape[-1]
        self.parts += max(1, -(-a.shape[-1] // SUMMED))

    def _least(self, a: Array, b: Array, exponents: Array) -> Array:
        """By row, the least sum of products of magnitudes of BITS bits: of the first ones, or where needed of more."""
        # Sums of zeros are certain, and of infinities and NaN others take care.
        other = (self.largest[1] == 0) | self.wild[1]
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
        """The product, but for elements that change with `redo`."""
        count = min(self.inner, SUMMED) + self.parts + 2  # two for both ends
        gamma = UPWARDS * count * 2.0**-53 / (1 - count * 2.0**-53)
        # Magnitudes of products add up to no more than the product of the lengths of row and column.
        of_a, of_b = gamma * np.sqrt(self.squares[0]), np.sqrt(self.squares[1])
        left = ~(self.least >= self.format.enough(self.inner)) | self.wild[0] | self.wild[1]
        left = np.broadcast_to(left, self.near.shape).copy()
        product, bits = np.empty(self.near.shape, self.result), f"u{self.result.itemsize}"
        for rows in tiles(product.shape, max(1, ROUNDED // max(1, product.shape[-1]))):
            off = of_a[rows] * of_b
            low, high = (end.astype(self.result) for end in (self.near[rows] - off, self.near[rows] + off))
            left[rows] |= low.view(bits) != high.view(bits)
            product[rows] = high
        self.near = np.zeros(0)
        self.product = product
        self._leave(left)
        return product

    def _leave(self, left: Array) -> None:
        """Have elements computed again: with all of their row, or of their matrix of a stack, where it has many."""
        if not left.any():
            return
        single = left.ndim == 2
        crowded = left.mean(-1 if single else (-2, -1)) * ALONE > 1
        left[crowded] = False
        for kind, step in (
            (crowded, ROWS if single else max(1, ROWS // left.shape[-2])),
            (left, max(1, TERMS // max(1, self.inner))),
        ):
            places = np.nonzero(kind)
            for start in range(0, len(places[0]), step):
                part = tuple(index[start : start + step] for index in places)
                self.again.append(_Again(self.product, part, self.exponents, self.wild))

    def unsettled(self) -> bool:
        """Whether every part is to be seen again, by `redo`, before the product is what it should be."""
        return bool(self.again)

    def redo(self, a: Array, b: Array) -> None:
        """Compute what was left open: the next part, from the first one on."""
        self.seen += a.shape[-1]
        for again in self.again:
            again.add(a, b)
        if self.seen < self.inner:
            return
        self.seen = 0
        self.doubtful += sum(again.finish() for again in self.again)
        self.again = [again for again in self.again if again.exact.unsettled()]


class _Again:
    """Some elements of a product, or rows of a matrix, or matrices of a stack: computed exactly and put in place."""

    def __init__(self, product: Array, places: tuple[Array, ...], exponents: list[Array], wild: list[Array]) -> None:
        self.product, self.places = product, places
        self.exact = ProductOnCpu((product.dtype, product.dtype), product.dtype)
        self.exact.exponents, self.exact.wild = self._chosen(*exponents), self._chosen(*wild)
        self.found: Array | None = None

    def _chosen(self, a: Array, b: Array) -> list[Array]:
        """What goes into them, as a stack; of elements of rows and columns."""
        if self.product.ndim == 2 and len(self.places) == 1:
            return [a[self.places], b]
        batch = self.product.shape[:-2]
        a, b = (np.broadcast_to(factor, (*batch, *factor.shape[-2:])) for factor in (a, b))
        if len(self.places) < self.product.ndim:
            return [a[self.places], b[self.places]]
        *outer, rows, columns = self.places
        return [a[(*outer, rows)][:, None], np.swapaxes(b, -1, -2)[(*outer, columns)][..., None]]

    def add(self, a: Array, b: Array) -> None:
        """See the next part."""
        (self.exact.add if self.found is None else self.exact.redo)(*self._chosen(a, b))

    def finish(self) -> int:
        """Put them in place once all parts were seen, unless these have to be seen again; how many are doubtful."""
        doubtful = 0
        if self.found is None:
            self.found = self.exact.finish()
            doubtful = self.exact.doubtful
        if not self.exact.unsettled():
            self.product[self.places] = self.found.reshape(self.product[self.places].shape)
        return doubtful


def product_on_cpu(dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any]) -> Any:
    """The faster one of the products on the CPU, of factors of these dtypes."""
    narrow = result.kind == "f" and result.itemsize < 8
    return NarrowProductOnCpu(result) if narrow else ProductOnCpu(dtypes, result)


def _on_grid(values: Array, grid: Array) -> Array:
    """Numbers rounded to multiples of the spacing next to the grid's, ties to even."""
    rounded: Array = np.add(values, grid, dtype=np.float64)
    rounded -= grid
    return rounded
