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
    """A few elements of a stack of products, to be compared with the reference to the last bit.

    Parameters
    ----------
    places
    inner
        Terms in a sum.
    dtypes
        Of A and B.
    columns
        Those of B for these places, if they are known.
    """

    def __init__(
        self, places: Sequence[tuple[int, ...]], inner: int, dtypes: Sequence[np.dtype[Any]],
        columns: Array | None = None,
    ) -> None:  # fmt: skip
        self.places = places
        self.lines = [np.zeros((len(places), inner), dtype) for dtype in dtypes]
        if columns is not None:
            self.lines[1] = columns

    def see(self, number: int, lines: slice, inner: slice, block: Array) -> None:
        """Take what it needs of a part of A (0), which has these rows, or of B (1), which has these columns."""
        for line, place in zip(self.lines[number], self.places, strict=True):
            at = place[-2 + number]
            if lines.start <= at < lines.stop:
                matrix = of_batch(block, place[:-2])
                line[inner] = matrix[:, at - lines.start] if number else matrix[at - lines.start]

    def expected(self, format: Format | None) -> list[float | int]:
        """The elements, of a product of floats of a format, or of integers."""
        return [
            exact_float(row, column, format) if format else exact_integer(row, column)
            for row, column in zip(*self.lines, strict=True)
        ]

    def wrong(self, expected: Sequence[float | int], product: Array) -> list[str]:
        """Errors in a product."""
        wrong = []
        for place, right in zip(self.places, expected, strict=True):
            got = product[place].item()
            if repr(right) != repr(got):  # tells 0.0 from -0.0; NaN is NaN
                wrong.append(f"element {list(place)} of the region: expected {right}, got {got}")
        return wrong


def random_places(shape: Sequence[int], inner: int, random: np.random.Generator) -> list[tuple[int, ...]]:
    """Places of a few elements of a product of this shape with so many terms in a sum."""
    count = max(1, min(RECOMPUTED, RECOMPUTED_PRODUCTS // max(1, inner)))
    return [tuple(int(random.integers(length)) for length in shape) for _ in range(count)]


def wrong_elements(factors: Factors, product: Array, places: Sequence[tuple[int, ...]], format: Format) -> list[str]:
    """Errors in some elements of a product of floats, which have to equal the reference to the last bit."""
    sample = Sample(places, factors.inner, (product.dtype, product.dtype))
    for inner, blocks in zip(factors.slices, factors.slabs(), strict=True):
        for number, (block, length) in enumerate(zip(blocks, (factors.rows, factors.columns), strict=True)):
            sample.see(number, slice(0, length), inner, block)
    return sample.wrong(sample.expected(format), product)
