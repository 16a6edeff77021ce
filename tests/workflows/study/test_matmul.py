"""The study of matrix products: its error bound in exact fractions, its check, its cases and conclusions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from inspect import signature
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.study.matmul import error_bound, matmul_reference
from tests.kernels.study.test_matmul import DTYPES, KINDS, matrices
from workflows.study.matmul import STUDY, disagreement, work
from workflows.study.matmul_cases import BLOCK_GFLOPS, CPU_GFLOPS, TILE_GFLOPS
from workflows.study.study import BROKEN, COLD, Case, Row

CASE = Case("2-D blocks", "blocks_2d", (5, 7, 3), "float64")


def exact(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """The product in fractions."""
    as_fractions = np.vectorize(lambda x: Fraction(float(x)), otypes=[object])
    return np.asarray(as_fractions(a) @ as_fractions(b))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_bound_covers_reference_and_kernel(kind: str, dtype: str) -> None:
    """For all sums, in fractions: the errors of a kernel and the reference stay within the bound, which is tight."""
    a, b = matrices(kind, (4, 33, 5), dtype)
    off = np.abs(exact(a, b) - np.vectorize(Fraction, otypes=[object])(matmul_reference(a, b)))
    u, least = Fraction(float(np.finfo(dtype).eps)) / 2, Fraction(float(np.finfo(dtype).smallest_subnormal))
    kernel = 33 * u / (1 - 33 * u) * exact(np.abs(a), np.abs(b)) + 33 * least / 2
    bound = np.vectorize(Fraction, otypes=[object])(error_bound(a, b))
    assert (off + kernel <= bound).all()
    assert (bound <= 2 * kernel * (1 + 1000 * u) + 66 * least).all()


@given(st.integers(1, 6), st.integers(0, 9), st.integers(1, 6), st.integers(0, 2**32), st.sampled_from(DTYPES))
@settings(max_examples=25, deadline=None)
def test_reference_of_integers_is_exact(rows: int, inner: int, columns: int, seed: int, dtype: str) -> None:
    a, b = matrices("integers", (rows, inner, columns), dtype, seed)
    got = matmul_reference(a, b)
    assert got.dtype == np.float64
    expected = [[sum(int(a[i, k]) * int(b[k, j]) for k in range(inner)) for j in range(columns)] for i in range(rows)]
    np.testing.assert_array_equal(got, np.array(expected, float).reshape(rows, columns))


def test_bound_of_too_many_products() -> None:
    with pytest.raises(ValueError, match="fewer than 16777216 products in a sum, got 16777216"):
        error_bound(np.broadcast_to(np.float32(0), (1, 2**24)), np.zeros((1, 1), np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_disagreement_accepts_any_order_of_a_sum(kind: str, dtype: str) -> None:
    arrays = matrices(kind, (5, 67, 4), dtype)
    case, expected = replace(CASE, sizes=(5, 67, 4), dtype=dtype), matmul_reference(*arrays)
    products = (arrays[0][:, :, None] * arrays[1][None]).astype(dtype)
    for order in (products, products[:, ::-1], np.sort(products, axis=1)):
        assert disagreement(np.cumsum(order, axis=1, dtype=dtype)[:, -1], expected, arrays, case) is None
    assert disagreement(expected.astype(dtype), expected, arrays, case) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_disagreement_finds_what_is_wrong(dtype: str) -> None:
    arrays = matrices("random", (5, 7, 3), dtype)
    case, expected = replace(CASE, dtype=dtype), matmul_reference(*arrays)
    for wrong in (np.nan, np.inf, 0.0, expected[2, 1] * (1 + 200 * np.finfo(dtype).eps)):
        got = expected.astype(dtype)
        got[2, 1] = wrong
        assert "1 of 15 differ by more than rounding, first at (2, 1)" in (
            disagreement(got, expected, arrays, case) or ""
        )
    assert disagreement(expected.astype(dtype)[:, :2], expected, arrays, case)
    assert disagreement(expected.astype("float16"), expected, arrays, case)
    arrays = (arrays[0].copy(), arrays[1])
    arrays[0][2, 0] = np.inf  # no bound: nonfinite values must be equal
    expected = matmul_reference(*arrays)
    assert disagreement(expected.astype(dtype), expected, arrays, case) is None
    assert disagreement(np.zeros((5, 3), dtype), expected, arrays, case)


def test_cases_are_those_of_the_courses() -> None:
    sweep = [case for case in STUDY.cases if case.table == "2-D blocks"]
    assert len(sweep) == 66 and sum(case.course_ms is not None for case in sweep) == len(BLOCK_GFLOPS)
    by_block = {(case.parameters["x"], case.parameters["y"]): case for case in sweep}
    assert by_block[16, 64].course_ms == pytest.approx(1937.4, abs=0.1)  # 70.94 GFLOP/s
    small = {(case.variant, case.sizes[0]): case.course_ms for case in STUDY.cases if case.table == "small matrices"}
    assert small["blocks_2d", 512] == 0.53212 and small["whole_rows", 32] == 0.02 and small["whole_rows", 512] is None
    assert len(set(map(str, STUDY.cases))) == len(STUDY.cases)
    for case in STUDY.cases:
        variant = STUDY.variants[case.variant]
        signature(variant.run).bind(None, None, **case.parameters)
        assert STUDY.limit(case) == case.dtype and set(case.parameters) == set(variant.parameters)
        assert work(case) == 2 * case.sizes[0] ** 3
    tables = {case.table for case in STUDY.cases}
    assert {figure.table for figure in STUDY.figures} <= tables
    assert {case.table for case in STUDY.cases if case.quick} == tables


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_are_seeded(dtype: str) -> None:
    case = replace(CASE, dtype=dtype)
    once, again = (STUDY.inputs(case, np.random.default_rng(3)) for _ in range(2))
    assert [array.shape for array in once] == [(5, 7), (7, 3)]
    for array, same in zip(once, again, strict=True):
        assert array.dtype == dtype and array.flags.c_contiguous and np.abs(array).max() <= 1
        np.testing.assert_array_equal(array, same)
    np.testing.assert_array_equal(STUDY.reference(once, case), matmul_reference(*once))


def rows_of(rate: Callable[[Case], float | None], caught: bool) -> list[Row]:
    """Rows of the whole study at these GFLOP/s; cases without one are refused."""
    return [
        Row(case, caught or case.table != BROKEN, ms=work(case) / gflops / 1e6, note="seen")
        if (gflops := rate(case))
        else Row(case, False, note="needs")
        for case in STUDY.cases
    ]


def as_in_the_courses(case: Case) -> float | None:
    x, y = (case.parameters.get(side, 0) for side in "xy")
    if case.table == "cold and warm caches":
        return 1 if case.timing == COLD else 2
    if case.variant in ("whole_rows", "unrolled_rows"):
        return 1 if case.sizes[0] < 512 else None
    if case.table == "small matrices":
        return 2 if case.variant == "blocks_2d" else 2.1
    if case.variant == "shared_sums":
        return 0.5
    if case.variant == "cpu_blas":
        return CPU_GFLOPS
    rates = {"blocks_1d": {32: 25, 64: 30}.get(x, 29.5), "blocks_2d": BLOCK_GFLOPS.get((x, y), 40), "uncoalesced": 9}
    return rates.get(case.variant, TILE_GFLOPS.get(x, 1))


def the_other_way_round(case: Case) -> float:
    x, y = (case.parameters.get(side, 0) for side in "xy")
    if case.table == "small matrices":
        return {"blocks_2d": 1.0, "whole_rows": 2.0, "unrolled": 5.0, "rolled": 0.5, "unrolled_rows": 4.0}[case.variant]
    if case.table == "cold and warm caches":
        return 1
    if case.variant == "missing_barrier":
        return 2
    if case.variant == "shared_sums":
        return 9
    if case.variant == "cpu_blas":
        return 45
    if case.variant == "blocks_2d":
        return x if case.table == "shared tile" else 30 if (x, y) == (2, 64) else 20
    return {"blocks_1d": 40 if x == 64 else 50, "uncoalesced": 90}.get(case.variant, 8 / (x or 1))


def test_conclusions_are_judged_by_the_rows() -> None:
    for conclusion in STUDY.conclusions:
        held, numbers = conclusion.judge(rows_of(as_in_the_courses, True))
        assert held and numbers, conclusion.claim
        held, numbers = conclusion.judge(rows_of(the_other_way_round, False))
        assert not held and numbers, conclusion.claim
        with pytest.raises(KeyError):
            conclusion.judge([])
        quick = [row for row in rows_of(as_in_the_courses, True) if row.case.quick]
        assert conclusion.judge(quick)[0], conclusion.claim
