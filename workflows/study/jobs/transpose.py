"""Transposes by a variant of the ladder: matrices of elements of 1, 2, 4, 8 or 16 bytes that CuPy has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kernels.study.transpose import VARIANTS
from kernels.study.variant import Variant
from kernels.transpose.gpu import DTYPES
from workflows.array_job import ArrayJob
from workflows.regions import Bounds, Spec
from workflows.transpose import TRANSPOSE, TransposeOptions


def job(variant: Variant, _: TransposeOptions) -> ArrayJob[TransposeOptions]:
    """The job."""
    return replace(TRANSPOSE, outline=outline, compute=partial(compute, variant.name))


def outline(specs: Sequence[Spec], options: TransposeOptions) -> Spec:
    """The reversed shape of a matrix."""
    if len(specs[0].shape) != 2 or specs[0].dtype.name not in DTYPES:
        raise ValueError(f"expected a matrix of {', '.join(DTYPES)}, got {specs[0]}; leave --kernel out")
    return TRANSPOSE.outline(specs, options)


def compute(name: str, blocks: Sequence[Any], _: Bounds, __: Sequence[Spec], ___: TransposeOptions) -> Any:
    """Transpose a block on the device that holds it: ragged tiles are guarded."""
    return VARIANTS[name].run(blocks[0], **VARIANTS[name].parameters)
