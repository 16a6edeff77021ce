"""A fork server: imports the workers' modules once, while the command starts; workers are forked from it.

A spawned worker imports Dask, CuPy and this project again, which takes longer than the rest of its start. The server
has no threads and never calls CUDA, since neither survives a fork. It listens on a socket in a folder that only this
user can enter.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from multiprocessing import forkserver, process, resource_tracker
from typing import Any

from kernels.common.private import temporary_folder
from pipeline.cluster import early
from pipeline.cluster.processes import ENVIRONMENT, environment
from pipeline.process import supervisor
from pipeline.process.exit_status import STATUS
from pipeline.process.signals import held
from pipeline.threads import BLAS_VARIABLES, blas_threads

WORKER = ("distributed.nanny", "distributed.http.worker", "workflows", "pipeline.cluster.placement",
          "pipeline.engine.aggregate_task", "pipeline.engine.array_task", "numpy.random",
          "tornado.platform.asyncio")  # fmt: skip
GPU_WORKER = (*WORKER, "dask_cuda", "cupy", "kvikio.defaults", "pipeline.cluster.cuda_preload")

_folder = ExitStack()  # with its socket


@contextmanager
def fork_server(modules: Sequence[str], gpus: Sequence[str] = ()) -> Iterator[None]:
    """Make Dask fork workers from a server that imports `modules`; start it if there is none, and stop it at the end.

    If no server can be started, workers are spawned. Workers of GPUs have processes of their own instead.
    """
    started = start(modules, gpus)
    if not started:
        early.keep()  # which no spawned worker could become
    try:
        with early.taken_first(start_early), _dask_forks() if started else nullcontext():
            yield
    finally:
        _end()


def start(modules: Sequence[str], gpus: Sequence[str] = ()) -> bool:
    """Start a server that ends with this process, unless there is one; False if none can be started.

    Modules that cannot be found are skipped. For GPUs the processes of their workers are started in its place.
    """
    try:
        variables = _variables()
    except OSError:  # the current folder was removed
        return False
    forkserver.set_forkserver_preload([*modules, "pipeline.cluster.fork_preload"])
    try:
        _make_folder()
        _end_at_exit()  # before the folder is removed
        with environment(variables):
            with no_signals():
                resource_tracker.ensure_running()  # unblocks signals
            if not gpus:
                with no_signals():
                    forkserver.ensure_running()
    except OSError:  # e.g. a socket path that is too long
        return False
    if gpus:
        start_early(gpus)
    return True


def start_early(gpus: Sequence[str]) -> None:
    """Start the processes of the workers of these GPUs, which end with this one, ahead of their cluster."""
    with suppress(OSError), no_signals():
        variables = _variables()
        _end_at_exit()
        early.start(gpus, GPU_WORKER, variables)


def _end_at_exit() -> None:
    atexit.unregister(_end)
    atexit.register(_end)


def _variables() -> dict[str, str]:
    """Environment variables of workers."""
    # They must import the modules of this process, even where the current folder has others of the same name.
    paths = [os.path.abspath(path) for path in sys.path]
    # As for spawned workers: keep the user's settings, but not this process's own number of BLAS threads.
    variables = {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
    variables |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    return variables | {name: "1" for name in BLAS_VARIABLES if os.environ.get(name) in (None, str(blas_threads()))}


def _make_folder() -> None:
    """Have multiprocessing use a folder that the next run removes if this process and its supervisor are killed."""
    config: Any = process.current_process()._config  # type: ignore[attr-defined]
    if "tempdir" not in config:
        with held():
            config["tempdir"] = str(_folder.enter_context(temporary_folder()))
            supervisor.remove_at_end(config["tempdir"])
            _folder.callback(config.pop, "tempdir")


@contextmanager
def no_signals() -> Iterator[None]:
    """Start processes with signals blocked: a terminal or a batch system signals all, but this process stops them.

    Workers unblock SIGTERM again (`pipeline.cluster.fork_preload`), so that it can terminate them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STATUS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _dask_forks() -> Any:
    import dask
    import distributed.utils

    # Otherwise Dask would preload pandas into the server.
    distributed.utils._forkserver_preload_set = True
    return dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})


def _end() -> None:
    early.keep()
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        with suppress(ProcessLookupError):
            os.kill(server._forkserver_pid, signal.SIGKILL)
    server._stop()
    _folder.close()
