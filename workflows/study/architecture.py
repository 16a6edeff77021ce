"""The study of what the seminar says of a multiprocessor: latency of memory, divergence within a warp."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kernels.study.architecture import VARIANTS, chain_of, chain_reference, ways_reference
from workflows.study.study import Arrays, Case, Conclusion, Row, Study, best, first_difference, parameters

LATENCY, DIVERGENCE = "latency of memory", "divergence within a warp"
STEPS = 2**16
WAYS = 2**22


def _cases() -> tuple[Case, ...]:
    steps = parameters(steps=STEPS)
    lengths = (("shared_chain", 2**12), ("global_chain", 2**12), ("global_chain", 2**27))
    chains = [Case(LATENCY, variant, (n,), "int32", steps, quick=True) for variant, n in lengths]
    ways = [Case(DIVERGENCE, variant, (WAYS,), "uint32", parameters(steps=64), quick=True)
            for variant in ("uniform_warps", "divergent")]  # fmt: skip
    return (*chains, *ways)


def inputs(case: Case, generator: np.random.Generator) -> Arrays:
    """A chain through all places; any numbers."""
    if case.table == LATENCY:
        return (chain_of(case.sizes[0]),)
    return (generator.integers(0, 2**32, case.sizes, np.uint32),)


def reference(arrays: Arrays, case: Case) -> NDArray[np.generic]:
    """The last place of the chain; the numbers at the ends of their ways."""
    steps = case.parameters["steps"]
    if case.table == LATENCY:
        return chain_reference(arrays[0], steps)
    return ways_reference(arrays[0], steps, case.variant == "divergent")


def work(case: Case) -> float:
    """Bytes: of each step of a chain, or read and written."""
    return 4.0 * case.parameters["steps"] if case.table == LATENCY else 8.0 * math.prod(case.sizes)


def shared_is_near(rows: list[Row]) -> tuple[bool, str]:
    """Holds if a step in global memory takes at least ten times as long as in shared memory."""
    times = {(row.case.variant, row.case.sizes[0]): (row.ms or math.nan) / STEPS * 1e6 for row in rows
             if row.case.table == LATENCY and row.ms}  # fmt: skip
    (shared,) = [ns for (name, _), ns in times.items() if name == "shared_chain"] or _missing("shared_chain")
    far = max([ns for (name, _), ns in times.items() if name == "global_chain"] or _missing("global_chain"))
    said = ", ".join(f"{name} of {4 * n // 1024:,} KiB {ns:.3g} ns" for (name, n), ns in times.items())
    return far >= 10 * shared, f"a step takes: {said}"


def _missing(variant: str) -> list[float]:
    raise KeyError(f"no timed row of {variant}")


def divergence_costs(rows: list[Row]) -> tuple[bool, str]:
    """Holds if warps whose lanes go both ways take at least half as long again."""
    uniform, divergent = (best(rows, name, DIVERGENCE).ms or math.nan for name in ("uniform_warps", "divergent"))
    said = f"uniform {uniform:.4g} ms, divergent {divergent:.4g} ms: {divergent / uniform:.2f} times"
    return divergent >= 1.5 * uniform, said


STUDY = Study(
    job="architecture",
    course="D. Robilliard, Introduction à la programmation // sur GPUs en CUDA et Python, 2011 (Tesla C2050, no times)",
    unit="GB/s",
    limit=lambda case: "read",
    variants=VARIANTS,
    cases=_cases(),
    inputs=inputs,
    reference=reference,
    disagreement=lambda got, expected, arrays, case: first_difference(got, expected),
    work=work,
    conclusions=(
        Conclusion(
            "Shared memory answers in 4 cycles, global memory in 400 (here: at least ten times as long)",
            "Seminar, Architecture matérielle –2",
            shared_is_near,
        ),
        Conclusion(
            "Lanes that do different things leave others idle (here: at least half as long again)",
            "Seminar, Architecture matérielle –2",
            divergence_costs,
        ),
    ),
)
