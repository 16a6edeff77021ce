"""What lies between two samples, rounded once, against fractions."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.rounded import interpolated
from kernels.common.row_places import as_matrix, in_order
from tests.cases.reduce import DTYPES, any_bits, extreme, ordinary, subnormal

WEIGHTS = (Fraction(0), Fraction(1), Fraction(1, 2), Fraction(1, 4), Fraction(3, 4), Fraction(1, 10), Fraction(99, 100),
           Fraction(2**63 - 1, 2**63), Fraction(1, 2**64 - 1), Fraction(1, 2**64 + 1))  # fmt: skip


def ends_of(dtype: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Pairs of samples: of all kinds, equal, neighbours, opposite."""
    samples = np.concatenate([kind(dtype, 100) for kind in (any_bits, ordinary, extreme, subnormal)])
    step = np.roll(samples, 1)
    near = np.nextafter(samples, np.array(0, dtype)) if samples.dtype.kind == "f" else samples // 2
    with np.errstate(over="ignore"):
        return np.tile(samples, 4), np.concatenate([step, near, samples, -samples])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("compiled", [True, False])
def test_between_two_samples(dtype: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = ends_of(dtype)
    if not compiled:
        monkeypatch.setattr(cxx, "library", lambda source: None)
    short = [weight for weight in WEIGHTS if weight.denominator < 2**64]
    mixed = np.arange(len(low)) % len(short)
    each = [interpolated(low, high, [weight], 0 * mixed) for weight in WEIGHTS]
    np.testing.assert_array_equal(interpolated(low, high, short, mixed), np.choose(mixed, each[: len(short)]))
    for weight, numbers in zip(WEIGHTS, each, strict=True):
        for number, a, b in zip(numbers, low.tolist(), high.tolist(), strict=True):
            exact = Fraction(a) + (Fraction(b) - Fraction(a)) * weight
            assert struct.pack("d", number) == struct.pack("d", exact.numerator / exact.denominator), (a, b, weight)


def test_runs_in_order() -> None:
    """Those of no samples come before others with the same begin."""
    begins, ends = np.array([5, 0, 5, 9]), np.array([9, 5, 5, 9])
    order, first, last = in_order(begins, ends)
    assert order is not None and order.tolist() == [1, 2, 0, 3]
    assert (first.tolist(), last.tolist()) == ([0, 5, 5, 9], [5, 5, 9, 9])
    assert in_order(first, last)[0] is None


@pytest.mark.parametrize(
    ("begins", "ends"), [([0, 3, 6], [3, 6, 9]), ([6, 3, 0], [9, 6, 3]), ([1, 4, 4], [4, 4, 9]), ([2], [2]), ([0], [9])]
)
def test_rows_as_a_matrix(begins: list[int], ends: list[int]) -> None:
    samples = np.arange(10, 20)
    before = samples.copy()
    matrix, inside = as_matrix(samples, np.array(begins), np.array(ends), -1)
    for line, chosen, begin, end in zip(matrix, inside, begins, ends, strict=True):
        assert line[chosen].tolist() == samples[begin:end].tolist() and (line[~chosen] == -1).all()
    matrix[:] = 0
    assert (samples == before).all()
