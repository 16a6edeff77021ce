"""Dask's scheduler and worker without their web servers, for a cluster that lives in one process."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler, Worker

__all__ = ["PortlessScheduler", "PortlessWorker", "Scheduler"]


class PortlessScheduler(Scheduler):  # type: ignore[misc]
    """Opens no port; over inproc:// it is reached from this process only."""

    def start_http_server(self, *arguments: Any, **keywords: Any) -> None:
        """Start none."""


class PortlessWorker(Worker):  # type: ignore[misc]
    """Opens no port; its state is on the scheduler's dashboard."""

    def start_http_server(self, *arguments: Any, **keywords: Any) -> None:
        """Start none."""
