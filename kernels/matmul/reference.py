"""Elements of a matrix product by its definition, in Python's numbers: plain and slow."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import starmap
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.formats import BITS, HALF_WAY, LOST, Format

Array = NDArray[Any]

PART = 2**14


def _pairs(row: Array, column: Array) -> Iterator[tuple[Any, Any]]:
    """Their numbers as Python's, which take many times the memory: a part at a time."""
    for first in range(0, len(row), PART):
        yield from zip(*(line[first : first + PART].tolist() for line in (row, column)), strict=True)


def exact_integer(row: Array, column: Array) -> int:
    """The sum of products."""
    return sum(starmap(mul, _pairs(row, column)))


def exact_float(row: Array, column: Array, format: Format) -> float:
    """The exact sum of products of a row and a column, each scaled by its largest magnitude and rounded to integers of
    `format.kept` bits, rounded once to the format. If its error may be too large, the sum of rounded products in order.
    With infinities or NaN, the IEEE 754 result of that sum without intermediate rounding.
    """
    lines = [np.asarray(line, np.float64) for line in (row, column)]
    if not all(np.isfinite(line).all() for line in lines):
        total = sum(starmap(_product, _pairs(row, column)))
        return math.nan if math.isnan(total) else total  # NaN without the sign that the processor gave it
    exponents = [math.frexp(np.abs(line).max(initial=0))[1] for line in lines]
    # Below 2**-1074 ldexp rounds, but such numbers become zero anyhow.
    scaled = [np.ldexp(line, format.kept - exponent) for line, exponent in zip(lines, exponents, strict=True)]
    if is_certain(lines, scaled, format):
        integers = (np.rint(line).astype(np.int64) for line in scaled)
        return rounded(exact_integer(*integers), sum(exponents) - 2 * format.kept, format)
    total = _in_order(row, column)
    shift = 0
    if not math.isfinite(total):
        shift = sum(exponents) - 2 * HALF_WAY
        halves = (np.ldexp(line, HALF_WAY - exponent) for line, exponent in zip(lines, exponents, strict=True))
        total = _in_order(*halves)
    numerator, denominator = total.as_integer_ratio()
    return rounded(numerator, shift - denominator.bit_length() + 1, format) if total else 0.0


def is_certain(lines: Sequence[Array], scaled: Sequence[Array], format: Format) -> bool:
    """Whether the product of a row and a column is certainly close enough to that of the integers that they are rounded
    to once they are scaled."""
    places = [np.flatnonzero(line) for line in lines]  # scaling may make a number zero
    losses = []
    for line, of_line in zip(scaled, places, strict=True):
        values = line[of_line]
        whole = np.rint(values)
        lost = np.abs(values - whole)  # in units of the integers; exact, because scaling adds no bits
        lost[whole == 0] = np.maximum(lost[whole == 0], sys.float_info.min)
        moved = float(lost.max(initial=0))
        losses.append(max(math.frexp(moved)[1] - format.kept + BITS, 1 - LOST) if moved else None)
    if losses == [None, None] or not all(map(len, places)) or max(p[0] for p in places) > min(p[-1] for p in places):
        return True
    magnitudes = [np.abs(np.rint(line)).astype(np.int64) >> (format.kept - BITS) for line in scaled]
    sizes = [float(all_of.sum() + len(p)) for all_of, p in zip(magnitudes, places, strict=True)]
    total: int = min(int(np.dot(*magnitudes)), 2**32 - 1)
    of_a, of_b = losses
    bound: float = 0.0 if of_a is None else math.ldexp(sizes[1], of_a + format.precision)
    bound += 0.0 if of_b is None else math.ldexp(sizes[0], of_b + format.precision)
    if of_a is not None and of_b is not None:
        bound += math.ldexp(len(scaled[0]), of_a + of_b + format.precision)
    return bound <= total * (min(len(scaled[0]) - 1, (1 << format.precision - 3)) / 2)


def _in_order(row: Array, column: Array) -> float:
    """The sum of products in order, rounded after each operation."""
    total = 0.0
    for x, y in _pairs(row, column):
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
