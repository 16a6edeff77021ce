"""The check of matrix products: every element within a bound, mostly in sums of many, and a few to the last bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.tiles import pool
from kernels.matmul.check_floats import FloatCheck
from kernels.matmul.check_integers import ESCAPE, wrong_integers
from kernels.matmul.formats import FORMATS, result_dtype
from kernels.matmul.reference import Sample, Slabs, random_places
from workflows.array_job import Checked, Read
from workflows.matmul_shapes import Matrices, matrices
from workflows.regions import Bounds, Spec

HELD = 2**23  # approximate number of elements of A and B held at a time

Array = NDArray[Any]


def check(
    read: Read, elements: Array, region: Bounds, specs: Sequence[Spec], options: Any, random: np.random.Generator
) -> Checked:
    """Check every element of a region, mostly by sums of many, and some of them to the last bit."""
    factors = matrices(specs)
    product = factors.as_stack(elements, region)
    dtype = result_dtype([spec.dtype for spec in specs])
    sample = Sample(product, random_places(product, factors.inner, random))
    slabs = sample.collecting(_slabs(read, region, factors, dtype))
    with np.errstate(all="ignore"):
        if dtype.kind == "f":
            floats = FloatCheck(slabs, product, FORMATS[dtype.name], random, factors.inner * math.prod(factors.shape))
            wrong, escape, undetected = floats.wrong(), floats.escape, floats.undetected
        else:
            wrong, escape, undetected = wrong_integers(slabs, product, random), ESCAPE, 0.0
        wrong += sample.wrong(FORMATS.get(dtype.name))
    return Checked(tuple(wrong[:3]), product.size, escape, undetected)


def _slabs(read: Read, region: Bounds, factors: Matrices, dtype: np.dtype[Any]) -> Slabs:
    """The factors of a region, part by part; floats in their common dtype. A single part is read only once."""
    _, rows, columns = factors.parts(region)
    step = max(1, HELD // (rows[1] - rows[0] + columns[1] - columns[0]))

    def load(first: int) -> tuple[Array, Array]:
        bounds = factors.needs(region, (first, min(first + step, factors.inner)))
        blocks = [read(number, bounds[number]) for number in (0, 1)]
        if dtype.kind == "f":
            blocks = [block.astype(dtype, copy=False) for block in blocks]
        return factors.as_matrices(blocks)

    starts = range(0, max(1, factors.inner), step)
    kept: list[tuple[Array, Array]] = []

    def slabs() -> Iterator[tuple[Array, Array]]:
        if kept:
            yield kept[0]
            return
        if len(starts) == 1:
            kept.append(load(0))
            yield kept[0]
            return
        following = pool().submit(load, starts[0])
        for start in starts[1:]:
            part, following = following.result(), pool().submit(load, start)  # is read while the check computes
            yield part
        yield following.result()

    return slabs
