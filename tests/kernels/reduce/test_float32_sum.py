"""Sums of float32 numbers in few passes against sums of Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.reduce.cpu import reduce_numpy
from kernels.reduce.exact_sum import SQUARE_BITS, STEP, SUM_BITS, from_words
from kernels.reduce.partial import SQUARES, SQUARES_AT, SUM, SUM_AT
from tests.cases.reduce import FINITE, case, generator


def check(values: NDArray[Any]) -> None:
    """Every number is a whole number of 2**-149."""
    whole = [int(value) for value in np.ldexp(values.astype(np.float64), 149).tolist()]
    partial = reduce_numpy(values, SUM | SQUARES)
    assert from_words(partial[SUM_AT]) == sum(whole) << SUM_BITS - 149
    assert from_words(partial[SQUARES_AT]) == sum(n * n for n in whole) << SQUARE_BITS - 2 * 149


@pytest.mark.parametrize("name", FINITE)
def test_cases(name: str) -> None:
    check(case(name, "float32", 2 * STEP + 4321))


@pytest.mark.parametrize("sign", [1, -1])
def test_as_many_as_are_taken_at_a_time_do_not_round(sign: int) -> None:
    """The largest numbers with full significands, and the smallest ones whose digits a block takes."""
    largest = np.finfo(np.float32).max
    check(np.full(STEP, sign * largest, np.float32))
    for exponent in (-16, -17, -18, -19, -20):
        small = np.nextafter(np.ldexp(largest, exponent, dtype=np.float32), 0, dtype=np.float32)
        assert small
        mixed = np.full(STEP, sign * small, np.float32)
        mixed[::2] = np.nextafter(sign * largest, 0, dtype=np.float32)
        check(mixed)


@pytest.mark.parametrize("spread", [10, 17, 18, 19, 30])
def test_exponents_apart(spread: int) -> None:
    random = generator("spread", spread)
    values = random.standard_normal(STEP + 5) * 2.0 ** random.integers(-spread, 1, STEP + 5)
    values[random.random(STEP + 5) < 0.01] = 0
    check(values.astype(np.float32))
    check((values * 2.0**-120).astype(np.float32))
    check((values * 2.0**120).astype(np.float32))
