"""Study of the reductions: the loops of the seminar, the shuffle of the laboratory, sum and maximum, any length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.dtypes import COURSE_TYPES
from kernels.study.baselines import BASELINES
from kernels.study.indices import REDUCTIONS, reduced
from kernels.study.reduce import (
    OPERATIONS,
    PARTIALS,
    VARIANTS,
    finish,
    finish_exact,
    max_reference,
    ordered,
    sum_bound,
    sum_reference,
)
from workflows.study.drawing import Tree
from workflows.study.study import BROKEN, ON_CPU, OURS, Arrays, Case, Conclusion, Figure, Row, Study, cost, parameters

COURSE_SIZE = 1024
SIZES = (COURSE_SIZE, 2**20, 2**25, 2**28)
QUICK_SIZES = (COURSE_SIZE, 2**25)
BLOCKS = (128, 256, 512, 1024)
RAGGED = 1_000_003  # a prime
ODD_BLOCK = 1000  # no power of two
LAB_MS = 0.032704  # 1024 ones, float, by events; 0.053728 under the profiler, which itself says 0.004256 for the kernel

THREADS = {"modulo": 8, "sequential": 8, "any_size": 7}  # of a drawing
RIGHT = tuple(variant for variant in VARIANTS.values() if variant.broken is None)


def _table(op: str, dtype: str) -> str:
    return f"{op} of {dtype}"


def _cases() -> Iterator[Case]:
    for dtype in COURSE_TYPES:
        for op in OPERATIONS:
            for n in SIZES:
                for variant in RIGHT:
                    if variant.name == "atomic_max" and op != "max":
                        continue
                    of_lab = (variant.name, op, n) == ("warp_shuffle", "sum", COURSE_SIZE)
                    yield Case(_table(op, dtype), variant.name, (n,), dtype, parameters(op=op),
                               course_ms=LAB_MS if of_lab and dtype == "float32" else None,
                               quick=of_lab or (dtype == "float32" and n in QUICK_SIZES))  # fmt: skip
    for name in ("sequential", "warp_shuffle"):
        for block in BLOCKS:
            yield Case("block", name, (2**28,), "float32", parameters(op="sum", block=block))
    for variant in RIGHT:
        yield Case("ragged", variant.name, (RAGGED,), "float32", parameters(op=variant.parameters["op"]), quick=True)
    yield Case("ragged", "any_size", (RAGGED,), "float32", parameters(op="sum", block=ODD_BLOCK), quick=True)
    for name, block in (("sequential", ODD_BLOCK), ("modulo", 2048)):
        yield Case("refused", name, (RAGGED,), "float32", parameters(op="sum", block=block), quick=True)
    for name in BASELINES["reduce"]:
        yield Case(ON_CPU, name, (2**25,), "float32", parameters(op="sum"), quick=True)
    for name, sizes in (
        ("float_drift", (COURSE_SIZE, 2**20)),
        ("missing_barrier", (COURSE_SIZE, 2**20, 2**25)),
        ("past_the_end", (COURSE_SIZE + 1, RAGGED, 2**25 - 1)),
    ):
        for n in sizes:
            yield Case(BROKEN, name, (n,), "float32", parameters(op="sum"), quick=True)
    for n in (2**25, 2**25 - 1):
        yield Case(BROKEN, "sequential", (n,), "float32", parameters(op="sum"), quick=True)


def _inputs(case: Case, generator: np.random.Generator) -> Arrays:
    """1024 ones for the laboratory's case; tenths, which are inexact in binary, for the drift; else random."""
    (n,) = case.sizes
    dtype = np.dtype(case.dtype)
    if case.table == BROKEN:
        return (np.full(n, 0.1 if case.variant == "float_drift" else 1, dtype),)
    if n == COURSE_SIZE and case.parameters["op"] == "sum":
        return (np.ones(n, dtype),)
    if dtype.kind == "i":
        return (generator.integers(-(2**31), 2**31, n, np.int32),)
    return (generator.random(n, dtype.type),)


def _reference(arrays: Arrays, case: Case) -> NDArray[Any]:
    """The partial of the whole array."""
    op = case.parameters["op"]
    if op == "sum":
        return np.array([sum_reference(arrays[0])], PARTIALS[op, case.dtype])
    return ordered(np.array([max_reference(arrays[0])], case.dtype))


