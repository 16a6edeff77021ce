"""The check of matrix products: every element within a bound, mostly in sums of many, and a few to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.check_floats import FloatCheck
from kernels.matmul.check_integers import ESCAPE, wrong_integers
from kernels.matmul.check_library import LibraryCheck
from kernels.matmul.check_sample import Sample, random_places
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS, result_dtype
from workflows.array_job import Checked, Read
from workflows.matmul_shapes import Matrices, matrices
from workflows.regions import Bounds, Spec

Array = NDArray[Any]


def check(
    read: Read, elements: Array, region: Bounds, specs: Sequence[Spec], options: Any, random: np.random.Generator
) -> Checked:
    """Check every element of a region, mostly by sums of many, and some of them to the last bit, unless a library has
    rounded them."""
    shapes = matrices(specs)
    product = shapes.as_stack(elements, region)
    dtype = result_dtype([spec.dtype for spec in specs])
    dtypes = [dtype if dtype.kind == "f" else spec.dtype for spec in specs]
    library = options.arithmetic == "float" and dtype.kind == "f"
    places = [] if library else random_places(product, shapes.inner, random)
    sample = Sample(product, places, shapes.inner, dtypes)
    with np.errstate(all="ignore"):
        factors = _factors(read, region, shapes, dtypes, sample)
        if dtype.kind == "f":
            floats = (LibraryCheck if library else FloatCheck)(factors, product, FORMATS[dtype.name], random)
            wrong, escape, undetected = floats.wrong(), floats.escape, floats.undetected
        else:
            wrong, escape, undetected = wrong_integers(factors, product, random), ESCAPE, 0.0
        wrong += sample.wrong(FORMATS.get(dtype.name))
    return Checked(tuple(wrong[:3]), product.size, escape, undetected)


def _factors(read: Read, region: Bounds, shapes: Matrices, dtypes: Sequence[np.dtype[Any]], sample: Sample) -> Factors:
    """The factors of a region, in these dtypes."""
    batch, rows, columns = shapes.parts(region)

    def read_part(number: int, lines: slice, inner: slice) -> Array:
        ends = [rows, columns]
        ends[number] = (ends[number][0] + lines.start, ends[number][0] + lines.stop)
        bounds = shapes.needs(shapes.region(batch, *ends), (inner.start, inner.stop))[number]
        block = read(number, bounds).astype(dtypes[number], copy=False)
        return block.reshape((-1, 1) if number else (1, -1)) if shapes.vectors[number] else block

    return Factors(read_part, rows[1] - rows[0], shapes.inner, columns[1] - columns[0], sample.see)
