"""One declaration per job: its kernels, how partials combine, its CPU reference; no Dask, no files, no terminal."""

from __future__ import annotations

from typing import Any

from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob
from workflows.on_demand import OnDemand

__all__ = ["WORKFLOWS", "Aggregation", "ArrayJob"]

BUILT_IN = "histogram", "reduce", "quantile", "digest", "matmul", "transpose", "stencil", "map"
WORKFLOWS: OnDemand[Aggregation[Any] | ArrayJob[Any]] = OnDemand(
    {name: f"workflows.{name}:{name.upper()}" for name in BUILT_IN}
)