def _disagreement(got: NDArray[Any], expected: NDArray[Any], arrays: Arrays, case: Case) -> str | None:
    """Exact, except for float sums of the ladder, which may be off by `sum_bound`."""
    op, dtype = case.parameters["op"], case.dtype
    if case.variant == "production":
        right, result = (values(array, op, dtype) for values, array in ((finish, expected), (finish_exact, got)))
        same = ordered(np.array(right, float)) == ordered(np.array(result, float)) if op == "max" else right == result
        return None if same else f"expected a {op} of {right}, got {result}"
    if got.dtype != PARTIALS[op, dtype] or got.ndim != 1 or not got.size:
        return f"expected partials of {PARTIALS[op, dtype]}, shape (1 or more,), got {got.dtype}, shape {got.shape}"
    result, right = finish(got, op, dtype), finish(expected, op, dtype)
    if op == "max":  # compared as ordered integers, which distinguish -0.0 from 0.0 and NaN from numbers
        return None if got.max() == expected.max() else f"expected a maximum of {right}, got {result}"
    bound = sum_bound(arrays[0], got.size) if dtype != "int32" else 0
    if not (abs(result - right) <= bound):
        return f"expected a sum of {right}, got {result}: {abs(result - right):.3g} apart, where {bound:.3g} may be"
    return None


def _ratios(rows: list[Row], variant: str, other: str, size: int | None = None) -> tuple[int, list[float]]:
    """Ratios of two variants' times, for every type and operation; at the largest size if none is given.

    Raises
    ------
    KeyError
        If no size was timed with both.
    """
    times = {
        (row.case.variant, row.case.table, row.case.sizes[0]): row.ms
        for row in rows
        if row.ms and row.case.table in TABLES
    }
    pairs = [
        (n, ms / times[other, table, n])
        for (name, table, n), ms in times.items()
        if name == variant and size in (None, n) and (other, table, n) in times
    ]
    if not pairs:
        raise KeyError(f"no size was timed with both {variant} and {other}")
    largest = max(n for n, _ in pairs)
    return largest, [ratio for n, ratio in pairs if n == largest]


def _range(ratios: list[float]) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def _some(rows: list[Row], what: str, chosen: Callable[[Row], bool]) -> list[Row]:
    some = [row for row in rows if chosen(row)]
    if not some:
        raise KeyError(f"no rows of {what}")
    return some


def _modulo_is_slow(rows: list[Row]) -> tuple[bool, str]:
    n, ratios = _ratios(rows, "modulo", "sequential")
    return min(ratios) > 1, f"{n} samples: modulo takes {_range(ratios)} times as long as sequential"


def _atomics_for_small(rows: list[Row]) -> tuple[bool, str]:
    _, small = _ratios(rows, "atomic_max", "sequential", COURSE_SIZE)
    n, large = _ratios(rows, "atomic_max", "sequential")
    numbers = (f"atomic_max over sequential: {_range(small)} with {COURSE_SIZE} samples (its one partial is set first, "
               f"which is timed), {_range(large)} with {n}")  # fmt: skip
    return n > COURSE_SIZE and max(small) <= 1.25 and min(large) > 1, numbers


def _shuffle_is_fast(rows: list[Row]) -> tuple[bool, str]:
    n, ratios = _ratios(rows, "warp_shuffle", "sequential")
    return max(ratios) < 1, f"{n} samples: warp_shuffle takes {_range(ratios)} times as long as sequential"


def _double_cures_drift(rows: list[Row]) -> tuple[bool, str]:
    drifted = _some(rows, "float_drift", lambda row: row.case.variant == "float_drift")
    times = {
        row.case.dtype: (row.ms, row.verified)
        for row in rows
        if row.ms and row.case.variant == "warp_shuffle" and row.case.sizes == (COURSE_SIZE,)
        if row.case.parameters["op"] == "sum"
    }
    if not {"float32", "float64"} <= set(times):
        raise KeyError("warp_shuffle was not timed with both float32 and float64")
    (float_ms, float_right), (double_ms, double_right) = times["float32"], times["float64"]
    ratio = double_ms / float_ms
    numbers = (f"float: {'; '.join(row.note for row in drifted)}. Accumulated in double both types agree with the "
               f"reference; {COURSE_SIZE} float64 samples take {ratio:.2f} times as long as float32")  # fmt: skip
    return all(row.verified for row in drifted) and float_right and double_right and ratio <= 1.25, numbers


def _guard_is_needed(rows: list[Row]) -> tuple[bool, str]:
    caught = _some(rows, "past_the_end", lambda row: row.case.variant == "past_the_end")
    guarded = _some(rows, "ragged sizes", lambda row: row.case.table == "ragged")
    wrong, right = sum(row.verified for row in caught), sum(row.verified for row in guarded)
    numbers = f"without a guard wrong in {wrong} of {len(caught)} cases, with one right in {right} of {len(guarded)}"
    return wrong == len(caught) and right == len(guarded), numbers


