"""Exact sums of float32 numbers, and of their squares, with few passes over them: the ordinary case of `exact_sum`.

Numbers below 2**top are multiples of 2**(top - DIGITS), but for the few below 2**(top - DIGITS + 23), set aside. So no
sum of a row of them reaches 2**53 of these units: float64 adds it up without rounding, in any order. Squares, which
float64 holds, are cut into a multiple of 2**(2 * top - DIGITS) and a rest, which adds up in the same way.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import exact_sum
from kernels.reduce.exact_sum import SQUARE_BITS, SUM_BITS

ROW = 2**12  # numbers in a sum
BLOCK = 2**16  # numbers at a time: what is made of them stays in the cache
DIGITS = 41  # 53 without those of ROW


class Sums(NamedTuple):
    """What is known of finite numbers.

    Attributes
    ----------
    total, squares
        Sum and sum of squares in units of 2**-SUM_BITS and 2**-SQUARE_BITS; 0 if no squares are asked for.
    least, greatest
        Where the first of the least and of the greatest numbers lie: the beginning of their block.
    """

    total: int
    squares: int
    least: int
    greatest: int


def sums_of_narrow(values: NDArray[np.float32], squares: bool) -> Sums | None:
    """Sums of numbers; None where one is not finite.

    Parameters
    ----------
    values : float32 array, shape (n,), n >= 1
    squares
        Whether these are asked for.
    """
    total = total_squares = 0
    ends: list[tuple[Any, int]] = [(math.inf, 0), (math.inf, 0)]  # of the numbers, and of their negatives
    aside: list[NDArray[np.float32]] = []
    wide, high = np.empty((2, min(BLOCK, len(values))))
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            least, greatest = float(block.min()), float(block.max())
        size = max(-least, greatest)
        if not (-math.inf < least and greatest < math.inf):
            return None
        ends = [min(ends[0], (least, start)), min(ends[1], (-greatest, start))]
        top = math.frexp(size)[1]
        numbers, rest = wide[: len(block)], high[: len(block)]
        np.copyto(numbers, block)
        small = math.ldexp(1.0, top - DIGITS + 23)
        if max(least, -greatest) < small:  # else all have the same sign, and are large enough
            places = np.flatnonzero(np.abs(block) < small)
            aside.append(block[places])
            numbers[places] = 0
        total += _sum(numbers, top - DIGITS) << SUM_BITS + top - DIGITS
        if squares:
            numbers *= numbers
            large = math.ldexp(1.5, 2 * top - DIGITS + 52)  # the spacing of float64 next to it is 2**(2 top - DIGITS)
            np.add(numbers, large, out=rest)
            rest -= large
            numbers -= rest
            for part, unit in ((rest, 2 * top - DIGITS), (numbers, 2 * top - 2 * DIGITS)):
                total_squares += _sum(part, unit) << SQUARE_BITS + unit
    few = np.concatenate(aside).astype(np.float64) if aside else np.empty(0)
    few = few[few != 0]
    for start in range(0, len(few), exact_sum.STEP):
        part = few[start : start + exact_sum.STEP]
        total += exact_sum.sum_floats(part)
        if squares:
            total_squares += exact_sum.sum_squares_of_floats(part, narrow=True)
    return Sums(total, total_squares, ends[0][1], ends[1][1])


def _sum(values: NDArray[np.float64], unit: int) -> int:
    """Sum in units of 2**unit, row by row: by einsum, faster than NumPy's own sum, and BLAS would wake threads."""
    whole = len(values) // ROW * ROW
    rows = np.einsum("ij->i", values[:whole].reshape(-1, ROW)).tolist()
    if whole < len(values):
        rows.append(float(values[whole:].sum()))
    scale = math.ldexp(1.0, -unit)
    return sum(int(row * scale) for row in rows)
