"""Sums within a radius by a variant of the ladder: one axis, zeros or nothing beyond the ends.

Integers are exact. Float sums are rounded at each addition, in double, and once more to the dtype of the samples: they
are checked within `kernels.study.stencil.stencil_bound`, of its reference in long double.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.dtypes import COURSE_TYPES
from kernels.study.stencil import MAX_RADIUS, OUT, VARIANTS, stencil_bound, stencil_reference
from kernels.study.variant import Variant
from workflows.array_job import ArrayJob, Checked, Read
from workflows.regions import Bounds, Spec
from workflows.stencil import STENCIL, StencilOptions

SHARED = 2**16  # bytes that a block may have on every device
SCALE = 2.0**-100  # of samples so large that their magnitudes may add up to more than float64 holds


def job(variant: Variant, options: StencilOptions) -> ArrayJob[StencilOptions]:
    """The job; ValueError for what the ladder does not have."""
    if options.weights is not None or options.boundary not in ("zero", "valid"):
        got = "--weights" if options.weights is not None else f"--boundary {options.boundary}"
        raise ValueError(f"expected plain sums with --boundary zero or valid, got {got}")
    return replace(STENCIL, outline=partial(outline, variant.name), compute=partial(compute, variant.name), check=check,
                   rounding=partial(_rounding, variant.name))  # fmt: skip


def outline(name: str, specs: Sequence[Spec], options: StencilOptions) -> Spec:
    """The shape of the input; with `valid` shorter by 2 * radius."""
    spec = specs[0]
    if len(spec.shape) != 1 or spec.dtype.name not in COURSE_TYPES:
        raise ValueError(f"expected one axis of {', '.join(COURSE_TYPES)}, got {spec}; leave --kernel out")
    block = VARIANTS[name].parameters["block"]
    most = MAX_RADIUS if name == "global_memory" else min(MAX_RADIUS, (SHARED // spec.dtype.itemsize - block) // 2)
    if options.radius > most:
        raise ValueError(f"expected --radius {most} at most, got {options.radius}; leave --kernel out")
    return Spec(STENCIL.outline(specs, options).shape, np.dtype(OUT[spec.dtype.name]))


def _first(region: Bounds, options: StencilOptions) -> int:
    """Place of the first output of a region among the samples that it needs."""
    return options.radius if options.boundary == "valid" else min(options.radius, region[0][0])


def compute(name: str, blocks: Sequence[Any], region: Bounds, specs: Sequence[Spec], options: StencilOptions) -> Any:
    """Sums around every sample that a region needs, those of the halo included, which are dropped."""
    parameters = {**VARIANTS[name].parameters, "radius": options.radius}
    (start, stop), first = region[0], _first(region, options)
    return VARIANTS[name].run(blocks[0], **parameters)[first : first + stop - start]


def check(
    read: Read, result: NDArray[Any], region: Bounds, specs: Sequence[Spec], options: StencilOptions,
    random: np.random.Generator,
) -> Checked:  # fmt: skip
    """Integers bit for bit, as the job; floats within their bound."""
    if result.dtype.kind != "f":
        return STENCIL.check(read, result, region, specs, options, random)
    needed = STENCIL.needs(region, specs, options)[0]
    block = read(0, needed)
    first = region[0][0] - needed[0][0] + (options.radius if options.boundary == "valid" else 0)
    inside = slice(first, first + len(result))
    expected, right = _judged(result, block, options.radius, inside)
    wrong = np.flatnonzero(~right)
    lines = [f"element {region[0][0] + at}: expected {expected[at]}, got {result[at]}" for at in wrong[:3].tolist()]
    return Checked((*lines, f"{len(wrong) - 3} more") if len(wrong) > 3 else tuple(lines), result.size)


def _judged(
    got: NDArray[Any], block: NDArray[Any], radius: int, inside: slice
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The expected sums, and which of the sums agree with them.

    Windows with an infinity or NaN have to give what these add up to. Where magnitudes exceed the dtype, sums may
    overflow on the way.
    """
    finite = np.isfinite(block)
    numbers = np.where(finite, block, block.dtype.type(0))
    largest = float(np.abs(numbers).max(initial=0))
    scale = SCALE if largest * (2 * radius + 1) * SCALE > np.finfo(np.float64).max * SCALE / 4 else 1.0
    numbers = numbers * block.dtype.type(scale)
    with np.errstate(all="ignore"):
        sums, sizes = (stencil_reference(one, radius)[inside] for one in (numbers, np.abs(numbers)))
        bound = stencil_bound(numbers, radius)[inside] + (2.0**-1074 * (2 * radius + 2) if scale != 1 else 0.0)
        right = np.abs(got.astype(np.float64) * scale - sums) <= bound
        overflows = sizes + bound >= float(np.finfo(got.dtype).max) * scale
        right |= np.isinf(got) & overflows
        if not finite.all():
            special = stencil_reference((~finite).astype(np.int32), radius)[inside] > 0
            of_special = stencil_reference(np.where(finite, block.dtype.type(0), block), radius)[inside]
            same = (got == of_special) | (np.isnan(got) & np.isnan(of_special)) | (~np.isfinite(got) & overflows)
            sums, right = np.where(special, of_special, sums), np.where(special, same, right)
        return sums / scale, right


def _rounding(name: str, specs: Sequence[Spec], options: StencilOptions) -> str:
    if specs[0].dtype.kind != "f":
        return ""
    once = " and 2^-24 once" if specs[0].dtype.itemsize == 4 else ""
    return f"within γ({2 * options.radius + 1:,}){once} of Σ|x| of a window, rounded by study/{name}"
