"""Exact sums of float32 numbers, and of their squares, with few passes over them: the ordinary case of `exact_sum`.

A block of 2**15 numbers below 2**top is a sum of multiples of 2**(top - 38), but for the few numbers below
2**(top - 15), which are set aside. So none of the sums below reaches 2**53 of its units: float64 adds them up without
rounding, in any order. For squares each number is cut into a multiple of 2**(top - 19) and a rest, of 19 bits each.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kernels import exact_sum
from kernels.exact_sum import SQUARE_BITS, SUM_BITS, whole

BLOCK = 2**15
ALONE = 2**13  # up to 10,000 numbers OpenBLAS computes a dot product itself; for more it wakes threads
_ONES = np.ones(ALONE)


def sums_of_narrow(values: NDArray[np.float32], squares: bool) -> tuple[int, int] | None:
    """Sum and sum of squares in units of 2**-SUM_BITS and 2**-SQUARE_BITS; None where a number is not finite.

    Parameters
    ----------
    values : float32 array, shape (n,)
    squares
        Whether these are asked for; else their sum is 0.
    """
    total = total_squares = 0
    aside: list[NDArray[np.float32]] = []
    for start in range(0, len(values), BLOCK):
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            block = values[start : start + BLOCK]
            size = np.abs(block)
            greatest = float(size.max())
        if not greatest < math.inf:
            return None
        top = math.frexp(greatest)[1]
        small = size < math.ldexp(1.0, top - 15)
        if np.count_nonzero(small):  # which is faster than `any` where there is none
            few = block[small]
            aside.append(few[few != 0])
            block = np.where(small, np.float32(0), block)
        wide = block.astype(np.float64)
        total += whole(_dot(wide), SUM_BITS)
        if squares:
            large = math.ldexp(1.5, top - 19 + 52)  # the spacing of float64 next to it is 2**(top - 19)
            high = wide + large
            high -= large
            wide -= high
            for a, b, times in ((high, high, 1), (high, wide, 2), (wide, wide, 1)):
                total_squares += times * whole(_dot(a, b), SQUARE_BITS)
    rest = np.concatenate(aside).astype(np.float64) if aside else np.empty(0)
    for start in range(0, len(rest), exact_sum.STEP):
        part = rest[start : start + exact_sum.STEP]
        total += exact_sum.sum_floats(part)
        if squares:
            total_squares += exact_sum.sum_squares_of_floats(part, narrow=True)
    return total, total_squares


def _dot(a: NDArray[np.float64], b: NDArray[np.float64] | None = None) -> float:
    """Sum of products, or of the numbers themselves: by BLAS, twice as fast as NumPy's own sum."""
    total = 0.0
    for start in range(0, len(a), ALONE):
        part = a[start : start + ALONE]
        total += float(part @ (_ONES[: len(part)] if b is None else b[start : start + ALONE]))
    return total
