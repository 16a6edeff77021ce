"""Elements of a matrix product by its definition, in Python's numbers: plain and slow."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.formats import BITS, HALF_WAY, LOST, Format

RECOMPUTED = 4  # elements of a region, at most
RECOMPUTED_PRODUCTS = 2**16  # in all of them together, unless one element has more

Array = NDArray[Any]
Slabs = Callable[[], Iterator[tuple[Array, Array]]]  # yields the factors part by part: columns of A, rows of B


def exact_integer(row: Sequence[int], column: Sequence[int]) -> int:
    """The sum of products."""
    return sum(map(mul, row, column))


def exact_float(row: Sequence[float], column: Sequence[float], format: Format) -> float:
    """The exact sum of products of a row and a column, each scaled by its largest magnitude and rounded to integers of
    `format.kept` bits, rounded once to the format. If its error may be too large, the sum of rounded products in order.
    With infinities or NaN, the IEEE 754 result of that sum without intermediate rounding.
    """
    if not all(map(math.isfinite, (*row, *column))):
        total = sum(_product(x, y) for x, y in zip(row, column, strict=True))
        return math.nan if math.isnan(total) else total  # NaN without the sign that the processor gave it
    exponents = [math.frexp(max(map(abs, values), default=0.0))[1] for values in (row, column)]
    # Below 2**-1074 ldexp rounds, but such numbers become zero anyhow.
    integers = [
        [round(math.ldexp(value, format.kept - exponent)) for value in values]
        for values, exponent in zip((row, column), exponents, strict=True)
    ]
    if is_certain((row, column), integers, exponents, format):
        return rounded(exact_integer(*integers), sum(exponents) - 2 * format.kept, format)
    total = _in_order(row, column)
    shift = 0
    if not math.isfinite(total):
        shift = sum(exponents) - 2 * HALF_WAY
        scaled = [[math.ldexp(value, HALF_WAY - exponent) for value in values]
                  for values, exponent in zip((row, column), exponents, strict=True)]  # fmt: skip
        total = _in_order(*scaled)
    numerator, denominator = total.as_integer_ratio()
    return rounded(numerator, shift - denominator.bit_length() + 1, format) if total else 0.0


def is_certain(
    lines: Sequence[Sequence[float]], integers: Sequence[Sequence[int]], exponents: Sequence[int], format: Format
) -> bool:
    """Whether the product of the integers that a row and a column were rounded to is certainly close enough."""
    places = [[k for k, value in enumerate(line) if value] for line in lines]
    losses = []
    for line, whole, exponent in zip(lines, integers, exponents, strict=True):
        moved = 0.0  # in units of the integers; exact, because scaling adds no bits
        for value, integer in zip(line, whole, strict=True):
            if value:
                scaled = math.ldexp(value, format.kept - exponent)
                moved = max(moved, abs(scaled - integer) if integer else max(abs(scaled), sys.float_info.min))
        losses.append(max(math.frexp(moved)[1] - format.kept + BITS, 1 - LOST) if moved else None)
    if losses == [None, None] or not all(places) or max(p[0] for p in places) > min(p[-1] for p in places):
        return True
    magnitudes = [[abs(integer) >> (format.kept - BITS) for integer in whole] for whole in integers]
    sizes = [float(sum(all_of) + len(p)) for all_of, p in zip(magnitudes, places, strict=True)]
    total: int = min(sum(map(mul, *magnitudes)), 2**32 - 1)
    of_a, of_b = losses
    bound: float = 0.0 if of_a is None else math.ldexp(sizes[1], of_a + format.precision)
    bound += 0.0 if of_b is None else math.ldexp(sizes[0], of_b + format.precision)
    if of_a is not None and of_b is not None:
        bound += math.ldexp(len(lines[0]), of_a + of_b + format.precision)
    return bound <= total * (min(len(lines[0]) - 1, (1 << format.precision - 3)) / 2)


def _in_order(row: Sequence[float], column: Sequence[float]) -> float:
    """The sum of products in order, rounded after each operation."""
    total = 0.0
    for x, y in zip(row, column, strict=True):
        total += x * y
    return total


def _product(x: float, y: float) -> float:
    """The product if it is infinite or NaN, else zero."""
    if math.isfinite(x) and math.isfinite(y):
        return 0.0
    return x * y


def rounded(integer: int, exponent: int, format: Format) -> float:
    """An integer times a power of two, rounded to a format: to nearest, ties to even, overflow to infinity."""
    magnitude = abs(integer)
    quantum = max(magnitude.bit_length() + exponent - format.precision, format.least)
    kept = round(Fraction(magnitude) / Fraction(2) ** (quantum - exponent))
    infinite = kept > 0 and kept.bit_length() + quantum > format.top
    return math.copysign(math.inf if infinite else math.ldexp(kept, quantum), -1.0 if integer < 0 else 1.0)


class Sample:
    """A few elements of a stack of products, to be compared with the reference to the last bit."""

    def __init__(self, product: Array, places: Sequence[tuple[int, ...]]) -> None:
        self.product, self.places = product, places
        self.rows: list[list[Any]] = [[] for _ in self.places]
        self.columns: list[list[Any]] = [[] for _ in self.places]

    def collect(self, a: Array, b: Array) -> None:
        """Collect the next part of their rows and columns."""
        for number, (*batch, i, j) in enumerate(self.places):
            self.rows[number] += of_batch(a, batch)[i].tolist()
            self.columns[number] += of_batch(b, batch)[:, j].tolist()

    def collecting(self, slabs: Slabs) -> Slabs:
        """The same slabs for another check; its first pass over them collects the rows and columns of the sample."""
        first = True

        def collected() -> Iterator[tuple[Array, Array]]:
            nonlocal first
            for a, b in slabs():
                if first:
                    self.collect(a, b)
                yield a, b
            first = False

        return collected

    def wrong(self, format: Format | None) -> list[str]:
        """Errors, for a product of floats of a format, or of integers."""
        wrong = []
        for place, row, column in zip(self.places, self.rows, self.columns, strict=True):
            expected = exact_float(row, column, format) if format else exact_integer(row, column)
            got = self.product[place].item()
            if repr(expected) != repr(got):  # tells 0.0 from -0.0; NaN is NaN
                wrong.append(f"element {list(place)} of the region: expected {expected}, got {got}")
        return wrong


def random_places(product: Array, inner: int, random: np.random.Generator) -> list[tuple[int, ...]]:
    """Places of a few elements of a product with so many terms in a sum."""
    count = max(1, min(RECOMPUTED, RECOMPUTED_PRODUCTS // max(1, inner)))
    return [tuple(int(random.integers(length)) for length in product.shape) for _ in range(count)]


def wrong_elements(slabs: Slabs, product: Array, places: Sequence[tuple[int, ...]], format: Format) -> list[str]:
    """Errors in some elements of a product of floats, which have to equal the reference to the last bit."""
    sample = Sample(product, places)
    for a, b in slabs():
        sample.collect(a, b)
    return sample.wrong(format)


def of_batch(block: Array, batch: Sequence[int]) -> Array:
    """The matrix of a stack that a matrix of the product is computed from."""
    own = batch[len(batch) - (block.ndim - 2) :]
    matrix: Array = block[tuple(0 if length == 1 else index for index, length in zip(own, block.shape, strict=False))]
    return matrix
