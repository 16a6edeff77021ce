"""Window sums on the CPU: exact where one method takes over from another; the reference that checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.common import cxx
from kernels.stencil import cpu
from kernels.stencil.cpu import box_cpu, weighted_cpu
from kernels.stencil.cpu_exact import exact_sums, window_sums
from kernels.stencil.reference import box_reference, weighted_reference, wrong_sums
from kernels.stencil.windows import extended
from tests.cases.stencil import ADVERSARIAL, adversarial, exact, expected, numbers, same


@pytest.fixture(autouse=True, params=["compiled", "NumPy"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The implementation that computes and checks: C++ or NumPy."""
    if request.param == "NumPy":
        monkeypatch.setattr(cxx, "library", lambda stem: None)
    return str(request.param)


def test_integers_wrap_and_come_back() -> None:
    x = np.array([[2**62, 2**62, 2**62, -(2**62), -5, 7]])
    assert window_sums(x, 2).tolist() == [[-(2**63), -(2**63), 0, -(2**62) - 5, 2]]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_floats_with_as_many_bits_as_one_or_two_cuts_take(data: Any) -> None:
    """Around the limits at which another method takes over, for windows of all sizes."""
    bits = data.draw(st.integers(0, 130))
    top = data.draw(st.sampled_from([-1060, -800, -799, -300, 0, 300, 899, 900, 970]))
    count = data.draw(st.integers(1, 40))
    width = data.draw(st.integers(1, count))
    numerators = data.draw(st.lists(st.integers(-(2**53), 2**53), min_size=count, max_size=count))
    shifts = data.draw(st.lists(st.integers(0, bits), min_size=count, max_size=count))
    with np.errstate(under="ignore"):
        x = np.array([np.ldexp(float(n), top - 53 - s) for n, s in zip(numerators, shifts, strict=True)])
    got = exact_sums(x[None], width)[0]
    right = np.array([exact(x[i : i + width]) for i in range(count - width + 1)])
    same(got, right)
    if width % 2:
        assert not wrong_sums(x[None], right[None], width // 2).any()


def test_halves_of_a_step_are_rounded_to_even() -> None:
    for far in (0.0, 2.0**-300, -(2.0**-300)):  # a tie, and just above or below one
        for odd in (0, 1):
            x = np.array([[1 + odd * 2.0**-52, 2.0**-53, far]])
            up = far > 0 or (far == 0 and odd)
            assert exact_sums(x, 3)[0, 0] == 1 + (odd + up) * 2.0**-52
            assert exact_sums(-x, 3)[0, 0] == -1 - (odd + up) * 2.0**-52


def test_wide_windows() -> None:
    """The more numbers a window has, the fewer bits a cut may hold."""
    x = adversarial("two words", (1, 40))
    for radius in (2**11, 2**12, 2**19):
        got = exact_sums(extended(x, radius, radius, "zero"), 2 * radius + 1)
        same(got, np.full((1, 40), exact(x[0])))


@pytest.mark.parametrize("dtype", ("int16", "uint64", "float32", "float64"))
def test_steps_and_rows_taken_together(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(cpu, "STEP", 50)
    x = numbers(dtype, (7, 203))
    weights = numbers("float32", 9)
    for length in (9, 30, 203):
        same(box_cpu(x[:, :length], 4), expected(np.ascontiguousarray(x[:, :length]), 4, "valid"))
        assert weighted_cpu(x[:, :length], weights).tobytes() == weighted_reference(x[:, :length], weights).tobytes()


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("case", ADVERSARIAL)
def test_reference_rejects_the_next_floats(case: str, dtype: str) -> None:
    x = adversarial(case, (2, 300), dtype)
    for radius in (0, 1, 20):
        sums = box_cpu(x, radius)
        assert not wrong_sums(x, sums, radius).any()
        for towards in (np.inf, -np.inf):
            with np.errstate(over="ignore"):
                other = np.nextafter(sums, towards)
            same_as_before = (other == sums) | np.isnan(sums)
            np.testing.assert_array_equal(wrong_sums(x, other, radius), ~same_as_before)
        for i in range(0, sums.shape[1], 37):
            window = x[0, i : i + 2 * radius + 1]
            np.testing.assert_equal(box_reference(window), sums[0, i])


def test_reference_rejects_negative_zero_and_other_nan() -> None:
    x = np.array([[1.0, -1.0, np.nan, 0.0]])
    assert wrong_sums(x[:, :2], np.array([[1.0, -1.0]]), 0).tolist() == [[False, False]]
    assert wrong_sums(np.zeros((1, 3)), np.array([[-0.0]]), 1).all()
    assert not wrong_sums(x[:, 1:], np.array([[np.nan]]), 1).any()
    other = np.array([[0x7FF8000000000001]], np.uint64).view(np.float64)
    assert wrong_sums(x[:, 1:], np.array([[-np.nan]]), 1).all() and wrong_sums(x[:, 1:], other, 1).all()


def test_numbers_far_apart_leave_gaps_between_digits() -> None:
    """A borrow propagates through all digits between them."""
    x = np.array([[2.0**900, -(2.0**-1000), 0.0]])
    assert exact_sums(x, 3)[0, 0] == 2.0**900
    x = np.array([[2.0**900, -(2.0**-1000), -(2.0**900)]])
    assert exact_sums(x, 3)[0, 0] == -(2.0**-1000)
    x = np.array([[2.0**900, -(2.0**846), -(2.0**-1074)]])  # just below a half of the step below 2**900
    assert exact_sums(x, 3)[0, 0] == np.nextafter(2.0**900, 0)
    assert exact_sums(-x, 3)[0, 0] == -np.nextafter(2.0**900, 0)
