"""The check of a product finds errors in elements that the others of their rows and columns could hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.matmul import check_sums
from kernels.matmul.check_defined import functions
from kernels.matmul.check_exactly import DefinedCheck
from kernels.matmul.check_floats import FloatCheck
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS
from tests.cases.matmul import FLOATS, KINDS, factors, generator, on_cpu
from tests.workflows.test_matmul_check import checked, nothing_recomputed, way

__all__ = ["nothing_recomputed", "way"]

pytestmark = pytest.mark.usefixtures("nothing_recomputed")


def changed(element: Any) -> list[Any]:
    """Zeros, the other sign, exponents one and two off, the first bit of the significand, NaN, infinities, extremes."""
    info, bits = np.finfo(element.dtype), f"u{element.itemsize}"
    flips = [8 * element.itemsize - 1, *(info.nmant + np.array([-1, 0, 1])).tolist(), 8 * element.itemsize - 2]
    flipped = [(element.view(bits) ^ element.view(bits).dtype.type(1 << flip)).view(element.dtype) for flip in flips]
    others = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, info.max, info.tiny, info.smallest_subnormal]
    others = [*flipped, *np.array(others, element.dtype)]
    return [other for other in others if other.tobytes() != element.tobytes()]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_no_other_sign_or_exponent_passes(dtype: str, kind: str) -> None:
    """Whatever the element is beside the others of its row and column: also one that they could hide."""
    a, b = factors(kind, dtype, 12, 40, 15)
    right, random = on_cpu(a, b), generator("changed", dtype, kind)
    for place in [(11, 14), *map(tuple, random.integers(0, right.shape, (8, 2)).tolist())]:
        for other in changed(right[place]):
            wrong = right.copy()
            wrong[place] = other
            assert checked(a, b, wrong, 0).details, (place, right[place], other)


@pytest.mark.usefixtures("way")
def test_what_rounding_has_moved_too_far_is_not_taken_for_right() -> None:
    """An element that equals the product of rounded factors, but is the dot product by definition."""
    a, b = np.array([[0.75, 0.75 * 2.0**-56, 2.0**-20]]).repeat(12, 0), np.array([[0], [0], [0.75]]).repeat(15, 1)
    b[:, 4] = 2.0**-54, 0.75, 0
    right, of_rounded = on_cpu(a, b), 0.75 * 2.0**-54
    assert right[3, 4] == 1.1875 * of_rounded and not checked(a, b, right, 0).details
    right[3, 4] = of_rounded
    assert checked(a, b, right, 0).details


@pytest.mark.parametrize("calls", [1, 2])
def test_elements_are_computed_as_long_as_there_is_time(calls: int) -> None:
    a, b = factors("ordinary", "float64", 20, 30, 20)
    wrong, places = on_cpu(a, b), np.argwhere(np.ones((20, 20), bool))
    wrong[tuple(places[-1])] *= 1 + 2.0**-50
    check = FloatCheck(Factors.of(a, b), wrong.shape, FORMATS["float64"], np.random.default_rng(0))
    check.take(wrong)
    check._left = 30 * 250  # products
    before = [check.wrong_exactly(places[:100], bounded=True) for _ in range(calls)]
    after = check.wrong_exactly(np.concatenate([places[:99], places[-1:]]), bounded=True)
    assert not any(before)
    if functions() is not None:
        assert bool(after) == (calls == 1)  # 250 elements, so all of the first 200


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_zeros_without_terms_are_right(dtype: str, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told from others without being computed; with the other sign, or a term, they are wrong."""
    computed: list[int] = []
    exactly = DefinedCheck.wrong_exactly
    monkeypatch.setattr(
        DefinedCheck, "wrong_exactly",
        lambda check, places, bounded=False: computed.append(len(places)) or exactly(check, places, bounded),
    )  # fmt: skip
    monkeypatch.setattr(check_sums, "ZEROS", 0)
    a, b = factors("ordinary", dtype, 24, 40, 24)
    a[:12, 20:], a[12:, :20], b[20:, :12], b[:20, 12:] = 0, 0, 0, 0
    if shared:
        a[3, 30] = b[30, 5] = np.ldexp(1.0, FORMATS[dtype].least // 2)
    right = on_cpu(a, b)
    computed.clear()
    assert (right[:12, 12:] == 0).sum() > 100 and not checked(a, b, right, 0).details and sum(computed) < 60
    for place, value in (((2, 20), -0.0), ((20, 3), np.finfo(dtype).smallest_subnormal), ((3, 5), 0.0)):
        wrong = right.copy()
        wrong[place] = value
        assert checked(a, b, wrong, 0).details, place
