"""The study of failures that no ladder shows: a race on one pair, overflow, uninitialised input, a launch too long."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kernels.study.failures import VARIANTS, pairs_reference, sum_reference
from workflows.study.study import Arrays, Case, Conclusion, Row, Study, caught, first_difference

PAIR, OVERFLOW, UNINITIALISED, LONG = (
    "two threads and one pair", "integer overflow", "uninitialised input", "a kernel that runs too long"
)  # fmt: skip
OF_TABLE = {  # right and wrong, and how much data
    PAIR: (("ordered_pair", "racing_pair"), 3000), OVERFLOW: (("wide_sum", "narrow_sum"), 2**20),
    UNINITIALISED: (("wide_sum", "uninitialised"), 2**20), LONG: (("short_launches", "too_long"), 2**21),
}  # fmt: skip
BEFORE = 40  # what A holds before anybody sets it


def _cases() -> tuple[Case, ...]:
    return tuple(
        Case(table, variant, (n,), "int32", VARIANTS[variant].parameters, quick=True)
        for table, (variants, n) in OF_TABLE.items()
        for variant in variants
    )


def inputs(case: Case, generator: np.random.Generator) -> Arrays:
    """What A holds at first; integers whose sum is beyond 32 bits; integers of both signs."""
    if case.table == PAIR:
        return (np.full(case.sizes, BEFORE, np.int32),)
    if case.table == OVERFLOW:
        return (generator.integers(2**30, 2**31, case.sizes, np.int32),)
    return (generator.integers(-1000, 1000, case.sizes, np.int32),)


def reference(arrays: Arrays, case: Case) -> NDArray[np.generic]:
    """1 and 2 for each pair; the sum in 64 bits."""
    return pairs_reference(arrays[0]) if case.table == PAIR else sum_reference(arrays[0])


def disagreement(got: NDArray[np.generic], expected: NDArray[np.generic], _: Arrays, case: Case) -> str | None:
    """Exact; of pairs, how often B was what."""
    wrong = first_difference(got, expected)
    if wrong is None or case.table != PAIR or got.shape != expected.shape:
        return wrong
    values, counts = np.unique(got[1::2], return_counts=True)
    said = ", ".join(f"{value} in {count}" for value, count in zip(values.tolist(), counts.tolist(), strict=True))
    return f"B is {said} of {len(got) // 2} pairs, expected 2"


def is_shown(rows: list[Row], right: str, wrong: str, table: str) -> tuple[bool, str]:
    """Holds if the wrong variant was caught and the right one agreed; KeyError where either is missing."""
    here = [row for row in rows if row.case.table == table]
    agreed = [row.verified for row in here if row.case.variant == right]
    if not agreed:
        raise KeyError(f"no row of {right} in {table}")
    shown, said = caught(here, wrong)
    return shown and all(agreed), said


STUDY = Study(
    job="failures",
    course="what four of the courses report as failures (no times)",
    unit="GB/s",
    limit=lambda case: "read",
    variants=VARIANTS,
    cases=_cases(),
    inputs=inputs,
    reference=reference,
    disagreement=disagreement,
    work=lambda case: 4.0 * math.prod(case.sizes),
    conclusions=(
        Conclusion(
            "Without synchronisation B is 1 or 2 or something else",
            "Seminar, Modèle de programmation –1",
            lambda rows: is_shown(rows, "ordered_pair", "racing_pair", PAIR),
        ),
        Conclusion(
            "A sum of many elements exceeds its type; a wider one cures it",
            "Lab4, p. 14",
            lambda rows: is_shown(rows, "wide_sum", "narrow_sum", OVERFLOW),
        ),
        Conclusion(
            "Input that was not initialised brings errors that nobody can foresee",
            "Lab4, p. 14",
            lambda rows: is_shown(rows, "wide_sum", "uninitialised", UNINITIALISED),
        ),
        Conclusion(
            "A kernel that runs too long is ended; here, shorter launches compute the same",
            "TP CUDA, introduction",
            lambda rows: is_shown(rows, "short_launches", "too_long", LONG),
        ),
    ),
)
