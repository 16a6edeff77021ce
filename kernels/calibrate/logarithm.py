"""Correctly rounded logarithms of float64 arrays, of NumPy or CuPy: the same bits on both.

A number is 2**e · c · (1 + r), with c a multiple of 1/128 and |r| < 2**-7. Its logarithm e log 2 + log c + log1p(r) is
summed in pairs of float64 (T. J. Dekker, "A floating-point technique for extending the available precision", 1971) to
a relative error below 2**-66. Where that error could change the rounding, about one number in 4,000, `decimal` decides
(A. Ziv, "Fast evaluation of elementary mathematical functions with correctly rounded last bit", 1991).
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module

DIGITS = 60  # of decimal: no logarithm of a float64 is that close to halfway between two of them (Lefèvre, Muller 1998)
ERROR = 2.0**-66
CELLS, FIRST, LAST = 128, 90, 182
SERIES = tuple((-1) ** k / (k + 3) for k in range(8))  # of (log1p(r) - r + r**2 / 2) / r**3
ONE = np.float64(1).view(np.int64)
SPLIT = 2.0**27 + 1


class _Constants(NamedTuple):
    log_c: NDArray[np.float64]  # of c = (FIRST + row) / CELLS, as sums of two
    log_2: tuple[float, float]  # the first has 40 bits, so that its product with an exponent is exact
    unit: dict[str, tuple[float, float]]  # one over the logarithm of the base


@cache
def _constants() -> _Constants:
    with localcontext(prec=DIGITS):
        rows = [_pair((Decimal(j) / CELLS).ln()) for j in range(FIRST, LAST + 1)]
        log_2 = Decimal(2).ln()
        first = float(int(log_2 * 2**40)) / 2**40
        unit = {"log2": _pair(1 / log_2), "log10": _pair(1 / Decimal(10).ln())}
        return _Constants(np.array(rows), (first, float(log_2 - Decimal(first))), unit)


def _pair(number: Decimal) -> tuple[float, float]:
    first = float(number)
    return first, float(number - Decimal(first))


def logarithm(numbers: Any, name: str) -> Any:
    """Logarithms, rounded to nearest, ties to even.

    Parameters
    ----------
    numbers : float64 array, shape (n,)
    name
        ``"log"``, ``"log2"`` or ``"log10"``.

    Returns
    -------
    float64 array of the same kind, shape (n,)
        -inf of zeros; NaN of negative numbers.
    """
    xp = array_module(numbers)
    usual = (numbers > 0) & (numbers < np.inf)
    high, low = _pairs(xp, xp.where(usual, numbers, 1.0), name)
    bound = xp.absolute(high) * ERROR
    unsure = (high + (low + bound)) != (high + (low - bound))
    if unsure.any():
        some = numbers[unsure]
        # All samples may be one number.
        numbers_of, places = np.unique(some if isinstance(some, np.ndarray) else some.get(), return_inverse=True)
        high[unsure] = xp.asarray(np.array([exactly(number, name) for number in numbers_of.tolist()])[places])
    if usual.all():
        return high
    special = xp.where(numbers == 0, -np.inf, xp.where(numbers == np.inf, np.inf, np.nan))
    return xp.where(usual, high, special)


def _pairs(xp: Any, numbers: Any, name: str) -> tuple[Any, Any]:
    """Logarithms of positive finite numbers as sums of two float64, the first of which is the nearest to the sum."""
    constants = _constants()
    small = numbers < 2.0**-1022
    bits = xp.where(small, numbers * 2.0**54, numbers).view(np.int64)
    exponent = (bits >> 52) - 1023 - 54 * small.astype(np.int64)
    mantissa = ((bits & 2**52 - 1) | int(ONE)).view(np.float64)
    upper = mantissa > 1.4140625  # a multiple of 1 / CELLS, so that these halves have a c of their own
    exponent = (exponent + upper.astype(np.int64)).astype(np.float64)
    mantissa = xp.where(upper, mantissa * 0.5, mantissa)
    cell = xp.rint(mantissa * CELLS)
    c = cell * (1 / CELLS)
    table = xp.asarray(constants.log_c)[cell.astype(np.int64) - FIRST]
    away = mantissa - c
    r = away / c
    product, rest = _product(r, c)
    r_low = ((away - product) - rest) / c
    square, square_low = _product(r, r)
    tail = r * 0.0 + SERIES[-1]
    for term in SERIES[-2::-1]:
        tail = tail * r + term
    first, lost = _sum(r, square * -0.5)
    low = lost + (r_low - (square_low * 0.5 + r * r_low)) + r * square * tail
    high, lost = _sum(exponent * constants.log_2[0], table[:, 0])
    high, more = _sum(high, first)
    low = (lost + more) + (table[:, 1] + exponent * constants.log_2[1] + low)
    high, low = _ordered(high, low)
    if name == "log":
        return high, low
    unit, unit_low = constants.unit[name]
    product, rest = _product(high, high * 0.0 + unit)
    return _ordered(product, rest + (high * unit_low + low * unit))


def _sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b as a rounded sum and its error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _ordered(a: Any, b: Any) -> tuple[Any, Any]:
    """As `_sum`, where b is the smaller one (Dekker)."""
    total = a + b
    return total, b - (total - a)


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """a · b as a rounded product and its error (Dekker, Veltkamp)."""
    product = a * b
    a_high, b_high = (x * SPLIT - (x * SPLIT - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def exactly(number: float, name: str) -> float:
    """The logarithm of a positive number, by `decimal`."""
    with localcontext(prec=DIGITS):
        exact = Decimal(number)
        if name == "log10":
            return float(exact.log10())
        return float(exact.ln() if name == "log" else exact.ln() / Decimal(2).ln())
