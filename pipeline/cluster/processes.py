"""Dask clusters on this machine: private to their user, started and closed within limits whatever happens."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import current_process, resource_tracker, spawn
from threading import Event, Thread
from time import monotonic
from typing import Any

from pipeline.cluster.worker import FOLDER
from pipeline.errors import PipelineError, PipelineWarning
from pipeline.process import supervisor
from pipeline.process.last_words import abandon
from pipeline.process.signals import in_a_hurry

START_SECONDS = 60  # for all processes of a cluster
CLOSE_SECONDS = 5  # until processes that do not end are killed, and again until the cluster is given up
HURRY_SECONDS = 2  # in the place of both once the command has been told to stop, and has only to write its results
KILL_SECONDS = 0.2  # between two attempts to kill processes: Dask may be starting others
WORKER_PROCESS = "Dask Worker process (from Nanny)"  # as Dask names it

# Dask makes malloc return memory at once, so that every temporary NumPy array faults in new pages: two processes took
# 8 s for a histogram of 8 GiB, most of it system time. Nor may a process run a file beside the data that has the name
# of a module.
ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": str(2**27), "MALLOC_MMAP_THRESHOLD_": str(2**25), "PYTHONSAFEPATH": "1"}

LEFT = "PYTHONHASHSEED", "RAPIDS_NO_INITIALIZE", "__DASK_PARENT_PID"  # Dask sets these, too, and leaves them

# Of Dask's logs for its developers, among them the latest messages of each connection, which hold all that tasks were
# given: with its 1,000 a histogram of 2 GiB in small chunks took 12 MB more.
LOGS = {"distributed.admin.low-level-log-length": 10}

# Dask's configuration may end clusters that others share, after some time or without tasks; a run would end with them.
STAYING = {"distributed.worker.lifetime.duration": None, "distributed.scheduler.idle-timeout": None}


@contextmanager
def environment(variables: Mapping[str, str], others: Iterable[str] = ()) -> Iterator[None]:
    """Set environment variables; at the end these and `others` are again what they were. Other threads may set more."""
    before = {name: os.environ.get(name) for name in (*variables, *others)}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


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
def start_processes(kind: Any, options: dict[str, Any], prepare: Callable[[], object] = bool) -> Iterator[Any]:
    """A running cluster of processes, as `started`."""
    import dask

    from pipeline.cluster.nanny import replaced_processes

    environ = "distributed.nanny.pre-spawn-environ"
    variables = {**dask.config.get(environ), **ENVIRONMENT}
    settings = {
        environ: variables,
        # Dask blames all tasks of a worker that dies; `pipeline.cluster.watch` knows in which it was.
        "distributed.scheduler.allowed-failures": 10**6,
        # A worker that happens to be starting again so long after an earlier one ended would be given up.
        "distributed.deploy.lost-worker-timeout": "1 week",
    }
    # Set for the lifetime of the cluster: workers that replace dead ones start later.
    with environment(ENVIRONMENT):
        resource_tracker.ensure_running()
    with (
        environment({}, (*variables, *LEFT)),
        dask.config.set(settings),
        _without_main(),
        _not_daemonic(),
        replaced_processes(),
        started(kind, options, prepare) as cluster,
    ):
        yield cluster


@contextmanager
def started(kind: Any, options: dict[str, Any], prepare: Callable[[], object] = bool) -> Iterator[Any]:
    """A running cluster of `kind`, closed at the end; an attempt to start it that fails is repeated once.

    An error while it is closed is a warning: what it computed is not lost.

    Parameters
    ----------
    kind, options
        Class of the cluster and arguments of its constructor.
    prepare
        Called before each attempt.

    Raises
    ------
    PipelineError
        If it does not start.
    """
    import dask

    # Not for longer: clusters that other threads of the program start meanwhile would be there, too.
    scratch = {"temporary-directory": os.path.dirname(folder)} if (folder := dask.config.get(FOLDER, None)) else {}
    with dask.config.set(LOGS):
        with dask.config.set({**STAYING, **scratch}):
            cluster = _start(_limited(kind), options, prepare)
        try:
            yield cluster
        except (SystemExit, KeyboardInterrupt):  # signals, which must be obeyed at once
            _close(cluster, 0)
            raise
        except BaseException:
            _close(cluster, CLOSE_SECONDS)
            raise
    if failed := _close(cluster, CLOSE_SECONDS):
        warnings.warn(f"the cluster did not close ({failed}); its processes were killed", PipelineWarning, stacklevel=3)


def _limited(kind: Any) -> Any:
    """The class of a cluster whose calls have a limit: Dask would wait for ever for a process that was killed."""

    class Limited(kind):  # type: ignore[misc]
        def sync(self, func: Any, *args: Any, callback_timeout: Any = None, **keywords: Any) -> Any:
            limit = CLOSE_SECONDS if func.__name__ in ("close", "_close") else START_SECONDS
            return super().sync(func, *args, callback_timeout=callback_timeout or limit, **keywords)

    Limited.__name__ = kind.__name__
    return Limited


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


@contextmanager
def _not_daemonic() -> Iterator[None]:
    """Let a process of a `multiprocessing.Pool` start workers: others could outlive it, but ours do not."""
    process = current_process()
    before = process.daemon
    if before:
        process.daemon = False
    try:
        yield
    finally:
        if before:
            process.daemon = True


def _start(kind: Any, options: dict[str, Any], prepare: Callable[[], object]) -> Any:
    text = f"expected the cluster to start within {4 * START_SECONDS} s, got none; is there memory for its threads?"
    for attempt in range(2):
        prepare()
        cluster = kind.__new__(kind)
        try:
            with supervisor.limit(4 * START_SECONDS, text):
                cluster.__init__(**options)
            return cluster
        except BaseException as error:
            _close(cluster, 0)
            again = not attempt and isinstance(error, RuntimeError | OSError | EOFError)
            if not isinstance(error, Exception):
                raise
            if not again:
                raise _not_started(error, options) from error
    raise AssertionError("unreachable")


def _not_started(error: Exception, options: dict[str, Any]) -> PipelineError:
    reason = str(error).partition("\n")[0]
    if isinstance(error, ImportError):
        advice = "install what is missing"
    elif "CUDA_VISIBLE_DEVICES" in options:
        advice = "run with --device cpu, or on fewer GPUs with --gpus"
    else:
        advice = "check the free memory and the space for scratch files (TMPDIR names another place)"
    return PipelineError(
        f"expected a process for every worker to start, got {type(error).__name__}: {reason}; {advice}"
    )


def _close(cluster: Any, patience: float) -> str | None:
    """Close a cluster, kill processes that have not ended after some seconds, and abandon what cannot be closed.

    Returns
    -------
    Why it could not be closed, if so.

    If a worker dies within milliseconds of its start, its nanny waits for the first worker's message on the queue of
    the second. That consumes the second's message, and the nanny then never finishes closing.
    """
    from distributed import core
    from distributed.core import Status

    if not getattr(cluster, "status", None):  # the constructor failed before there was anything to close
        cluster.status = Status.closed  # Dask's destructor must not try to
        return None
    closed, errors = Event(), list[Exception]()

    def close() -> None:
        try:
            cluster.close(timeout=patience + CLOSE_SECONDS)
        except Exception as error:
            errors.append(error)
        closed.set()

    try:
        if not patience:
            _kill(cluster)
        try:
            Thread(target=close, daemon=True).start()
        except RuntimeError:  # no memory for a thread
            close()
        hurried, until = False, monotonic() + patience
        while not closed.wait(KILL_SECONDS):
            if in_a_hurry() and not hurried:  # what was verified has to be written within seconds
                hurried, until = True, min(until, monotonic())
            if monotonic() >= until:
                _kill(cluster)
            if monotonic() >= until + (HURRY_SECONDS if hurried else CLOSE_SECONDS) + KILL_SECONDS:
                errors.append(TimeoutError("no answer"))
                break
    finally:
        _kill(cluster)
        with suppress(AttributeError):  # other versions of Dask have no such cache
            # Of methods: it would hold schedulers and workers for ever, 0.3 MB each.
            core._expects_comm.cache_clear()
    if errors:
        cluster.status = Status.closed
        abandon()
    return f"{type(errors[0]).__name__}: {errors[0]}" if errors else None


def _kill(cluster: Any) -> None:
    """Kill the processes of a cluster's workers, also of those that are just starting."""
    workers: list[Any] = []
    with suppress(RuntimeError):  # Dask's thread is creating some
        workers += getattr(cluster, "_created", ())
    for worker in workers:
        if pid := getattr(worker, "pid", None):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
