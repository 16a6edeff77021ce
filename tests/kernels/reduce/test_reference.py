"""The reference of reduce against exact arithmetic, sample by sample in plain Python."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.reduce import exact_sum
from kernels.reduce import partial as layout
from kernels.reduce.partial import EXTREMES, PARTS, SQUARES, SUM
from kernels.reduce.reference import FEW, PART, reduce_reference
from tests.cases.reduce import CASES, DTYPES, case


def plain(samples: NDArray[Any], parts: int) -> NDArray[np.int64]:
    """The partial by its definition."""
    values = samples.tolist()
    partial = layout.empty(samples.dtype, parts, len(values))
    finite = [Fraction(value) for value in values if math.isfinite(value)]
    partial[layout.NAN] = sum(math.isnan(value) for value in values)
    partial[[layout.POSITIVE, layout.NEGATIVE]] = values.count(math.inf), values.count(-math.inf)
    if parts & SUM:
        total = int(sum(finite) * 2**exact_sum.SUM_BITS)
        partial[layout.SUM_AT] = exact_sum.to_words(total, exact_sum.SUM_WORDS)
    if parts & SQUARES:
        squares = int(sum(value * value for value in finite) * 2**exact_sum.SQUARE_BITS)
        partial[layout.SQUARES_AT] = exact_sum.to_words(squares, exact_sum.SQUARE_WORDS)
    if parts & EXTREMES:
        nans = [i for i, value in enumerate(values) if math.isnan(value)]
        numbers = [value for value in values if not math.isnan(value)]
        partial[layout.FIRST_NAN] = 2 * nans[0] if nans else layout.NOWHERE
        for extreme, at, key in ((min, layout.MIN_AT, layout.MIN_KEY), (max, layout.MAX_AT, layout.MAX_KEY)):
            if numbers:
                first = values.index(extreme(numbers))
                partial[at] = 2 * first + (str(values[first]) == "-0.0")
                partial[key] = layout.to_key(values[first], samples.dtype)
    return partial


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [1, FEW, 601])
def test_reference_is_the_definition(dtype: str, name: str, number: int) -> None:
    samples = case(name, dtype, 601)[:number]
    for parts in PARTS:
        expected = plain(samples, parts)
        np.testing.assert_array_equal(reduce_reference(samples, parts), expected)
        np.testing.assert_array_equal(reduce_reference(samples.astype(samples.dtype.newbyteorder()), parts), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_as_many_as_are_taken_at_a_time_do_not_overflow(dtype: str) -> None:
    """All digits of all samples are maximal."""
    info: Any = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    for value in (info.min, info.max):
        got = reduce_reference(np.full(PART, value, dtype), SUM | SQUARES)
        exact = Fraction(int(value))
        assert exact_sum.from_words(got[layout.SUM_AT]) == exact * PART * 2**exact_sum.SUM_BITS
        assert exact_sum.from_words(got[layout.SQUARES_AT]) == exact**2 * PART * 2**exact_sum.SQUARE_BITS
