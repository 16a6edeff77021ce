"""Sums of third and fourth powers, which a partial of reduce also has where skewness or kurtosis is asked for.

They follow the entries that every partial has (`kernels.reduce.partial`): the sum of cubes, the sum of fourth powers,
fixed-point numbers like the other sums, in units of 2**-CUBE_BITS and 2**-FOURTH_BITS.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.reduce import exact_sum, partial
from kernels.reduce.exact_sum import SUM_BITS
from kernels.reduce.partial import Partial

POWERS = 8  # a part, as SUM, SQUARES and EXTREMES are

CUBE_BITS, FOURTH_BITS = 3 * SUM_BITS, 4 * SUM_BITS
# 64-bit words of two's complement that hold the sums of 2**63 samples of any dtype.
CUBE_WORDS = (CUBE_BITS + 3 * 1024 + 63 + 1) // 64
FOURTH_WORDS = (FOURTH_BITS + 4 * 1024 + 63 + 1) // 64
CUBES_AT = slice(partial.SIZE, partial.SIZE + CUBE_WORDS)
FOURTHS_AT = slice(CUBES_AT.stop, CUBES_AT.stop + FOURTH_WORDS)
SIZE = FOURTHS_AT.stop


def extended(moments: Partial, cubes: int, fourths: int) -> Partial:
    """A partial without these sums, and the sums in their units."""
    words = exact_sum.to_words(cubes, CUBE_WORDS), exact_sum.to_words(fourths, FOURTH_WORDS)
    total: Partial = np.concatenate((moments, *words))
    total[partial.ASKED] |= POWERS
    return total


def empty(dtype: np.dtype[Any], parts: int) -> Partial:
    """Partial of no samples; with sums of powers if the parts include POWERS."""
    nothing = partial.empty(dtype, parts & ~POWERS, 0)
    return extended(nothing, 0, 0) if parts & POWERS else nothing


def combine(a: Partial, b: Partial) -> Partial:
    """`kernels.reduce.partial.combine`, of partials with or without sums of powers."""
    total = partial.combine(a, b)
    if len(total) == SIZE:
        for at, words in ((CUBES_AT, CUBE_WORDS), (FOURTHS_AT, FOURTH_WORDS)):
            total[at] = exact_sum.to_words(exact_sum.from_words(a[at]) + exact_sum.from_words(b[at]), words)
    return total
