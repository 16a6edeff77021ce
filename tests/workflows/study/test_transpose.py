"""The study of transposition: runnable cases, an exact comparison, conclusions that can hold or fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels.study.transpose import VARIANTS
from workflows.study.study import Case, Row, parameters
from workflows.study.transpose import BROKEN, SQUARES, STUDY, TILE_SIDES

BY_BYTES = ("uint8", "int16", "float32", "float64", "complex128")


def test_study_cases_are_runnable() -> None:
    assert STUDY.kernels == VARIANTS
    for case in STUDY.cases:
        assert set(case.parameters) <= set(STUDY.variants[case.variant].parameters)
        assert STUDY.work(case) > 0 and STUDY.limit(case) == "copy"
    assert {case.variant for case in STUDY.cases if case.quick} == set(STUDY.variants)
    assert STUDY.work(Case("", "naive", (10, 20), "float64")) == 2 * 200 * 8


@pytest.mark.parametrize("dtype", BY_BYTES)
def test_study_disagreement(dtype: str) -> None:
    case = Case("", "naive", (5, 7), dtype)
    given_arrays = STUDY.inputs(case, np.random.default_rng(0))
    expected = STUDY.reference(given_arrays, case)
    assert given_arrays[0].dtype == dtype and expected.shape == (7, 5)
    assert STUDY.disagreement(expected.copy(), expected, given_arrays, case) is None
    assert STUDY.disagreement(given_arrays[0], expected, given_arrays, case)
    got = expected.copy()
    got[3, 2] += 1
    assert "1 of 35 differ, first at (3, 2)" in str(STUDY.disagreement(got, expected, given_arrays, case))
    if np.dtype(dtype).kind in "fc":
        got[3, 2] = np.nan
        assert STUDY.disagreement(got, expected, given_arrays, case)
        assert STUDY.disagreement(got, got, given_arrays, case)
        zero = np.zeros_like(expected)
        assert STUDY.disagreement(-zero, zero, given_arrays, case)


def rows(**times: float) -> list[Row]:
    """Timed rows of square matrices."""
    return [Row(Case(SQUARES, name, (1024, 1024), "float32"), True, ms) for name, ms in times.items()]


def test_study_conclusions() -> None:
    padding, tile, right, caught, *costs = (conclusion.judge for conclusion in STUDY.conclusions)
    fast = rows(naive=4.0, shared_tile=2.0, padded_tile=1.0)
    slow = rows(naive=1.0, shared_tile=2.0, padded_tile=3.0)
    assert padding(fast) == (True, "padded against unpadded: 2.00 times at 1024²")
    assert tile(fast)[0] and not padding(slow)[0] and not tile(slow)[0]
    refused = Row(Case(TILE_SIDES, "padded_tile", (8, 8), "float32", parameters(tile=64)), False, note="refused")
    assert right([*fast, refused]) == (True, "3 of 3 agreed, bit for bit")
    assert right([*fast, replace(fast[0], verified=False)])[0] is False
    broken = Row(Case(BROKEN, "past_the_end", (8, 8), "float32"), True, note="3 of 64 differ")
    assert caught([broken]) == (True, "past_the_end 8×8 float32: 3 of 64 differ")
    assert caught([replace(broken, verified=False)]) == (False, "past_the_end 8×8 float32: not caught")
    for judge, ours, wrong, sizes in zip(
        costs, ("padded_tile", "naive"), ("missing_barrier", "past_the_end"), ((4096, 4096), (4095, 4097)), strict=True
    ):
        for ms, held in ((1.1, True), (1.2, False)):
            pair = [Row(Case(BROKEN, name, sizes, "float32"), True, time) for name, time in ((ours, ms), (wrong, 1.0))]
            assert judge(pair)[0] == held and "(wrong)" in judge(pair)[1]
    for judge in (padding, tile, right, caught, *costs):
        with pytest.raises(KeyError):
            judge([])
