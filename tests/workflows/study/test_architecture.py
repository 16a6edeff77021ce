"""The study of the architecture: its cases, its conclusions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from workflows.study.architecture import LATENCY, STUDY
from workflows.study.study import Row, parameters


def test_study_is_well_formed() -> None:
    for case in STUDY.cases:
        assert case.quick and set(case.parameters) == set(STUDY.variants[case.variant].parameters)
        small = replace(case, sizes=(64,), parameters=parameters(steps=3))
        arrays = STUDY.inputs(small, np.random.default_rng(0))
        expected = STUDY.reference(arrays, small)
        assert STUDY.disagreement(expected.copy(), expected, arrays, small) is None
        assert STUDY.disagreement(expected + expected.dtype.type(1), expected, arrays, small)
        assert STUDY.work(case) > 0


def rows(shared: float, far: float, divergent: float) -> list[Row]:
    times = {("shared_chain", 2**12): shared, ("global_chain", 2**27): far, ("divergent", 2**22): divergent}
    return [Row(case, True, times.get((case.variant, case.sizes[0]), 1.0)) for case in STUDY.cases]


def test_conclusions() -> None:
    latency, divergence = (conclusion.judge for conclusion in STUDY.conclusions)
    assert latency(rows(0.5, 5.0, 1.0))[0] and not latency(rows(0.5, 4.9, 1.0))[0]
    assert "shared_chain of 16 KiB 7.63 ns" in latency(rows(0.5, 5.0, 1.0))[1]
    assert divergence(rows(1.0, 1.0, 1.5))[0] and not divergence(rows(1.0, 1.0, 1.4))[0]
    for judge in (latency, divergence):
        with pytest.raises(KeyError):
            judge([])
    with pytest.raises(KeyError, match="no timed row of global_chain"):
        latency([row for row in rows(1, 1, 1) if row.case.table != LATENCY or row.case.variant == "shared_chain"])
