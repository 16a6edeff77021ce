"""The study of failures: its cases, its check, its conclusions."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature

import numpy as np
import pytest

from workflows.study.failures import BEFORE, OF_TABLE, PAIR, STUDY
from workflows.study.study import Row


def test_study_is_well_formed() -> None:
    for case in STUDY.cases:
        variant = STUDY.variants[case.variant]
        signature(variant.run).bind(None, **case.parameters)
        assert case.quick and set(case.parameters) == set(variant.parameters)
        small = replace(case, sizes=(1000,))
        arrays = STUDY.inputs(small, np.random.default_rng(0))
        expected = STUDY.reference(arrays, small)
        assert STUDY.disagreement(expected.copy(), expected, arrays, small) is None
        assert STUDY.disagreement(expected + 1, expected, arrays, small)
        assert STUDY.disagreement(expected[:0], expected, arrays, small)
    for (right, wrong), _ in OF_TABLE.values():
        assert STUDY.variants[wrong].broken and not STUDY.variants[right].broken


def test_a_sum_that_overflows() -> None:
    case = next(case for case in STUDY.cases if case.variant == "narrow_sum")
    (samples,) = STUDY.inputs(case, np.random.default_rng(0))
    assert STUDY.reference((samples,), case)[0] > 2**32


def test_outcomes_of_the_race_are_counted() -> None:
    case = next(case for case in STUDY.cases if case.table == PAIR)
    arrays = STUDY.inputs(replace(case, sizes=(4,)), np.random.default_rng(0))
    expected = STUDY.reference(arrays, case)
    got = expected.copy()
    got[1], got[3] = 1, BEFORE + 1
    said = "B is 1 in 1, 2 in 2, 41 in 1 of 4 pairs, expected 2"
    assert STUDY.disagreement(got, expected, arrays, case) == said


@pytest.mark.parametrize(("number", "table"), list(enumerate(OF_TABLE)))
def test_conclusions(number: int, table: str) -> None:
    judge = STUDY.conclusions[number].judge
    rows = [Row(case, True, note="seen") for case in STUDY.cases]
    assert judge(rows)[0] and "seen" in judge(rows)[1]
    for name in OF_TABLE[table][0]:
        wrong = [replace(row, verified=(row.case.variant, row.case.table) != (name, table)) for row in rows]
        assert not judge(wrong)[0], name
    with pytest.raises(KeyError):
        judge([])
    with pytest.raises(KeyError):
        judge([row for row in rows if STUDY.variants[row.case.variant].broken])
    assert len(STUDY.conclusions) == len(OF_TABLE)
