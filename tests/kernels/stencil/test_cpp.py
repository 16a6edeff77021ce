"""cpu.cpp against NumPy and against exact sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.common import cxx
from kernels.stencil import cpu
from kernels.stencil.cpu import box_cpu, compiled_sums
from tests.cases import cpp as cpp_cases
from tests.cases.stencil import adversarial, exact, numbers

SOURCE = cpu.SOURCE
pytestmark = pytest.mark.usefixtures("compiled")


def test_same_bits_as_by_numpy() -> None:
    assert cpp_cases.check_sums() > 3000


@settings(max_examples=160, deadline=None)
@given(data=st.data())
def test_sums_are_exact_and_rounded_once(data: st.DataObject) -> None:
    """Numbers with as many bits as one or two cuts hold, and more; with many ties."""
    spread = data.draw(st.integers(0, 2000))
    bits = data.draw(st.sampled_from([1, 2, 24, 53]))
    top = data.draw(st.sampled_from([-1060, -990, -930, -800, -799, -300, 0, 300, 899, 900, 970, 1024]))
    integers = data.draw(st.lists(st.integers(1 - 2**bits, 2**bits - 1), min_size=1, max_size=40))
    shifts = data.draw(st.lists(st.integers(0, spread), min_size=len(integers), max_size=len(integers)))
    with np.errstate(under="ignore"):
        x = np.array([[np.ldexp(float(n), top - bits - k) for n, k in zip(integers, shifts, strict=True)]])
    width = data.draw(st.integers(1, x.size))
    result = compiled_sums(x, width)
    right = np.array([exact(x[0, i : i + width]) for i in range(x.size - width + 1)])
    assert result is not None and result.tobytes() == right.tobytes()


@pytest.mark.parametrize("width", [2047, 2048, 2049, 4097, 8193, 20_001])
@pytest.mark.parametrize("cut", [1, 2])
def test_windows_so_wide_that_cuts_take_fewer_bits(width: int, cut: int) -> None:
    """Numbers of one sign that fill the first or the second cut."""
    upper = min(51, 52 - (width - 1).bit_length())
    number = 1 - 2.0**-51 if cut == 1 else 0.5 + 2.0 ** -(upper + 1) - 2.0**-53
    for sign in (1.0, -1.0):
        x = np.full((1, width + 3), sign * number)
        result = compiled_sums(x, width)
        assert result is not None
        assert result[0].tolist() == [exact(x[0, :width])] * 4


@pytest.mark.parametrize("radius", [3, 20_000])
def test_rows_longer_than_a_block(radius: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block of a row has a number that is far from the others."""
    x = numbers("float64", (3, 70_000))
    x[1, 50_000] = 2.0**-500
    result = box_cpu(x, radius, radius, radius)
    monkeypatch.setattr(cxx, "library", lambda stem: None)
    assert box_cpu(x, radius, radius, radius).tobytes() == result.tobytes()


@pytest.mark.parametrize("case", ["ties", "specials", "all exponents", "largest", "subnormal"])
def test_some_rows_and_parts_of_rows_are_far_from_the_others(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers("float64", (7, 2000))
    x[[2, 5]] = adversarial(case, (2, 2000))
    x[3, 700:900] = x[2, :200]
    results = [box_cpu(x, radius) for radius in (4, 300)]
    monkeypatch.setattr(cxx, "library", lambda stem: None)
    assert [box_cpu(x, radius).tobytes() for radius in (4, 300)] == [result.tobytes() for result in results]
