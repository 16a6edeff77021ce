"""One declaration per job: its kernels, how partials combine, its CPU reference; no Dask, no files, no terminal."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from workflows.on_demand import OnDemand

if TYPE_CHECKING:
    from workflows.aggregation import Aggregation
    from workflows.array_job import ArrayJob

__all__ = ["WORKFLOWS", "Aggregation", "ArrayJob"]
_MODULES = {"Aggregation": "aggregation", "ArrayJob": "array_job"}

BUILT_IN = "histogram", "reduce", "quantile", "digest", "matmul", "transpose", "stencil", "map"
WORKFLOWS: OnDemand[Aggregation[Any] | ArrayJob[Any]] = OnDemand(
    {name: f"workflows.{name}:{name.upper()}" for name in BUILT_IN}
)


def __getattr__(name: str) -> Any:
    """Load what the package offers on first use, so that its names alone need no NumPy."""
    if name in _MODULES:
        globals()[name] = value = getattr(import_module(f"workflows.{_MODULES[name]}"), name)
        return value
    raise AttributeError(f"module 'workflows' has no attribute {name!r}")
