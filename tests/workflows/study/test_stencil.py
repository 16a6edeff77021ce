"""The study of the stencil: its cases, its check, its conclusions; on a GPU, its variants on the course's data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels.study.stencil import COURSE_TYPES, VARIANTS
from workflows.study.stencil import BROKEN, LARGE_RADIUS, SMALL_RADIUS, STUDY, out_dtype
from workflows.study.study import Row


def test_study_is_well_formed() -> None:
    for case in STUDY.cases:
        assert set(case.parameters) == set(VARIANTS[case.variant].parameters)
        assert STUDY.work(case) > 0
        assert STUDY.limit(case) == "copy"
    assert {case.variant for case in STUDY.cases if case.quick} == set(VARIANTS)
    assert {figure.table for figure in STUDY.figures} <= {case.table for case in STUDY.cases}


@pytest.mark.parametrize("dtype", COURSE_TYPES)
@pytest.mark.parametrize("radius", [3, 1000])
def test_disagreement(dtype: str, radius: int) -> None:
    case = next(c for c in STUDY.cases if (c.dtype, c.parameters["radius"]) == (dtype, radius))
    case = replace(case, sizes=(5000,))
    arrays = STUDY.inputs(case, np.random.default_rng(0))
    expected = STUDY.reference(arrays, case)
    right = expected.astype(out_dtype(case))
    assert STUDY.disagreement(right, expected, arrays, case) is None
    assert "5000" in str(STUDY.disagreement(right[:-1], expected, arrays, case))
    assert STUDY.disagreement(right.astype(np.float16), expected, arrays, case)
    wrong = right.copy()
    wrong[77] += 1 if dtype == "int32" else 1e-3
    assert "first at " in str(STUDY.disagreement(wrong, expected, arrays, case))
    if dtype != "int32":
        wrong[77] = np.nan
        assert "first at 77" in str(STUDY.disagreement(wrong, expected, arrays, case))


def rows(**ms: float) -> list[Row]:
    """Rows of the study with times by `<variant>_<radius>`, or `beside_<variant>`; broken variants were caught unless
    0. Copies take a millisecond and a half each way, so that a kernel of one has a quarter of the time."""
    recorded = []
    for case in STUDY.cases:
        radius = case.parameters["radius"]
        if case.table in (SMALL_RADIUS, LARGE_RADIUS):
            recorded.append(Row(case, True, ms.get(f"{case.variant}_{radius}", 1.0), 1.0, 1.0, 1.5, 1.5))
        elif case.table == BROKEN:
            caught = bool(ms.get(case.variant, 1))
            recorded.append(Row(case, caught, ms.get(f"beside_{case.variant}", 1.0), note="seen"))
    return recorded


@pytest.mark.parametrize(
    ("number", "holding", "failing"),
    [
        (0, {}, {"shared_halo_3": 0.1}),
        (1, {"beside_shared_halo": 1.09}, {"beside_shared_halo": 1.2}),
        (2, {"beside_global_memory": 1.09}, {"beside_global_memory": 1.2}),
        (3, {}, {"shared_halo_3": 2.0}),
        (4, {"shared_halo_1000": 0.5}, {}),
        (5, {}, {"missing_barrier": 0}),
        (6, {}, {"past_the_end": 0}),
        (7, {"production_1000": 1.9}, {"production_1000": 2.1}),
    ],
)
def test_conclusions(number: int, holding: dict[str, float], failing: dict[str, float]) -> None:
    judge = STUDY.conclusions[number].judge
    held, numbers = judge(rows(**holding))
    assert held
    assert numbers
    assert not judge(rows(**failing))[0]
    with pytest.raises(KeyError):
        judge([])


def test_every_conclusion_is_tested() -> None:
    assert len(STUDY.conclusions) == 8


@pytest.mark.gpu
@pytest.mark.hardware
def test_course_size_on_gpu() -> None:
    """Every variant on the course's data: right ones agree, broken ones are caught."""
    import cupy

    for case in STUDY.cases:
        if case.sizes != (2**19,) or case.parameters.get("block") == 2048:
            continue
        arrays = STUDY.inputs(case, np.random.default_rng(2))
        expected = STUDY.reference(arrays, case)
        device, variant = cupy.asarray(arrays[0]), VARIANTS[case.variant]
        attempts = 20 if variant.broken else 1  # a race does not show every time
        mismatches = (
            STUDY.disagreement(variant.run(device, **case.parameters).get(), expected, arrays, case)
            for _ in range(attempts)
        )
        assert any(mismatches) == bool(variant.broken), case
