"""The study of elementwise operations: a vector on one thread, one block and a grid; matrices; a product.

The first course does not state the length of its vectors. We take 2**20, as in NVIDIA's introduction, whose steps it
follows: one thread, then 256, then a grid. Its "more than 120 ms" on one thread are then 114 ns per element.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kernels.map.gpu import OPERATIONS
from kernels.map.reference import elementwise_reference
from kernels.study.baselines import BASELINES
from kernels.study.map import VARIANTS
from workflows.study.study import (
    BROKEN,
    ON_CPU,
    Arrays,
    Case,
    Conclusion,
    Figure,
    Row,
    Study,
    caught,
    first_difference,
    parameters,
)

COURSE_VECTOR, COURSE_PRODUCT, COURSE_MATRIX = 2**20, 400, 2**15
COURSE_MS = {"one_thread": 120.0, "grid": 2.69}
VECTORS, LONGER, MATRICES, PRODUCTS, OPERATION = (
    "sum of vectors", "sum of longer vectors", "sum of matrices", "product of vectors", "operations",
)  # fmt: skip


def _cases() -> tuple[Case, ...]:
    cases = []
    for variant in ("one_thread", "one_block", "grid", "production"):
        cases.append(Case(VECTORS, variant, (COURSE_VECTOR,), "float32", course_ms=COURSE_MS.get(variant), quick=True))
    for exponent in range(20, 29, 2):
        for variant in ("one_block", "grid", "production"):
            if variant != "one_block" or exponent <= 24:
                cases.append(Case(LONGER, variant, (2**exponent,), "float32", quick=exponent == 26))
    for exponent in range(10, 16):
        for variant in ("matrix_2d", "production"):
            cases.append(Case(MATRICES, variant, (2**exponent, 2**exponent), "float32", quick=exponent == 12))
    too_many = parameters(block_x=1024, block_y=2)
    cases.append(Case(MATRICES, "matrix_2d", (1024, 1024), "float32", too_many, quick=True))
    for n in (COURSE_PRODUCT, 1024, 1025):  # one more than the most threads of a block
        cases.append(Case(PRODUCTS, "product", (n,), "float32", quick=True))
    cases.append(
        Case(PRODUCTS, "production", (COURSE_PRODUCT,), "float32", parameters(operation="multiply"), quick=True)
    )
    for dtype in ("float32", "int32", "float64"):
        for operation in OPERATIONS if dtype == "float32" else ("add", "multiply"):
            cases.append(Case(OPERATION, "production", (2**26,), dtype, parameters(operation=operation)))
    for n in (COURSE_VECTOR, 2**26):
        for variant in BASELINES["map"]:
            cases.append(Case(ON_CPU, variant, (n,), "float32", quick=True))
    cases.append(Case(BROKEN, "no_index", (COURSE_VECTOR,), "float32", quick=True))
    for variant in ("past_the_end", "grid"):  # half of the size is no multiple of 1024
        cases.append(Case(BROKEN, variant, (10**6,), "float32", quick=True))
    return tuple(cases)


def operation_of(case: Case) -> str:
    """What a case computes."""
    return "multiply" if case.variant == "product" else str(case.parameters.get("operation", "add"))


def inputs(case: Case, generator: np.random.Generator) -> Arrays:
    """The operands. Floats lie in [1, 2), so that an element added twice shows; integers span their range."""
    operands = OPERATIONS[operation_of(case)][1]
    dtype = np.dtype(case.dtype)
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        draws = [generator.integers(limits.min, limits.max, case.sizes, dtype, endpoint=True) for _ in range(operands)]
        return tuple(draws)
    of_type = np.float32 if dtype.itemsize == 4 else np.float64
    arrays = [generator.random(case.sizes, of_type) for _ in range(operands)]
    for array in arrays:
        array += 1
    return tuple(arrays)


def reference(arrays: Arrays, case: Case) -> NDArray[np.generic]:
    """The result by NumPy."""
    return elementwise_reference(*arrays, operation=operation_of(case))


def disagreement(got: NDArray[np.generic], expected: NDArray[np.generic], _: Arrays, __: Case) -> str | None:
    """Exact: operations round as in NumPy. Compares values first, which NaN fails, then bits: -0.0 is not 0.0."""
    bits = f"u{expected.dtype.itemsize}"
    return first_difference(got, expected) or first_difference(got.view(bits), expected.view(bits))


def work(case: Case) -> float:
    """Bytes read and written."""
    operands = OPERATIONS[operation_of(case)][1]
    return (operands + 1.0) * math.prod(case.sizes) * np.dtype(case.dtype).itemsize


def _ms(rows: list[Row], variant: str) -> float:
    for row in rows:
        if row.case.table == VECTORS and row.case.variant == variant and row.ms:
            return row.ms
    raise KeyError(f"no timed row of {variant}")


def grid_wins(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the grid is faster than one thread."""
    one, block, many = (_ms(rows, variant) for variant in ("one_thread", "one_block", "grid"))
    numbers = (f"one thread {one:.4g} ms, one block {block:.4g} ms, grid {many:.4g} ms: "
               f"{one / many:.0f} times faster than one thread")  # fmt: skip
    return many < one, numbers


def largest_matrix(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the course's largest matrices are added and verified."""
    for row in rows:
        if row.case.variant == "matrix_2d" and row.case.sizes == (COURSE_MATRIX, COURSE_MATRIX):
            if row.verified and row.ms and row.rate:
                return True, f"2^15 x 2^15 verified, {row.ms:.4g} ms, {row.rate:.0f} GB/s"
            return False, row.note
    raise KeyError("2^15 x 2^15 was not run")


def product_right(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the product of 400 elements agrees with NumPy."""
    for row in rows:
        if row.case.variant == "product" and row.case.sizes == (COURSE_PRODUCT,):
            return row.verified, "400 elements equal NumPy's bit for bit" if row.verified else row.note
    raise KeyError("the product of 400 elements was not run")


STUDY = Study(
    job="map",
    course="Cabana Suárez and Gómez Borzdynski: Programación GPGPU (Google Colab, GPU not named; length inferred); "
    "Robilliard: Introduction à la programmation // sur GPUs en CUDA et Python (Tesla C2050)",
    unit="GB/s",
    limit=lambda case: "copy",
    variants=MappingProxyType({**VARIANTS, **BASELINES["map"]}),
    cases=_cases(),
    inputs=inputs,
    reference=reference,
    disagreement=disagreement,
    work=work,
    figures=(
        Figure(LONGER, "Sum of float32 vectors, by their length", "size"),
        Figure(MATRICES, "Sum of square float32 matrices, by their side", "size"),
    ),
    conclusions=(
        Conclusion(
            "One element per thread in blocks of 1024 beats one thread: 2.69 ms against more than 120 ms",
            "GPGPU, Suma de vectores",
            grid_wins,
        ),
        Conclusion(
            "256 threads that all add the whole vector race with each other, and the sum is wrong",
            "GPGPU, Suma de vectores",
            lambda rows: caught(rows, "no_index"),
        ),
        Conclusion(
            "Where the length is no multiple of the block, a kernel without a guard writes past the end",
            "Lab4, p. 14",
            lambda rows: caught(rows, "past_the_end"),
        ),
        Conclusion(
            "Blocks of 32 x 32 threads add matrices of up to 2^15 x 2^15 without an error",
            "GPGPU, Modificación a matrices",
            largest_matrix,
        ),
        Conclusion(
            "One block of 400 threads multiplies 400 elements as NumPy does",
            "Seminar, produit terme à terme –2",
            product_right,
        ),
    ),
)
