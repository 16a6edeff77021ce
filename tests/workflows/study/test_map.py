"""The study of elementwise operations: runnable cases, an exact comparison, conclusions that can hold or fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels.map.gpu import OPERATIONS
from kernels.study.map import VARIANTS
from workflows.study.map import BROKEN, MATRICES, PRODUCTS, STUDY, VECTORS, operation_of
from workflows.study.study import Case, Row


def test_study_cases_are_runnable() -> None:
    assert STUDY.kernels == VARIANTS
    for case in STUDY.cases:
        assert set(case.parameters) <= set(STUDY.variants[case.variant].parameters)
        assert operation_of(case) in OPERATIONS and STUDY.work(case) > 0 and STUDY.limit(case) == "copy"
        small = replace(case, sizes=(6,) * len(case.sizes))
        given_arrays = STUDY.inputs(small, np.random.default_rng(0))
        expected = STUDY.reference(given_arrays, small)
        assert {(a.shape, str(a.dtype)) for a in (*given_arrays, expected)} == {(small.sizes, case.dtype)}
        assert STUDY.disagreement(expected.copy(), expected, given_arrays, small) is None
        got = expected.copy()
        got.flat[4] += 1
        assert "1 of" in str(STUDY.disagreement(got, expected, given_arrays, small))
        assert STUDY.disagreement(expected[:5], expected, given_arrays, small)
        if case.dtype != "int32":
            got.flat[4] = np.nan
            assert STUDY.disagreement(got, expected, given_arrays, small)
            assert STUDY.disagreement(got, got, given_arrays, small)
            zero = np.zeros_like(expected)
            assert STUDY.disagreement(-zero, zero, given_arrays, small)
    assert {case.variant for case in STUDY.cases if case.quick} == set(STUDY.variants)
    assert STUDY.work(Case("", "grid", (10,), "float64")) == 3 * 10 * 8


def test_study_conclusions() -> None:
    wins, index, end, matrix, product = (conclusion.judge for conclusion in STUDY.conclusions)

    def timed(**times: float) -> list[Row]:
        return [Row(Case(VECTORS, name, (8,), "float32"), True, ms) for name, ms in times.items()]

    assert wins(timed(one_thread=100.0, one_block=2.0, grid=0.5))[0]
    assert not wins(timed(one_thread=1.0, one_block=2.0, grid=3.0))[0]
    for judge, name in ((index, "no_index"), (end, "past_the_end")):
        row = Row(Case(BROKEN, name, (8,), "float32"), True, note="3 of 8 differ")
        assert judge([row]) == (True, f"{name} 8 float32: 3 of 8 differ")
        assert judge([replace(row, verified=False)]) == (False, f"{name} 8 float32: not caught")
    row = Row(Case(MATRICES, "matrix_2d", (2**15, 2**15), "float32"), True, 3.0, 4000.0)
    assert matrix([row]) == (True, "2^15 x 2^15 verified, 3 ms, 4000 GB/s")
    assert matrix([replace(row, verified=False, ms=None, note="needs")]) == (False, "needs")
    row = Row(Case(PRODUCTS, "product", (400,), "float32"), True, 0.1)
    assert product([row])[0] and not product([replace(row, verified=False)])[0]
    for judge in (wins, index, end, matrix, product):
        with pytest.raises(KeyError):
            judge([])
