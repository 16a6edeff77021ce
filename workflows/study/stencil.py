"""The study of a one-dimensional stencil: when shared memory pays off, and what its barrier is for.

The course, by A. Cabana Suárez and Ó. Gómez Borzdynski, gives times for radius 1000 and 2**19 elements only. It states
neither the element type nor the block; we use int32 and 1024 threads, as it does for vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.study.stencil import OUT, VARIANTS, stencil_bound, stencil_reference
from workflows.study.study import (
    BROKEN,
    OURS,
    Arrays,
    Case,
    Conclusion,
    Figure,
    Row,
    Study,
    caught,
    cost,
    farther_than,
    first_difference,
    parameters,
)

LADDER = ("global_memory", "shared_halo", "production")
COURSE_MS = {"global_memory": 3.36, "shared_halo": 2.86}  # radius 1000, 2**19 elements
COURSE_SIZE, LARGE = 2**19, 2**25
SMALL_RADIUS, LARGE_RADIUS, RADII, TYPES, REFUSED = (
    "radius 3", "radius 1000", "by radius", "types", "refused"
)  # fmt: skip
MAGNITUDE = 1024  # largest magnitude of a sample: small enough to read, and exact in every type


def _own(variant: str, radius: int, block: int = 1024) -> dict[str, int]:
    return {"radius": radius} if variant == "production" else {"radius": radius, "block": block}


def _cases() -> Iterator[Case]:
    for table, radius in ((SMALL_RADIUS, 3), (LARGE_RADIUS, 1000)):
        for n in (COURSE_SIZE, LARGE):
            for variant in LADDER:
                course_ms = COURSE_MS.get(variant) if (n, radius) == (COURSE_SIZE, 1000) else None
                yield Case(table, variant, (n,), "int32", parameters(**_own(variant, radius)), course_ms, quick=True)
    for radius in (1, 3, 10, 30, 100, 300, 1000, 3000):
        for variant in LADDER:
            yield Case(RADII, variant, (2**22,), "int32", parameters(**_own(variant, radius)))
    for dtype in ("float32", "float64"):
        for radius in (3, 1000):
            yield Case(TYPES, "production", (2**24,), dtype, parameters(radius=radius))
    yield Case(REFUSED, "shared_halo", (1000,), "int32", parameters(radius=1001, block=1024), quick=True)
    yield Case(REFUSED, "shared_halo", (COURSE_SIZE,), "int32", parameters(radius=3, block=2048), quick=True)
    for n in (COURSE_SIZE, LARGE):
        for variant in ("missing_barrier", "shared_halo", "past_the_end", "global_memory"):
            yield Case(BROKEN, variant, (n,), "int32", parameters(radius=3, block=1024), quick=True)
    yield Case(BROKEN, "missing_barrier", (COURSE_SIZE,), "int32", parameters(radius=1000, block=1024), quick=True)


def inputs(case: Case, generator: np.random.Generator) -> Arrays:
    """Integers of both signs, or floats between -1 and 1, whose sums have to be rounded."""
    if case.dtype == "int32":
        return (generator.integers(-MAGNITUDE, MAGNITUDE, case.sizes, np.int32, endpoint=True),)
    return ((2 * generator.random(case.sizes) - 1).astype(case.dtype),)


def reference(arrays: Arrays, case: Case) -> NDArray[np.generic]:
    """The sums by NumPy: exact for integers, in long double for floats."""
    return stencil_reference(arrays[0], case.parameters["radius"])


def out_dtype(case: Case) -> np.dtype[Any]:
    """Dtype of a variant's output: production does not round its float64 sums to float32."""
    return np.dtype("float64" if case.variant == "production" and case.dtype == "float32" else OUT[case.dtype])


def disagreement(got: NDArray[Any], expected: NDArray[Any], arrays: Arrays, case: Case) -> str | None:
    """Integers are exact; floats may differ by as much as rounding explains: see `stencil_bound` for the proof."""
    if case.dtype == "int32":
        return first_difference(got, expected)
    bound = stencil_bound(arrays[0], case.parameters["radius"])
    return farther_than(got, expected, bound, out_dtype(case))


def work(case: Case) -> float:
    """Bytes read and written, each sample and each sum once."""
    return math.prod(case.sizes) * float(np.dtype(case.dtype).itemsize + out_dtype(case).itemsize)


def _times(rows: list[Row], table: str) -> dict[tuple[str, int], float]:
    """Milliseconds by variant and size."""
    return {
        (row.case.variant, row.case.sizes[0]): row.ms for row in rows if row.case.table == table and row.ms is not None
    }


def _gains(rows: list[Row], table: str) -> tuple[list[float], str]:
    """Speedup of shared over global memory at each size, as numbers and in words."""
    times = _times(rows, table)
    gains = {n: ms / times["shared_halo", n] for (variant, n), ms in times.items()
             if variant == "global_memory" and ("shared_halo", n) in times}  # fmt: skip
    if not gains:
        raise KeyError(f"no timed rows of global_memory and shared_halo, {table}")
    said = ", ".join(
        f"{n:,} elements: {times['global_memory', n]:.4g} and {times['shared_halo', n]:.4g} ms, {gain:.2f} times faster"
        for n, gain in gains.items()
    )
    return list(gains.values()), said


