"""Study of the reductions: its cases, its verdicts, its conclusions."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

from kernels.reduce import exact_sum
from kernels.reduce.cpu import reduce_cpu
from kernels.reduce.exact_sum import SUM_BITS
from kernels.reduce.partial import EXTREMES, MAX_KEY, NAN, SUM, SUM_AT
from kernels.study.reduce import COURSE_TYPES, OPERATIONS, ordered
from workflows.study.reduce import STUDY
from workflows.study.study import Case, Row, parameters

DTYPES = tuple(COURSE_TYPES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_study_tells_right_from_wrong(op: str, dtype: str) -> None:
    case = Case("table", "warp_shuffle", (1000,), dtype, parameters(op=op))
    given_arrays = STUDY.inputs(case, np.random.default_rng(0))
    expected = STUDY.reference(given_arrays, case)
    assert STUDY.disagreement(expected, expected, given_arrays, case) is None
    assert "expected" in (STUDY.disagreement(expected * 0 + 1, expected, given_arrays, case) or "")
    assert "partials" in (STUDY.disagreement(expected.astype("f4"), expected, given_arrays, case) or "")
    assert "partials" in (STUDY.disagreement(expected[:0], expected, given_arrays, case) or "")
    if dtype != "int32":
        nan = np.array([np.nan], dtype if op == "max" else "f8")
        assert "nan" in (STUDY.disagreement(ordered(nan) if op == "max" else nan, expected, given_arrays, case) or "")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_the_exact_partial_is_compared_exactly(op: str, dtype: str) -> None:
    """The job's check: no tolerance for rounding."""
    case = Case("table", "production", (1000,), dtype, parameters(op=op))
    (samples,) = STUDY.inputs(case, np.random.default_rng(1))
    expected = STUDY.reference((samples,), case)
    got = reduce_cpu(samples, SUM | EXTREMES)
    assert STUDY.disagreement(got, expected, (samples,), case) is None
    wrong = got.copy()
    if op == "max":
        wrong[MAX_KEY] -= 1
    else:  # one unit in the last place of the sum
        digits = SUM_BITS if dtype == "int32" else math.frexp(float(expected[0]))[1] - 53 + SUM_BITS
        total = exact_sum.from_words(got[SUM_AT]) + (1 << digits)
        wrong[SUM_AT] = exact_sum.to_words(total, len(got[SUM_AT]))
    assert f"expected a {op} of" in (STUDY.disagreement(wrong, expected, (samples,), case) or "")
    wrong = got.copy()
    wrong[NAN] = 1
    assert "got nan" in (STUDY.disagreement(wrong, expected, (samples,), case) or "")


def test_cases_are_accepted_and_conclusions_judged_both_ways() -> None:
    times = {
        "modulo": 2.0,
        "sequential": 1.0,
        "warp_shuffle": 0.5,
        "atomic_max": 1.5,
        "missing_barrier": 2.0,
        "past_the_end": 0.9,
    }
    for case in STUDY.cases:
        inspect.signature(STUDY.variants[case.variant].run).bind(None, **case.parameters)
    refused = [case for case in STUDY.cases if case.table == "refused"]

    def rows(good: bool) -> list[Row]:
        return [
            Row(case, verified=good != (case in refused), note="as told", ms=None if case in refused else
                times.get(case.variant, 1) ** (1 if good else -1) / (2 if case.sizes == (1024,) else 1)
                * (0.5 if case.variant == "atomic_max" and case.sizes == (1024,) else 1))
            for case in STUDY.cases
        ]  # fmt: skip

    for conclusion in STUDY.conclusions:
        for good in (True, False):
            held, numbers = conclusion.judge(rows(good))
            assert held == good and numbers, conclusion.claim
