"""Dask clusters of several processes on this machine: private to their user, and always closed."""

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

# Dask makes malloc return memory at once, so that every temporary NumPy array faults in new pages: two processes took
# 8 s for a histogram of 8 GiB, most of it system time.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(2**27), "MALLOC_MMAP_THRESHOLD_": str(2**25)}


def private(dashboard: str | None) -> dict[str, Any]:
    """Options for a cluster that other users of the machine can neither join nor inspect."""
    return {
        "security": True,  # temporary certificates, known only to these processes
        # Dask always starts its HTTP server, by default on all interfaces and with the dashboard, so restrict it.
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
    from distributed.core import Status

    cluster = kind.__new__(kind)
    environ = "distributed.nanny.pre-spawn-environ"
    try:
        # Set for the lifetime of the cluster: workers that replace dead ones start later.
        with dask.config.set({environ: {**dask.config.get(environ), **MALLOC}}), _without_main():
            with _signals_held():
                _start(cluster, options)
            yield cluster
    finally:
        if getattr(cluster, "status", None):
            _close(cluster)
        else:  # the constructor failed before there was anything to close; Dask's destructor must not try to
            cluster.status = Status.closed


@contextmanager
def _without_main() -> Iterator[None]:
    """Start Dask's workers without importing the main program: whatever they need from it is pickled by value.

    By default multiprocessing imports it first. A script without `if __name__ == "__main__"` would then run again in
    every worker, which would start workers in turn, and none would ever be ready.
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
        if isinstance(error, ImportError):
            advice = "install what is missing"
        elif "CUDA_VISIBLE_DEVICES" in options:
            advice = "run with --device cpu, or on fewer GPUs with CUDA_VISIBLE_DEVICES"
        else:
            advice = "check the free memory and the space for scratch files (TMPDIR names another place)"
        raise PipelineError(f"expected a process for every worker to start, got {type(error).__name__}: {reason}; "
                            f"{advice}") from error  # fmt: skip


@contextmanager
def _signals_held() -> Iterator[None]:
    """Defer the first SIGTERM or Ctrl-C to the end: a half-started cluster can be neither closed nor found."""
    if current_thread() is not main_thread():
        yield
        return
    held: list[tuple[int, Any]] = []

    def hold(number: int, frame: Any) -> None:
        held.append((number, frame))
        if len(held) > 1:
            before[number](number, frame)

    signals = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {name: handler for name in signals if callable(handler := signal.getsignal(name))}
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
    """Close a cluster, and kill the processes that do not end.

    If a worker dies within milliseconds of its start, its nanny waits for the first worker's message on the queue of
    the second. That consumes the second's message, and the nanny then never finishes closing.
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
