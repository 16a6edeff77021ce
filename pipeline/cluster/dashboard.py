"""Dask's dashboard, with our own page: on loopback only, and nothing else of Dask's HTTP servers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import UsageError


def loopback(dashboard_address: str | None) -> str | None:
    """The address on 127.0.0.1, since Dask binds a bare port on every interface; any port if this one is in use."""
    if dashboard_address is None:
        return None
    host, _, port = dashboard_address.rpartition(":")
    if host not in ("", "127.0.0.1", "localhost") or not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"--dashboard-address: expected a port of this machine like :8787, got {dashboard_address!r}; "
            "the dashboard has no password, so it is served on loopback only: reach it through an ssh tunnel"
        )
    try:
        with socket.create_server(("127.0.0.1", int(port))):
            return f"127.0.0.1:{port}"
    except OSError:  # Dask would do the same, with a warning of three lines; the command prints the port
        return "127.0.0.1:0"


@contextmanager
def routes(dashboard: str | None) -> Iterator[None]:
    """Serve only the dashboard's pages: by default Dask shows its state to every user of the machine."""
    import dask

    pages = [f"distributed.http.{name}" for name in ("scheduler.prometheus", "scheduler.info", "health", "statics")]
    served = {"scheduler": [*pages, "pipeline.cluster.page"] if dashboard else [], "worker": []}
    with dask.config.set({f"distributed.{server}.http.routes": served[server] for server in served}):
        yield