def _barrier_is_needed(rows: list[Row]) -> tuple[bool, str]:
    broken = _some(rows, "missing_barrier", lambda row: row.case.variant == "missing_barrier")
    caught = sum(row.verified for row in broken)
    return caught == len(broken), f"caught in {caught} of {len(broken)} cases: {broken[0].note}"


def _barriers_cost_little(rows: list[Row]) -> tuple[bool, str]:
    """Holds if all barriers of the loop cost at most a quarter."""
    ratio, said = cost(_of_size(rows, 2**25), "sequential", "missing_barrier", BROKEN)
    return ratio <= 1.25, said


def _guard_costs(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the guard makes the kernel slower, by however little."""
    ratio, said = cost(_of_size(rows, 2**25 - 1), "sequential", "past_the_end", BROKEN)
    return ratio > 1, said


def _of_size(rows: list[Row], n: int) -> list[Row]:
    return [row for row in rows if row.case.sizes == (n,)]


def _any_size_works(rows: list[Row]) -> tuple[bool, str]:
    odd = _some(rows, f"block={ODD_BLOCK}", lambda row: row.case.parameters.get("block") == ODD_BLOCK)
    done = {row.case.variant: row for row in odd}
    if not {"any_size", "sequential"} <= set(done):
        raise KeyError(f"any_size and sequential were not both tried with block={ODD_BLOCK}")
    outcome = "verified" if done["any_size"].verified else "wrong"
    return (done["any_size"].verified and not done["sequential"].verified,
            f"block={ODD_BLOCK}: any_size {outcome}; {done['sequential'].note}")  # fmt: skip


def _as_on_the_cpu(rows: list[Row]) -> tuple[bool, str]:
    (row, *_) = _some(rows, "1024 ones", lambda row: row.case.course_ms is not None)
    return row.verified, f"{COURSE_SIZE} ones on the GPU: {row.note or 'the sum of the reference'}"


TABLES = tuple(_table(op, dtype) for dtype in COURSE_TYPES for op in OPERATIONS)

STUDY = Study(
    job="reduce",
    course="D. Robilliard, Introduction à la programmation // sur GPUs en CUDA et Python, 2011 (Tesla C2050, no "
    "times); A. Taktek, M. Abdine, C. Krayem, S. Marchildon, R. Bensalah, Laboratoire 4, University of Ottawa, 2024 "
    "(GPU not named)",
    unit="GB/s",
    limit=lambda case: "read",
    variants=MappingProxyType({**VARIANTS, **BASELINES["reduce"]}),
    cases=tuple(_cases()),
    inputs=_inputs,
    reference=_reference,
    disagreement=_disagreement,
    work=lambda case: float(case.sizes[0] * np.dtype(case.dtype).itemsize),
    figures=(
        *(Figure(table, f"Reduction, {table}", "size") for table in TABLES),
        Figure("block", "Sum of 2^28 float32 by threads per block", "block"),
    ),
    conclusions=(
        Conclusion(
            "The naive reduction is slowed down by divergence and by the modulo",
            "Seminar, réduction –6",
            _modulo_is_slow,
        ),
        Conclusion("The loop for any size needs no power of two", "Seminar, réduction –12", _any_size_works),
        Conclusion(
            "Atomic operations suit small arrays, where conflicts are few", "Seminar, réduction –13", _atomics_for_small
        ),
        Conclusion(
            "Threads of different warps have to wait for each other at a barrier",
            "Seminar, Modèle de programmation –3",
            _barrier_is_needed,
        ),
        Conclusion("Shuffles within a warp save synchronisation, and time", "Lab4, p. 10", _shuffle_is_fast),
        Conclusion("The GPU's sum of 1024 ones is the CPU's", "Lab4, p. 11", _as_on_the_cpu),
        Conclusion(
            "Sums in float drift; double cures it and costs slightly more time", "Lab4, p. 14", _double_cures_drift
        ),
        Conclusion("A size that is no multiple of the block needs a guard", "Lab4, p. 14", _guard_is_needed),
        Conclusion("The check of the bounds costs time", "Lab4, p. 14", _guard_costs),
        Conclusion("the barriers of the loop cost a quarter at most", OURS, _barriers_cost_little),
    ),
    drawings=(
        Tree(
            "Eight threads reduce 1 ... 8 to 36; with any_size, seven reduce 1 ... 7 to 28",
            {variant: reduced(variant, list(range(1, n + 1))) for variant, n in THREADS.items()},
            {variant: list(REDUCTIONS[variant](n)) for variant, n in THREADS.items()},
        ),
    ),
)
