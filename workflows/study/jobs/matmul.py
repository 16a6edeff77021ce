"""Products by a variant of the ladder: matrices, or stacks of them, of one float dtype, slab by slab of their sums.

A slab's product is one launch for each matrix; slabs are added in order. Each product of a sum takes part in at most as
many roundings as there are products, so the conventional bound holds, gamma(inner) |a| |b|, in the dtype's unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernels.common import device
from kernels.common.memory import empty
from kernels.study.matmul import C_TYPES, MAX_GRID, VARIANTS
from kernels.study.variant import Variant
from workflows.array_job import ArrayJob, Checked, Prepared, Read, Shared
from workflows.matmul import MATMUL, SLAB, MatmulOptions, slabs
from workflows.matmul_check import ProductCheck
from workflows.matmul_shapes import Matrices, matrices
from workflows.regions import Bounds, Spec, sizes

SIDE = MAX_GRID[1] * 8  # rows or columns of a launch: as many blocks of the narrowest tile as a grid has along y


def job(variant: Variant, options: MatmulOptions) -> ArrayJob[MatmulOptions]:
    """The job; ValueError for an arithmetic, which is the variant's."""
    if options.arithmetic != "exact" or options.output_dtype != "auto":
        raise ValueError("expected no --arithmetic and no --output-dtype, which are the variant's; leave them out")
    name = variant.name
    return replace(MATMUL, outline=outline, regions=regions, compute=partial(compute, name), check=check,
                   prepare=prepare, rounding=partial(_rounding, name), notes=partial(_notes, name))  # fmt: skip


def outline(specs: Sequence[Spec], options: MatmulOptions) -> Spec:
    """Shape as in `numpy.matmul`, of matrices of one dtype."""
    dtypes = [spec.dtype.name for spec in specs]
    if dtypes[0] not in C_TYPES or dtypes[0] != dtypes[1]:
        raise ValueError(f"expected two factors of {' or of '.join(C_TYPES)}, got {' and '.join(map(str, specs))}; "
                         "leave --kernel out, or convert them")  # fmt: skip
    return MATMUL.outline(specs, options)


def regions(specs: Sequence[Spec], output: Spec, options: MatmulOptions, elements: int) -> Iterator[Bounds]:
    """Those of the job, cut where a launch has too few blocks."""
    factors = matrices(specs)
    for region in MATMUL.regions(specs, output, options, elements):
        batch, rows, columns = factors.parts(region)
        for own_rows in _parts(*rows):
            for own_columns in _parts(*columns):
                yield factors.region(batch, own_rows, own_columns)


def _parts(start: int, stop: int) -> Iterator[tuple[int, int]]:
    return ((first, min(first + SIDE, stop)) for first in range(start, stop, SIDE))


def compute(name: str, read: Read, region: Bounds, specs: Sequence[Spec], options: MatmulOptions) -> Any:
    """Multiply, slab by slab, on the device that holds them."""
    factors, total = matrices(specs), None
    nbytes = getattr(read, "nbytes", math.inf)
    for part in slabs(region, specs, options, nbytes, _most(name, specs[0])):
        bounds = factors.needs(region, part)
        product = _products(name, factors, [read(number, bounds[number]) for number in (0, 1)])
        if total is None:
            total = product
        else:
            total += product
    assert total is not None
    return total.reshape(sizes(region))


def _most(name: str, spec: Spec) -> int:
    """Products of a slab: for variants that hold whole rows as many as shared memory has room for."""
    if not name.endswith("_rows"):
        return SLAB
    parameters = VARIANTS[name].parameters
    lines = int(parameters["x"] + parameters["y"])
    return device.limits().shared_per_block // (lines * spec.dtype.itemsize)


def _products(name: str, factors: Matrices, blocks: Sequence[Any]) -> Any:
    """One launch for each matrix of the stacks."""
    variant = VARIANTS[name]
    a, b = factors.as_matrices(blocks)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if not batch:
        return variant.run(a, b, **variant.parameters)
    out = empty("matmul", (*batch, a.shape[-2], b.shape[-1]), a.dtype)
    for index in np.ndindex(batch):
        out[index] = variant.run(_matrix(a, index), _matrix(b, index), **variant.parameters)
    return out


def _matrix(stack: Any, index: tuple[int, ...]) -> Any:
    """One matrix of a stack, which may have fewer axes than the index, or be broadcast along some."""
    lengths = stack.shape[:-2]
    own = index[len(index) - len(lengths) :]
    return stack[tuple(0 if length == 1 else at for length, at in zip(lengths, own, strict=True))]


def check(
    read: Read, elements: Any, region: Bounds, specs: Sequence[Spec], options: MatmulOptions,
    random: np.random.Generator,
) -> Checked:  # fmt: skip
    """Within the conventional bound, as products by a library."""
    return prepare(read, region, specs, options, random, {})(elements)


def prepare(
    read: Read, region: Bounds, specs: Sequence[Spec], options: MatmulOptions, random: np.random.Generator,
    shared: Shared,
) -> Prepared:  # fmt: skip
    """The same check, as far as it needs no elements."""
    return ProductCheck(read, region, specs, replace(options, arithmetic="float"), random, shared)


def _rounding(name: str, specs: Sequence[Spec], _: MatmulOptions) -> str:
    return f"within γ({matrices(specs).inner:,}) Σ|a||b|, rounded by study/{name}"


def _notes(name: str, specs: Sequence[Spec], _: MatmulOptions) -> dict[str, str]:
    return {"arithmetic": f"{specs[0].dtype}, rounded by study/{name}, in slabs of the sums"}
