"""The study of transposition: a tile in shared memory, without and with a column of padding.

The course does not state the size of its matrix. We infer 1024 x 1024 floats from its profile: one copy to the host
takes 0.665 ms, the kernel with padding 62 us. For 1024 x 1024 that is 6.3 GB/s, typical of pageable memory, and
135 GB/s; for 2048 x 2048 it would be 25 GB/s, which only pinned memory reaches, and 539 GB/s, which few GPUs reached
that nvprof still supports. The sum of 1024 elements in the same document suggests the same.
"""

from __future__ import annotations

import math
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kernels.study.baselines import BASELINES
from kernels.study.indices import PADDING, bank_map, conflicts
from kernels.study.transpose import TILES, VARIANTS
from kernels.transpose.gpu import transpose_reference
from workflows.study.drawing import BankMap
from workflows.study.study import (
    BROKEN,
    ON_CPU,
    OURS,
    Arrays,
    Case,
    Conclusion,
    Figure,
    Row,
    Study,
    all_caught,
    cost,
    first_difference,
    parameters,
)

LADDER = ("naive", "shared_tile", "padded_tile", "production")
COURSE_SIDE = 1024
# By CUDA events without the profiler, as we measure; nvprof's own kernel times are 0.13491 and 0.062207 ms.
COURSE_MS = {"shared_tile": 0.209632, "padded_tile": 0.094400}
SQUARES, SHAPES, ITEMS, TILE_SIDES = (
    "square matrices", "other shapes", "sizes of an element", "sides of the tile"
)  # fmt: skip
# Of 1, 2, 8 and 16 bytes.
ELEMENTS = {"uint8": 16384, "int16": 16384, "float64": 8192, "complex128": 8192}


def _cases() -> tuple[Case, ...]:
    cases = []
    for side in (COURSE_SIDE, 2048, 4096, 16384):
        for variant in LADDER:
            course_ms = COURSE_MS.get(variant) if side == COURSE_SIDE else None
            quick = side in (COURSE_SIDE, 4096)
            cases.append(Case(SQUARES, variant, (side, side), "float32", course_ms=course_ms, quick=quick))
    # A row length that is no power of two, ragged edges without a common alignment, a narrow matrix.
    for sizes in ((16448, 16448), (4095, 4097), (2**22, 25)):
        for variant in LADDER:
            cases.append(Case(SHAPES, variant, sizes, "float32", quick=sizes == (4095, 4097)))
    for dtype, side in ELEMENTS.items():
        for variant in ("padded_tile", "production"):
            cases.append(Case(ITEMS, variant, (side, side), dtype))
    for variant in ("shared_tile", "padded_tile"):
        for tile in (*TILES, 64):  # one thread per element: 64 x 64 exceed the limit of a block
            cases.append(Case(TILE_SIDES, variant, (4096, 4096), "float32", parameters(tile=tile), quick=tile == 64))
    for side in (COURSE_SIDE, 4096):
        for variant in BASELINES["transpose"]:
            cases.append(Case(ON_CPU, variant, (side, side), "float32", quick=True))
    for side in (COURSE_SIDE, 4096):
        for variant in ("missing_barrier", "padded_tile"):
            cases.append(Case(BROKEN, variant, (side, side), "float32", quick=True))
        for variant in ("past_the_end", "naive"):
            cases.append(Case(BROKEN, variant, (side - 1, side + 1), "float32", quick=True))
    return tuple(cases)


