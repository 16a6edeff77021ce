"""The check of matrix products: every element within a bound, mostly in sums of many, and a few to the last bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common.row_tiles import ahead
from kernels.matmul.check_each import EachCheck, float_check
from kernels.matmul.check_floats import FloatCheck
from kernels.matmul.check_integers import IntegerCheck
from kernels.matmul.check_library import LibraryCheck
from kernels.matmul.check_sample import Sample, random_places
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS, result_dtype
from workflows.array_job import Checked, Read, Shared
from workflows.matmul_shapes import Matrices, matrices
from workflows.regions import Bounds, Spec, part_of_input, sizes

Array = NDArray[Any]

COPIES = 4  # of the factors in hand: the next ones are read meanwhile, and both are scaled and rounded


class _Side(NamedTuple):
    """What regions of the same columns share: columns of C's sampled elements, those of B, and what sums need of B."""

    places: list[int]
    columns: Array
    sums: Any


class ProductCheck:
    """Checks every element of a region, mostly by sums of many, and some of them to the last bit, unless a library has
    rounded them.

    Whatever needs the factors only is done when it is created; parameters are those of `ArrayJob.prepare`.
    """

    def __init__(
        self, read: Read, region: Bounds, specs: Sequence[Spec], options: Any, random: np.random.Generator,
        shared: Shared,
    ) -> None:  # fmt: skip
        shapes = matrices(specs)
        dtype = result_dtype([spec.dtype for spec in specs])
        dtypes = [dtype if dtype.kind == "f" else spec.dtype for spec in specs]
        library = options.arithmetic == "float" and dtype.kind == "f"
        batch, rows, columns = shapes.parts(region)
        shape = sizes((*batch, rows, columns))
        places = [] if library else random_places(shape, shapes.inner, random)
        side: _Side | None = shared.get((batch, columns))
        if side:  # B is not read again for other columns
            places = [(*place[:-1], column) for place, column in zip(places, side.places, strict=True)]
        self._sample = Sample(places, shapes.inner, dtypes, side.columns if side else None)
        self._shapes, self._region = shapes, region
        with np.errstate(all="ignore"):
            factors = _factors(read, region, shapes, dtypes, self._sample)
            sums = side.sums if side else None
            self._check: FloatCheck | EachCheck | IntegerCheck
            if dtype.kind == "f":
                make = LibraryCheck if library else float_check
                self._check = make(factors, shape, FORMATS[dtype.name], random, sums)
            else:
                self._check = IntegerCheck(factors, shape, random, sums)
        # One core computes them, exactly, while others prepare the next check.
        self._expected = ahead(self._sample.expected, FORMATS.get(dtype.name))
        if not side:
            shared.clear()  # neighbours follow one another, and sums take memory
            shared[batch, columns] = _Side([place[-1] for place in places], self._sample.lines[1], self._check.side)

    def __call__(self, elements: Array) -> Checked:
        """The verdict on the elements of the region."""
        product = self._shapes.as_stack(elements, self._region)
        with np.errstate(all="ignore"):
            wrong = self._check.wrong(product) + self._sample.wrong(self._expected.result(), product)
        return Checked(tuple(wrong[:3]), product.size, self._check.escape, self._check.undetected)


def check(
    read: Read, elements: Array, region: Bounds, specs: Sequence[Spec], options: Any, random: np.random.Generator
) -> Checked:
    """Prepare the check of a region, and check it."""
    return ProductCheck(read, region, specs, options, random, {})(elements)


def _factors(read: Read, region: Bounds, shapes: Matrices, dtypes: Sequence[np.dtype[Any]], sample: Sample) -> Factors:
    """The factors of a region, in these dtypes."""
    batch, rows, columns = shapes.parts(region)
    most = getattr(read, "nbytes", math.inf) / (COPIES * max(4, *(dtype.itemsize for dtype in dtypes)))

    def read_part(number: int, lines: slice, inner: slice) -> Array:
        first, products = (rows, columns)[number][0], (inner.start, inner.stop)
        part = first + lines.start, first + lines.stop
        outer = part_of_input(batch, shapes.shapes[number][:-2])
        bounds = (*outer, products, part) if number else (*outer, part, products)
        block = read(number, (products,) if shapes.vectors[number] else bounds).astype(dtypes[number], copy=False)
        return block.reshape((-1, 1) if number else (1, -1)) if shapes.vectors[number] else block

    return Factors(read_part, rows[1] - rows[0], shapes.inner, columns[1] - columns[0], sample.see, most)
