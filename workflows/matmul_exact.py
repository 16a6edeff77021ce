"""One element of a matrix product as it is defined, in Python's integers: plain, slow, exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from operator import mul

from kernels.modular import Format


def exact_integer(row: Sequence[int], column: Sequence[int]) -> int:
    """The sum of products."""
    return sum(map(mul, row, column))


def exact_float(row: Sequence[float], column: Sequence[float], format: Format) -> float:
    """The sum of products of a row and a column, each scaled by its largest magnitude and rounded to `format.kept`
    bits; the sum rounded once to the format. With infinities or NaN what IEEE 754 says of that sum without rounding.
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
    return rounded(exact_integer(*integers), sum(exponents) - 2 * format.kept, format)


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