def inputs(case: Case, generator: np.random.Generator) -> Arrays:
    """One matrix of random numbers without NaN."""
    dtype = np.dtype(case.dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return (generator.integers(limits.min, limits.max, case.sizes, dtype, endpoint=True),)
    if dtype.kind == "c":
        rows, columns = case.sizes
        return (generator.random((rows, 2 * columns)).view(dtype),)
    return (generator.random(case.sizes, np.float32 if dtype.itemsize == 4 else np.float64),)


def reference(arrays: Arrays, _: Case) -> NDArray[np.generic]:
    """The transposed matrix by NumPy."""
    return transpose_reference(arrays[0])


def disagreement(got: NDArray[np.generic], expected: NDArray[np.generic], _: Arrays, __: Case) -> str | None:
    """Exact: elements are only moved. Compares values first, which NaN fails, then bits, where -0.0 is not 0.0."""
    return first_difference(got, expected) or first_difference(_bits(got), _bits(expected))


def _bits(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return array.view(np.uint64 if array.dtype.itemsize == 16 else f"u{array.dtype.itemsize}")


def work(case: Case) -> float:
    """Bytes read and written."""
    return 2.0 * math.prod(case.sizes) * np.dtype(case.dtype).itemsize


def _gains(rows: list[Row], slow: str, fast: str) -> list[tuple[int, float]]:
    """(side, how many times faster) for the square matrices of which both variants were timed."""
    times = {(row.case.sizes[0], row.case.variant): row.ms for row in rows if row.case.table == SQUARES and row.ms}
    sides = sorted(side for side, variant in times if variant == slow and (side, fast) in times)
    if not sides:
        raise KeyError(f"no timed rows of {slow} and {fast}")
    return [(side, (times[side, slow] or 0.0) / (times[side, fast] or 1.0)) for side in sides]


def _listed(gains: list[tuple[int, float]]) -> str:
    return ", ".join(f"{gain:.2f} times at {side}²" for side, gain in gains)


def padding_helps(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the padded tile is faster at every size."""
    gains = _gains(rows, "shared_tile", "padded_tile")
    return all(gain > 1 for _, gain in gains), f"padded against unpadded: {_listed(gains)}"


def tile_helps(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the tile without padding is faster than the naive kernel at every size."""
    gains = _gains(rows, "naive", "shared_tile")
    padded = _gains(rows, "naive", "padded_tile")
    numbers = f"tile against naive: {_listed(gains)}; padded tile against naive: {_listed(padded)}"
    return all(gain > 1 for _, gain in gains), numbers


def barrier_is_cheap(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the barrier costs at most a tenth of the large transpose."""
    large = [row for row in rows if row.case.sizes == (4096, 4096)]
    ratio, said = cost(large, "padded_tile", "missing_barrier", BROKEN)
    return ratio <= 1.1, said


def guard_is_cheap(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the guard costs at most a tenth of the large transpose."""
    large = [row for row in rows if row.case.sizes == (4095, 4097)]
    ratio, said = cost(large, "naive", "past_the_end", BROKEN)
    return ratio <= 1.1, said


def all_right(rows: list[Row]) -> tuple[bool, str]:
    """Holds if every correct kernel agreed with the CPU; a tile too large for a block is refused, not wrong."""
    run = [
        row
        for row in rows
        if row.case.variant in VARIANTS
        and not VARIANTS[row.case.variant].broken
        and row.case.parameters.get("tile", 32) in TILES
    ]
    if not run:
        raise KeyError("no rows of right variants")
    agreed = sum(row.verified for row in run)
    return agreed == len(run), f"{agreed} of {len(run)} agreed, bit for bit"


STUDY = Study(
    job="transpose",
    course="Chergui, Krayem, Marchildon, Taktek, Zaher Abdine, Bensalah: Lab4, Optimisation des kernels CUDA pour une "
    "utilisation efficace de la mémoire partagée (GPU not named; size inferred)",
    unit="GB/s",
    limit=lambda case: "copy",
    variants=MappingProxyType({**VARIANTS, **BASELINES["transpose"]}),
    cases=_cases(),
    inputs=inputs,
    reference=reference,
    disagreement=disagreement,
    work=work,
    figures=(
        Figure(SQUARES, "Transpose of square float32 matrices, by their side", "size"),
        Figure(TILE_SIDES, "Transpose of 4096 x 4096 float32, by the side of the tile", "tile"),
    ),
    conclusions=(
        Conclusion(
            "A column of padding makes the tile faster: 2.22 times by events, 2.96 when profiled, 2.17 in nvprof's "
            "kernel times",
            "Lab4, p. 11",
            padding_helps,
        ),
        Conclusion(
            "Reading and writing along rows, through shared memory, beats accesses down a column",
            "Lab4, p. 10",
            tile_helps,
        ),
        Conclusion("Every transposed matrix is the one that the CPU computes", "Lab4, p. 13", all_right),
        Conclusion(
            "Without a barrier, or without a guard where the size is no multiple of the block, results are wrong, and "
            "a check against the CPU shows it",
            "Lab4, p. 14",
            partial(all_caught, VARIANTS),
        ),
        Conclusion("the barrier costs a tenth at most", OURS, barrier_is_cheap),
        Conclusion("the guard costs a tenth at most", OURS, guard_is_cheap),
    ),
    drawings=(
        BankMap(
            "Banks of a tile of 32 x 32 elements of 4 bytes; a warp loads the framed column",
            {variant: bank_map(variant) for variant in PADDING},
            {variant: conflicts(variant)["load"] for variant in PADDING},
        ),
    ),
    derived={
        "Bank conflicts, derived from the indices of the kernels": [
            ["variant", "threads of a warp that meet in one bank when they store", "when they load"],
            *([variant, *map(str, conflicts(variant).values())] for variant in PADDING),
        ],
    },
)
