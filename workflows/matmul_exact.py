"""One element of a matrix product as it is defined, in Python's numbers: plain and slow."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from operator import mul

from kernels.matmul.formats import BITS, HALF_WAY, LOST, Format


def exact_integer(row: Sequence[int], column: Sequence[int]) -> int:
    """The sum of products."""
    return sum(map(mul, row, column))


def exact_float(row: Sequence[float], column: Sequence[float], format: Format) -> float:
    """The sum of products of a row and a column, each scaled by its largest magnitude and rounded to `format.kept`
    bits; the sum rounded once to the format. Where that may be too far off, the sum of rounded products, from the first
    on. With infinities or NaN what IEEE 754 says of that sum without rounding.
    """
    if not all(map(math.isfinite, (*row, *column))):
        total = sum(_product(x, y) for x, y in zip(row, column, strict=True))
        return math.nan if math.isnan(total) else total  # of whichever sign the processor gives it
    exponents = [math.frexp(max(map(abs, values), default=0.0))[1] for values in (row, column)]
    # Below 2**-1074 ldexp rounds, which does not matter: such numbers become zero.
    integers = [
        [round(math.ldexp(value, format.kept - exponent)) for value in values]
        for values, exponent in zip((row, column), exponents, strict=True)
    ]
    if is_certain((row, column), integers, exponents, format):
        return rounded(exact_integer(*integers), sum(exponents) - 2 * format.kept, format)
    found = _in_order(row, column)
    shift = 0
    if not math.isfinite(found):
        shift = sum(exponents) - 2 * HALF_WAY
        scaled = [[math.ldexp(value, HALF_WAY - exponent) for value in values]
                  for values, exponent in zip((row, column), exponents, strict=True)]  # fmt: skip
        found = _in_order(*scaled)
    numerator, denominator = found.as_integer_ratio()
    return rounded(numerator, shift - denominator.bit_length() + 1, format) if found else 0.0


def is_certain(
    lines: Sequence[Sequence[float]], integers: Sequence[Sequence[int]], exponents: Sequence[int], format: Format
) -> bool:
    """Whether a row and a column, and the integers that they became, tell that the product of these is near enough."""
    places = [[k for k, value in enumerate(line) if value] for line in lines]
    losses = []
    for line, whole, exponent in zip(lines, integers, exponents, strict=True):
        moved = 0.0  # in units of the integers; exact, since the scaled value has no more bits than the value
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
    """The sum of products, from the first on, rounded after each operation."""
    total = 0.0
    for x, y in zip(row, column, strict=True):
        total += x * y
    return total


def _product(x: float, y: float) -> float:
    """Of which only counts whether it is infinite, and which way, or undefined."""
    if math.isfinite(x) and math.isfinite(y):
        return 0.0
    return x * y


def rounded(integer: int, exponent: int, format: Format) -> float:
    """An integer times a power of two in a format: to the nearest, ties to even, overflow to infinity."""
    magnitude = abs(integer)
    quantum = max(magnitude.bit_length() + exponent - format.precision, format.least)
    kept = round(Fraction(magnitude) / Fraction(2) ** (quantum - exponent))
    infinite = kept > 0 and kept.bit_length() + quantum > format.top
    return math.copysign(math.inf if infinite else math.ldexp(kept, quantum), -1.0 if integer < 0 else 1.0)
