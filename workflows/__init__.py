"""One declaration per job: its kernels, how partials combine, its CPU reference; no Dask, no files, no terminal."""

from __future__ import annotations

from typing import Any

from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob
from workflows.digest import DIGEST
from workflows.histogram import HISTOGRAM
from workflows.map import MAP
from workflows.matmul import MATMUL
from workflows.quantile import QUANTILE
from workflows.reduce import REDUCE
from workflows.stencil import STENCIL
from workflows.transpose import TRANSPOSE

__all__ = ["WORKFLOWS", "Aggregation", "ArrayJob"]

_JOBS: tuple[Aggregation[Any] | ArrayJob[Any], ...] = (
    HISTOGRAM, REDUCE, QUANTILE, DIGEST, MATMUL, TRANSPOSE, STENCIL, MAP,
)  # fmt: skip
WORKFLOWS: dict[str, Aggregation[Any] | ArrayJob[Any]] = {workflow.name: workflow for workflow in _JOBS}
