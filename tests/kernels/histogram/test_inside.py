"""Edges that are made, and which samples lie in a range."""

from __future__ import annotations

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.histogram.edges import log_edges, whole_bins, whole_division
from kernels.histogram.inside import inside, inside_reference
from tests.cases.reduce import CASES, DTYPES, case


@pytest.mark.parametrize(("lowest", "highest", "expected"), [
    (0, 1023, (1, 1024)), (0, 1024, (2, 513)), (-5, -5, (1, 1)), (327, 1754, (2, 714)),
    (2**53 - 10, 2**53 - 1, (1, 10)), (2**53 - 10, 2**53, (2, 6)), (-(2**53), 0, (2**43 + 1, 1024)),
    (-(2**53) - 2, 0, (2**43 + 2, 1024)), (-(2**52), 2**52, (2**43 + 1, 1024)), (0, 2**64 - 1, (2**54 + 4096, 1024)),
    (2**64 - 4096, 2**64 - 1, (4096, 2)), (-(2**63), -(2**63), (1024, 1)),
])  # fmt: skip
def test_whole_bins(lowest: int, highest: int, expected: tuple[int, int]) -> None:
    assert whole_bins(lowest, highest, 1024) == (lowest, *expected)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 64), st.data(), st.sampled_from((1, 7, 1024)))
def test_whole_bins_have_edges_in_float64(lowest: int, bits: int, data: st.DataObject, most: int) -> None:
    """All of them, as `numpy.linspace` has them; samples are in them, compared as float64."""
    highest = min(lowest + data.draw(st.integers(0, 2**bits)), 2**64 - 1)
    first, width, bins = whole_bins(lowest, highest, most)
    edges = np.linspace(float(first), float(first + bins * width), bins + 1)
    assert list(map(int, edges)) == list(range(first, first + bins * width + 1, width))
    assert first <= lowest and edges[0] <= float(lowest) and float(highest) < edges[-1] and 1 <= bins <= most
    assert first == lowest or max(-first, first + bins * width) > 2**53
    unit = 2 ** max(max(-first, first + bins * width).bit_length() - 53, 0)
    assert (bins - 1) * width < highest - first + 2 * unit and width < (highest - first) // most + 3 * unit + 1


@pytest.mark.parametrize(("lower", "upper", "number"), [
    (1.0, 1000.0, 3), (0.1, 7.3, 100), (1e-300, 1e300, 1024), (5e-324, 1.7e308, 77), (1.0, 2.0, 1), (3.0, 5.0, 50_000),
])  # fmt: skip
def test_log_edges_are_the_exact_ones_rounded_once(lower: float, upper: float, number: int) -> None:
    got = log_edges(lower, upper, number)
    np.testing.assert_allclose(
        got, np.geomspace(lower, upper, number + 1), rtol=1e-12 if upper / lower < 1e100 else 1e-9
    )
    assert (got[0], got[-1]) == (lower, upper) and (np.diff(got) > 0).all()
    getcontext().prec = 80
    ratio = Decimal(upper) / Decimal(lower)
    for i in {1, number // 3, number // 2, number - 1} - {0, number}:
        assert got[i] == float(Decimal(lower) * (ratio.ln() * i / number).exp())


@pytest.mark.parametrize("dtype", DTYPES)
def test_inside_is_what_float64_comparisons_say(dtype: str) -> None:
    ends = [0.0, -0.0, 5e-324, -1e-40, 1.0, 2.5, 127.0, 128.0, -128.0, 255.5, 65504.0, 70000.0, 2.0**53, 2.0**63,
            -(2.0**63), 2.0**64, 1e39, -1e300, 0.1, float(np.float32(0.1))]  # fmt: skip
    for name in CASES:
        samples = case(name, dtype, 300)
        for lower in ends:
            for upper in ends:
                if lower <= upper:
                    got, expected = inside(samples, lower, upper), inside_reference(samples, lower, upper)
                    assert got.tobytes() == expected.tobytes(), (name, lower, upper)


@pytest.mark.parametrize(("lower", "upper", "expected"), [
    (0.0, 1024.0, (1, 1024)), (-3.0, 97.0, (1, 100)), (0.0, 2000.0, (2, 1000)), (0.0, 2047.0, (1, 2047)),
    (0.5, 4.5, (1, 4)), (3.0, 16_384.0, (1, 16381)),
    (0.0, 2.0**53, (2**43, 1024)), (0.0, 2.0**53 + 2, None), (0.0, 2.0**32 - 1, (5570645, 771)),
    (0.0, 1026.0, (2, 513)), (-0.5, 999.5, (1, 1000)), (0.0, 999.5, None), (0.25, 4.25, None),
    (0.0, 16_411.0, None), (-1.0, 8209.0 * 3 - 1, (3, 8209)), (0.5, 2.0**52 + 0.5, None), (2.0**53, 2.0**53 + 4, None),
])  # fmt: skip
def test_whole_division(lower: float, upper: float, expected: tuple[int, int] | None) -> None:
    assert whole_division(lower, upper, 1024) == expected
