"""`--dry-run`: prints what a run would need, and runs nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.engine.aggregate_plan import Job
from pipeline.process.last_words import emit
from pipeline.settings import Settings
from pipeline.storage.sources import Source
from workflows.array_job import ArrayJob

if TYPE_CHECKING:
    from pipeline.estimate.estimate import Estimate

Made = Callable[[Source], tuple[Sequence[Job], Sequence[Source]]]


def plan_samples(made: Made, source: Source, settings: Settings, values: dict[str, Any]) -> None:
    """Print what aggregations would need; UsageError if that does not fit."""
    from pipeline.estimate.aggregate import plan_aggregations

    _show("plan", plan_aggregations(made, source, settings), values)


def plan_arrays(
    workflow: ArrayJob[Any], options: Any, sources: Sequence[Source], path: str, settings: Settings,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """Print what a job that writes an array would need; UsageError if that does not fit."""
    from pipeline.estimate.array import plan_array_job

    _show(workflow.name, plan_array_job(workflow, options, sources, path, settings, values["chunks"]), values)


def _show(name: str, estimate: Estimate, values: dict[str, Any]) -> None:
    estimate.refuse(name)
    lines = estimate.lines()
    width = max(len(label) for label, _ in lines)
    emit(*([json.dumps(estimate.to_json())] if values["as_json"] else
           [f"{label:<{width}}  {text}" for label, text in lines]))  # fmt: skip
