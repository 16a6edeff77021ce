"""Dask clusters of several processes on this machine: private to their user, and sure to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import spawn
from threading import Event, Thread, current_thread, main_thread
from typing import Any

from pipeline.errors import PipelineError

CLOSE_SECONDS = 10
WORKER_PROCESS = "Dask Worker process (from Nanny)"  # as Dask names it

# Dask has malloc give memory back at once. Each temporary array of NumPy would then be made of new pages: two processes
# took 8 s for a histogram of 8 GiB, of which the system had most.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(2**27), "MALLOC_MMAP_THRESHOLD_": str(2**25)}


def private(dashboard: str | None) -> dict[str, Any]:
    """Options of a cluster of processes that other users of the machine can neither join nor look into."""
    return {
        "security": True,  # temporary certificates that only these processes have
        # Dask's HTTP server starts in any case, by default on all interfaces and with the dashboard.
        "dashboard_address": dashboard or "127.0.0.1:0",
        "scheduler_kwargs": {"dashboard": bool(dashboard)},
        "memory_limit": None,
        "silence_logs": 50,
    }


@contextmanager
def start_processes(kind: Any, options: dict[str, Any]) -> Iterator[Any]:
    """A running cluster of `kind`, closed at the end.

    Raises
    ------
    PipelineError
        If its processes do not start.
    """
    import dask

    cluster = kind.__new__(kind)
    environ = "distributed.nanny.pre-spawn-environ"
    try:
        # As long as the cluster is there, also for workers that start later.
        with dask.config.set({environ: {**dask.config.get(environ), **MALLOC}}), _without_main():
            with _signals_held():
                _start(cluster, options)
            yield cluster
    finally:
        if hasattr(cluster, "status"):  # it has begun to start
            _close(cluster)


@contextmanager
def _without_main() -> Iterator[None]:
    """Start Dask's workers without the program that starts them: what they need of it travels by value.

    multiprocessing would import it first. A script that does not ask for its `__name__` would then run once more in
    each worker, which would start workers in turn, and nobody would ever be ready.
    """
    prepare = spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        data = prepare(name)
        if name == WORKER_PROCESS:
            return {key: value for key, value in data.items() if not key.startswith("init_main")}
        return data

    spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        spawn.get_preparation_data = prepare


def _start(cluster: Any, options: dict[str, Any]) -> None:
    try:
        cluster.__init__(**options)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise PipelineError(f"expected a process for every worker to start, got {type(error).__name__}: {reason}; "
                            "run with --device cpu, or on fewer GPUs with CUDA_VISIBLE_DEVICES") from error  # fmt: skip


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hear the first SIGTERM or Ctrl-C at the end only: what has started half can neither be closed nor found again."""
    if current_thread() is not main_thread():
        yield
        return
    held: list[tuple[int, Any]] = []

    def hold(number: int, frame: Any) -> None:
        held.append((number, frame))
        if len(held) > 1:
            before[number](number, frame)

    heard = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {name: handler for name in heard if callable(handler := signal.getsignal(name))}
    for name in before:
        signal.signal(name, hold)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
    for number, frame in held:
        before[number](number, frame)


def _close(cluster: Any) -> None:
    """Close a cluster of processes, and kill those that do not end.

    Where a worker died within milliseconds of its start, its nanny loses the message of the next one (it waits for the
    message of the first on the queue of the second) and then waits for it for ever when it is to end.
    """
    nannies = list(cluster.workers.values())
    closed = Event()

    def kill() -> None:
        while not closed.wait(CLOSE_SECONDS):
            for pid in [nanny.pid for nanny in nannies if nanny.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    Thread(target=kill, daemon=True).start()
    try:
        cluster.close()
    finally:
        closed.set()
