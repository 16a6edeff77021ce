"""Some elements of a product against its definition, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.factors import Factors, of_batch
from kernels.matmul.formats import Format
from kernels.matmul.reference import exact_float, exact_integer

RECOMPUTED = 4  # elements of a region, at most
RECOMPUTED_PRODUCTS = 2**16  # in all of them together, unless one element has more

Array = NDArray[Any]


class Sample:
    """A few elements of a stack of products with so many terms in a sum, to be compared with the reference to the last
    bit; A and B have these dtypes."""

    def __init__(
        self, product: Array, places: Sequence[tuple[int, ...]], inner: int, dtypes: Sequence[np.dtype[Any]]
    ) -> None:
        self.product, self.places = product, places
        self.lines = [np.zeros((len(places), inner), dtype) for dtype in dtypes]

    def see(self, number: int, lines: slice, inner: slice, block: Array) -> None:
        """Take what it needs of a part of A (0), which has these rows, or of B (1), which has these columns."""
        for line, place in zip(self.lines[number], self.places, strict=True):
            at = place[-2 + number]
            if lines.start <= at < lines.stop:
                matrix = of_batch(block, place[:-2])
                line[inner] = matrix[:, at - lines.start] if number else matrix[at - lines.start]

    def wrong(self, format: Format | None) -> list[str]:
        """Errors, for a product of floats of a format, or of integers."""
        wrong = []
        for place, row, column in zip(self.places, *(lines.tolist() for lines in self.lines), strict=True):
            expected = exact_float(row, column, format) if format else exact_integer(row, column)
            got = self.product[place].item()
            if repr(expected) != repr(got):  # tells 0.0 from -0.0; NaN is NaN
                wrong.append(f"element {list(place)} of the region: expected {expected}, got {got}")
        return wrong


def random_places(product: Array, inner: int, random: np.random.Generator) -> list[tuple[int, ...]]:
    """Places of a few elements of a product with so many terms in a sum."""
    count = max(1, min(RECOMPUTED, RECOMPUTED_PRODUCTS // max(1, inner)))
    return [tuple(int(random.integers(length)) for length in product.shape) for _ in range(count)]


def wrong_elements(factors: Factors, product: Array, places: Sequence[tuple[int, ...]], format: Format) -> list[str]:
    """Errors in some elements of a product of floats, which have to equal the reference to the last bit."""
    sample = Sample(product, places, factors.inner, (product.dtype, product.dtype))
    for inner, blocks in zip(factors.slices, factors.slabs(), strict=True):
        for number, (block, length) in enumerate(zip(blocks, (factors.rows, factors.columns), strict=True)):
            sample.see(number, slice(0, length), inner, block)
    return sample.wrong(format)
