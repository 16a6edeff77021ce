"""Which kernel, how partials combine, what the CPU says: one declaration per job, no Dask, no files, no terminal."""

from __future__ import annotations

from typing import Any

from workflows.histogram import HISTOGRAM
from workflows.workflow import Workflow

WORKFLOWS: dict[str, Workflow[Any]] = {workflow.name: workflow for workflow in (HISTOGRAM,)}
