"""Variants of the ladders in place of a job's own kernel: `--kernel NAME`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from kernels.study.variant import Variant
from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob
from workflows.regions import Spec
from workflows.study.registry import JOBS

Declared = TypeVar("Declared", bound=Aggregation[Any] | ArrayJob[Any])
OWN = "production"  # the job's own kernel, the end of every ladder


def with_kernel(workflow: Declared, options: Any, name: str) -> Declared:
    """The job with a variant in the place of its own kernel; all else, verification included, stays the job's.

    Parameters
    ----------
    workflow, options
    name
        Of a correct variant of the job's ladder.

    Raises
    ------
    ValueError
        If the job has no ladder; if there is no such variant, it is broken on purpose, or needs data of its own; if it
        does not do what the options ask for.
    """
    if workflow.name not in JOBS:
        raise ValueError(f"--kernel {name}: expected a job with a ladder of kernels, {', '.join(JOBS)}, got "
                         f"{workflow.name}")  # fmt: skip
    variant = _chosen(workflow.name, name)
    if name == OWN:
        return replace(workflow, kernel=name)
    try:
        made: Declared = import_module(f"{__name__}.{workflow.name}").job(variant, options)
    except ValueError as error:
        raise ValueError(f"--kernel {name}: {error}") from None
    if isinstance(made, ArrayJob):
        made = replace(made, outline=partial(_outline, name, made.outline))
    return replace(made, kernel=name)


def _outline(name: str, outline: Callable[..., Spec], specs: Sequence[Spec], options: Any) -> Spec:
    """The spec of the output; a refusal names the variant."""
    try:
        return outline(specs, options)
    except ValueError as error:
        raise ValueError(f"--kernel {name}: {error}") from None


def _chosen(job: str, name: str) -> Variant:
    variants: Mapping[str, Variant] = import_module(f"kernels.study.{job}").VARIANTS
    known = ", ".join(other.name for other in variants.values() if not (other.broken or other.unfit))
    if name not in variants:
        raise ValueError(f"--kernel: expected one of {known}, got {name!r}")
    if broken := variants[name].broken:
        raise ValueError(f"--kernel {name}: expected a correct variant, one of {known}, got one that is broken on "
                         f"purpose: {broken}; `study {job} --variant {name}` shows it")  # fmt: skip
    if unfit := variants[name].unfit:
        raise ValueError(f"--kernel {name}: expected a variant for any data, one of {known}, got one that {unfit}; "
                         f"`study {job} --variant {name}` runs it")  # fmt: skip
    return variants[name]
