"""Sums and products of arrays by a variant of the ladder: equal shapes, one dtype, one launch for each region."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kernels.study.map import COURSE_DTYPES, MAX_GRID_Y, VARIANTS
from kernels.study.variant import Variant
from workflows.array_job import ArrayJob
from workflows.map import MAP, MapOptions
from workflows.regions import Bounds, Spec, in_rows, sizes

PRODUCT, MATRIX = "product", "matrix_2d"
MOST = 1024  # elements of `product`, which has a thread for each, in one block


def job(variant: Variant, options: MapOptions) -> ArrayJob[MapOptions]:
    """The job; ValueError for an operation that is not the variant's."""
    operation = "multiply" if variant.name == PRODUCT else "add"
    if options.operation != operation:
        raise ValueError(f"expected the operation {operation}, the only one of this variant, got {options.operation}")
    return replace(MAP, outline=partial(outline, variant.name), regions=partial(regions, variant.name),
                   compute=partial(compute, variant.name))  # fmt: skip


def outline(name: str, specs: Sequence[Spec], options: MapOptions) -> Spec:
    """Shape and dtype of both arrays."""
    first, second = specs
    problem = ""
    if first != second or first.dtype.name not in COURSE_DTYPES:
        problem = f"two arrays of one shape and of one dtype: {', '.join(COURSE_DTYPES)}"
    elif name == MATRIX and len(first.shape) != 2:
        problem = "matrices"
    elif name == PRODUCT and first.size > MOST:
        problem = f"at most {MOST} elements, since one block has a thread for each"
    if problem:
        raise ValueError(f"expected {problem}, got {first} and {second}; leave --kernel out")
    return MAP.outline(specs, options)


def regions(name: str, specs: Sequence[Spec], output: Spec, options: MapOptions, elements: int) -> Iterator[Bounds]:
    """Whole rows; of matrices no more than a grid has blocks for along y."""
    if name == MATRIX:
        elements = min(elements, MAX_GRID_Y * VARIANTS[name].parameters["block_y"])
    return in_rows(output, elements)


def compute(name: str, blocks: Sequence[Any], region: Bounds, _: Sequence[Spec], __: MapOptions) -> Any:
    """Combine the blocks of a region on the device that holds them."""
    operands = blocks if name == MATRIX else [block.reshape(-1) for block in blocks]
    return VARIANTS[name].run(*operands, **VARIANTS[name].parameters).reshape(sizes(region))
