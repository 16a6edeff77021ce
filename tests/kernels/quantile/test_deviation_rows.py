"""The median of the distances to the median of many rows, against exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import kernels.common.rounded
from kernels.quantile import cpu
from kernels.quantile.deviation_rows import median_deviations
from kernels.quantile.rows import Ordered, count_keys, gather_rows
from tests.cases.case import RANDOM
from tests.cases.quantile_small import samples_of

ROWS = 300


def expected(row: NDArray[Any]) -> float:
    numbers = sorted(x for x in row.tolist() if x == x)
    if not numbers:
        return math.nan
    ends = numbers[(len(numbers) - 1) // 2], numbers[len(numbers) // 2]
    if math.inf in map(abs, ends):
        return math.nan
    middle = sum(map(Fraction, ends)) / 2
    distances = sorted(math.inf if abs(x) == math.inf else abs(Fraction(x) - middle) for x in numbers)
    one, other = distances[(len(numbers) - 1) // 2], distances[len(numbers) // 2]
    if other == math.inf:
        return math.inf
    exact = Fraction(one + other) / 2
    return float(exact) if exact < 2**1024 - 2**970 else math.inf  # half a step above the greatest float64


def extreme(dtype: str, size: int) -> NDArray[Any]:
    """The ends of the range, of which sums overflow, beside the least numbers, which halves of would lose bits of."""
    native = np.dtype(dtype)
    if native.kind != "f":
        ends = np.iinfo(native)
        return RANDOM(1).choice(np.array([ends.min, ends.max, ends.max - 1, 0, 1], native), size)
    most, least = np.finfo(native).max, np.finfo(native).smallest_subnormal
    some = [most, -most, most / 2, np.nextafter(most, native.type(0)), least, -3 * least, np.inf, -np.inf]
    return RANDOM(1).choice(np.array(some, native), size)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("samples", [samples_of, extreme])
@pytest.mark.parametrize("dtype", cpu.TYPES)
def test_deviations(dtype: str, samples: Any, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(kernels.common.rounded, "functions", lambda: None)
    lengths = RANDOM(0).integers(0, 9, ROWS)
    ends = np.cumsum(lengths)
    block = samples(dtype, int(ends[-1]))
    table = block, ends - lengths, ends
    rows = np.split(block, ends[:-1])
    numbers = np.array([np.count_nonzero(row == row) for row in rows])
    lines = count_keys(*table) if block.itemsize == 1 else gather_rows(*table, 8)
    got = median_deviations(Ordered(lines, numbers, block.dtype))
    np.testing.assert_array_equal(got, np.array(list(map(expected, rows))))
    assert not np.signbit(got[~np.isnan(got)]).any()


def test_a_tie_is_decided_exactly() -> None:
    """Samples on both sides of the median whose sum rounds to twice the median, and is not: one is nearer."""
    median, half = 1 + 2.0**-52, 2.0**-53
    rows = np.array([[half, median, 2 * median], [-half, median, 2 * median]])
    rows = np.concatenate((rows, -rows[:, ::-1]))
    assert (rows[:, 0] + rows[:, 2] == 2 * rows[:, 1]).all()
    lines = gather_rows(rows.ravel(), 3 * np.arange(4), 3 * np.arange(1, 5), 3)
    got = median_deviations(Ordered(lines, np.full(4, 3), rows.dtype))
    assert got.tolist() == list(map(expected, rows)) == [1.0, median, 1.0, median]