def shared_alike(rows: list[Row]) -> tuple[bool, str]:
    """Holds if, with radius 3, shared memory changes the time by a quarter at most."""
    gains, said = _gains(rows, SMALL_RADIUS)
    return all(0.8 <= gain <= 1.25 for gain in gains), said


def shared_faster(rows: list[Row]) -> tuple[bool, str]:
    """Holds if, with radius 1000, shared memory is faster at every size."""
    gains, said = _gains(rows, LARGE_RADIUS)
    return all(gain > 1 for gain in gains), said


def barrier_is_cheap(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the barrier costs between nothing and a tenth."""
    ratio, said = cost(_of_size(rows, LARGE), "shared_halo", "missing_barrier", BROKEN)
    return 1 <= ratio <= 1.1, said


def guard_is_cheap(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the guard costs at most a tenth."""
    ratio, said = cost(_of_size(rows, LARGE), "global_memory", "past_the_end", BROKEN)
    return ratio <= 1.1, said


def _of_size(rows: list[Row], n: int) -> list[Row]:
    return [row for row in rows if row.case.sizes == (n,)]


def copies_take_most(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the kernel takes 20 to 32 % of the time of both copies and itself."""
    shares = {
        (row.case.variant, row.case.sizes[0]): row.kernel_share
        for row in rows
        if row.case.table == SMALL_RADIUS and row.kernel_share is not None and row.case.variant != "production"
    }
    if not shares:
        raise KeyError("no timed rows of radius 3 with the times of the copies")
    said = ", ".join(f"{variant} of {n:,}: {share:.1%}" for (variant, n), share in shares.items())
    return all(0.2 <= share <= 0.32 for share in shares.values()), f"share of the kernel: {said}"


def radius_matters_little(rows: list[Row]) -> tuple[bool, str]:
    """Holds if production takes at most twice as long for radius 1000 as for radius 3."""
    few, many = _times(rows, SMALL_RADIUS), _times(rows, LARGE_RADIUS)
    key = ("production", LARGE)
    if key not in few or key not in many:
        raise KeyError("no timed rows of production for both radii")
    fastest = min((ms for (variant, n), ms in many.items() if n == LARGE and variant != "production"), default=math.nan)
    numbers = (f"{LARGE:,} elements: radius 3 {few[key]:.4g} ms, radius 1000 {many[key]:.4g} ms, where the better of "
               f"the course's kernels takes {fastest:.4g} ms")  # fmt: skip
    return many[key] <= 2 * few[key], numbers


STUDY = Study(
    job="stencil",
    course="A. Cabana Suárez, Ó. Gómez Borzdynski: Programación GPGPU (Google Colab, GPU not named; type and block "
    "inferred)",
    unit="GB/s",
    limit=lambda case: "copy",
    variants=VARIANTS,
    cases=tuple(_cases()),
    inputs=inputs,
    reference=reference,
    disagreement=disagreement,
    work=work,
    figures=(
        Figure(RADII, "Sums of 2^22 int32 samples within a radius", "radius"),
        Figure(SMALL_RADIUS, "Sums of int32 samples within a radius of 3, by their number", "size"),
        Figure(LARGE_RADIUS, "Sums of int32 samples within a radius of 1000, by their number", "size"),
    ),
    conclusions=(
        Conclusion(
            "The kernel takes 26 % of the time, the copies take the rest (here: 20 to 32 %)",
            "GPGPU, Stencil1d",
            copies_take_most,
        ),
        Conclusion(
            "Waiting at the barrier takes slightly longer (here: up to a tenth)", "GPGPU, Stencil1d", barrier_is_cheap
        ),
        Conclusion("a guard costs a tenth at most", OURS, guard_is_cheap),
        Conclusion(
            "With radius 3, where each sample is read 7 times, shared memory makes no difference (here: a quarter at "
            "most)",
            "GPGPU, Stencil1d",
            shared_alike,
        ),
        Conclusion(
            "With radius 1000, shared memory is faster: 2.86 ms against 3.36 ms", "GPGPU, Stencil1d", shared_faster
        ),
        Conclusion(
            "Without __syncthreads, threads read samples that are not there yet, and sums are wrong",
            "GPGPU, Stencil1d",
            lambda rows: caught(rows, "missing_barrier"),
        ),
        Conclusion(
            "without a guard, sums at the ends take in what lies outside of the array",
            OURS,
            lambda rows: caught(rows, "past_the_end"),
        ),
        Conclusion(
            "where sums slide from window to window, radius 1000 takes at most twice as long as radius 3",
            OURS,
            radius_matters_little,
        ),
    ),
)
