"""Jobs that run a kernel of the courses: the only way from a job to the ladders in `kernels/study`."""

from __future__ import annotations

from typing import Any, TypeVar

from pipeline.errors import UsageError
from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob

Declared = TypeVar("Declared", bound=Aggregation[Any] | ArrayJob[Any])


def by_kernel(workflow: Declared, options: Any, kernel: str | None) -> Declared:
    """The job as it is, or with this variant in place of its own kernel.

    Raises
    ------
    UsageError
        If there is no such variant, no job may use it, or it does not do what the options ask for.
    """
    if kernel is None:
        return workflow
    from workflows.study.jobs import with_kernel

    try:
        return with_kernel(workflow, options, kernel)
    except ValueError as error:
        raise UsageError(f"{workflow.name}: {error}") from None
