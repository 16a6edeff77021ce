"""The study of matrix products: the shape of blocks, coalescing, shared memory, unrolling, and what is best today.

The courses: T. Ehlinger and B. Herb, "Systèmes distribués et grilles : TP CUDA" (Strasbourg, 2016), float64 products of
4096 x 4096 on a GTX 680, in GFLOP/s; A. Cabana Suárez and Ó. Gómez Borzdynski, "Programación GPGPU", float32 products
of small matrices on the GPU of a notebook service, in microseconds.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.study.baselines import BASELINES
from kernels.study.matmul import VARIANTS, error_bound, matmul_reference
from workflows.study.matmul_cases import CASES, work
from workflows.study.matmul_conclusions import CONCLUSIONS
from workflows.study.study import Arrays, Case, Figure, Study, farther_than


def inputs(case: Case, generator: np.random.Generator) -> Arrays:
    """Two matrices of numbers between -1 and 1."""
    rows, inner, columns = case.sizes
    shapes = ((rows, inner), (inner, columns))
    return tuple((2 * generator.random(shape, np.dtype(case.dtype).type) - 1) for shape in shapes)


def reference(arrays: Arrays, case: Case) -> NDArray[np.float64]:
    """The product in float64."""
    return matmul_reference(*arrays)


_kept: list[tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]] = []


def _bound(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Error bound; cached for the last matrices, since it costs as much as the reference and many cases share them."""
    if not _kept or _kept[0][0] is not a or _kept[0][1] is not b:
        _kept[:] = [(a, b, error_bound(a, b))]
    return _kept[0][2]


def disagreement(got: NDArray[Any], expected: NDArray[Any], arrays: Arrays, case: Case) -> str | None:
    """Elements farther from the reference than rounding explains; for the bound and its proof see `error_bound`."""
    return farther_than(got, expected, _bound(*arrays), case.dtype, exact=True)


STUDY = Study(
    job="matmul",
    course="T. Ehlinger, B. Herb: TP CUDA (GTX 680, 4096 x 4096); A. Cabana Suárez, Ó. Gómez Borzdynski: Programación "
    "GPGPU (small matrices)",
    unit="GFLOP/s",
    limit=lambda case: case.dtype,
    variants=MappingProxyType({**VARIANTS, **BASELINES["matmul"]}),
    cases=CASES,
    inputs=inputs,
    reference=reference,
    disagreement=disagreement,
    work=work,
    figures=(
        Figure("1-D blocks", "Blocks in one dimension, 4096 x 4096, float64", x="x"),
        Figure("2-D blocks", "Blocks of x by y threads, 4096 x 4096, float64", x="x", y="y"),
        Figure("shared tile", "Squares of x by x threads with and without shared memory, 4096 x 4096, float64", x="x"),
        Figure("small matrices", "Small matrices, blocks of 32 x 32 threads, float32", x="size"),
    ),
    conclusions=CONCLUSIONS,
    related={"small matrices": (128, 128, 128)},
)
