"""The study of histograms: its cases, its check, its conclusions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels.study.histogram import VALUES
from workflows.study.histogram import CONSTANT, COURSE_SAMPLES, STUDY
from workflows.study.study import Row


def test_study_is_well_formed() -> None:
    for case in STUDY.cases:
        assert set(case.parameters) == set(STUDY.variants[case.variant].parameters)
        assert (STUDY.work(case), STUDY.limit(case)) == (4 * case.sizes[0], "read")
        own = dict(case.parameters)
        if own and STUDY.variants[case.variant].broken is None:  # the course's grids cover its samples exactly
            assert np.prod(list(own.values())) == COURSE_SAMPLES
    assert {case.variant for case in STUDY.cases if case.quick} == set(STUDY.variants)
    assert {figure.table for figure in STUDY.figures} <= {case.table for case in STUDY.cases}
    for table, ratio in ((CONSTANT, 1.0), (STUDY.cases[0].table, 1 / VALUES)):
        case = next(case for case in STUDY.cases if case.table == table)
        (samples,) = STUDY.inputs(replace(case, sizes=(2**16,)), np.random.default_rng(0))
        assert np.bincount(samples, minlength=VALUES).max() / 2**16 == pytest.approx(ratio, rel=1)


def test_disagreement() -> None:
    case = replace(STUDY.cases[0], sizes=(5000,))
    arrays = STUDY.inputs(case, np.random.default_rng(0))
    expected = STUDY.reference(arrays, case)
    assert STUDY.disagreement(expected.copy(), expected, arrays, case) is None
    wrong = expected.copy()
    wrong[7] += 1
    assert "first at (7,)" in str(STUDY.disagreement(wrong, expected, arrays, case))
    assert STUDY.disagreement(expected.astype(np.int32), expected, arrays, case)
    assert STUDY.disagreement(np.full(VALUES, np.nan), expected, arrays, case)


TIMES = {"inverse": 60.0, "banks": 10.0, "banks2": 10.0, "banks4": 10.0, "banks_if": 10.0, "banks_xor": 10.0,
         "shared": 1.0, "production": 0.5, "no_barrier": 0.95, "plain_add": 4.0, "past_the_end": 4.9}  # fmt: skip


def rows(**ms: float) -> list[Row]:
    """Rows of the study: times by variant (5 by default); broken variants were caught unless 0."""
    recorded = []
    for case in STUDY.cases:
        time = {**TIMES, **ms}.get(case.variant, 5.0)
        if STUDY.variants[case.variant].broken:
            recorded.append(Row(case, bool(time), time or 1.0, note="seen"))
            continue
        time *= ms.get("constant", 1.0) if case.table == CONSTANT else 1.0
        time *= ms.get("long_slice", 1.0) if case.parameters.get("slice") == 2048 else 1.0
        recorded.append(Row(case, True, time, 1.0, 1.0))
    return recorded


@pytest.mark.parametrize(
    ("number", "failing"),
    [
        (0, {"long_slice": 1.2}),
        (1, {"course_unrolled": 4.0}),
        (2, {"course_ilp": 4.0}),
        (3, {"one_per_thread": 9.0}),
        (4, {"shared": 2.0}),
        (5, {"banks": 70.0}),
        (6, {"banks": 30.0}),
        (7, {"banks4": 5.0}),
        (8, {"banks_if": 11.1}),
        (9, {"plain_add": 0}),
        (10, {"no_barrier": 0.9}),
        (11, {"past_the_end": 4.0}),
        (12, {"plain_add": 5.1}),
        (13, {"production": 1.1}),
        (14, {"constant": 2.0}),
    ],
)
def test_conclusions(number: int, failing: dict[str, float]) -> None:
    judge = STUDY.conclusions[number].judge
    held, numbers = judge(rows())
    assert held
    assert numbers
    assert not judge(rows(**failing))[0]
    with pytest.raises(KeyError):
        judge([])


def test_every_conclusion_is_tested() -> None:
    assert len(STUDY.conclusions) == 15
