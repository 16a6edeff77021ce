"""Dask's scheduler and worker without their HTTP servers, for a cluster inside one process."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler, Worker

__all__ = ["PortlessScheduler", "PortlessWorker", "Scheduler"]


class PortlessScheduler(Scheduler):  # type: ignore[misc]
    """Opens no port: over inproc:// only this process reaches it."""

    def start_http_server(self, *arguments: Any, **keywords: Any) -> None:
        """Do nothing."""


class PortlessWorker(Worker):  # type: ignore[misc]
    """Opens no port: the scheduler's dashboard shows its state."""

    def start_http_server(self, *arguments: Any, **keywords: Any) -> None:
        """Do nothing."""

    async def close(self, *arguments: Any, **keywords: Any) -> Any:
        """Close, without waiting for threads that still compute: if they do, nobody needs their results."""
        return await super().close(*arguments, **{**keywords, "executor_wait": False})
