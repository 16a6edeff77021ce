"""What a worker does around a task: it shows its progress, and exits once its GPU or its process is unusable."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from time import sleep
from typing import Any, TypeVar

from pipeline.cluster.cuda_errors import hide_failing_destructors, lost_context, other_failure, out_of_memory
from pipeline.errors import PipelineError
from pipeline.process import heartbeat
from pipeline.process.last_words import abandon

Result = TypeVar("Result")

FOLDER = "baru-progress"  # key of Dask's configuration: where the processes of our own clusters show their progress

PAUSES = (0.0, 0.1, 0.5, 2.0, 5.0, 5.0)  # seconds before each further attempt of a task that found no memory


def worker_address() -> str:
    """Address of the worker that runs the task."""
    from distributed import get_worker

    return str(get_worker().address)


def worker_threads() -> int:
    """Number of threads of the worker that runs the task."""
    from distributed import get_worker

    return int(get_worker().state.nthreads)


def device_name(device: str) -> str:
    """Name of the GPU in use, or "cpu"."""
    if device == "cpu":
        return "cpu"
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"].decode())


def unit_name(device: str) -> str:
    """What computes: the GPU of this process, as CUDA_VISIBLE_DEVICES names it, or this process; and its host."""
    return f"{f'process {os.getpid()}' if device == 'cpu' else own_device(device)} on {socket.gethostname()}"


def run_task(name: str, device: str, function: Callable[..., Result], *arguments: Any) -> Result:
    """Task: call a function, and show what this process is doing while it lasts.

    Parameters
    ----------
    name
        For messages: the job and its byte range.
    device
        ``"gpu"`` or ``"cpu"``.
    function, arguments
    """
    folder = _progress_folder()
    if folder is None:
        return _on_device(name, device, function, *arguments)
    try:
        shown = heartbeat.start(folder, own_device(device))
    except OSError as error:
        raise PipelineError(f"expected room for a scratch file in {folder}, got {error.strerror or error}; free some "
                            "space, or name another place with TMPDIR") from None  # fmt: skip
    with shown.task(name):
        return _on_device(name, device, function, *arguments)


def _progress_folder() -> str | None:
    """Where to show progress; None on others' clusters, one of which may be in the process that has started ours."""
    import dask

    if (folder := dask.config.get(FOLDER, None)) is None:
        return None
    from distributed import get_worker

    from pipeline.cluster.in_process import PortlessWorker

    worker = get_worker()
    return str(folder) if worker.nanny is not None or isinstance(worker, PortlessWorker) else None


def own_device(device: str) -> str:
    """The GPU of this process, as the cluster that started it names it, or "cpu"."""
    from pipeline.gpu.transfer import FED

    if device == "cpu" and FED not in os.environ:
        return "cpu"
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "GPU 0"


def _on_device(name: str, device: str, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function; where the GPU has too little memory, again, with smaller blocks, when other tasks have ended."""
    pauses = iter(PAUSES if device == "gpu" else ())
    if device == "gpu":
        hide_failing_destructors()
    while True:
        try:
            return function(*arguments)
        except Exception as error:
            pause = next(pauses, None) if out_of_memory(error) else None
            if pause is not None and _shrink():
                sleep(pause)
                continue
            reason = out_of_memory(error) or lost_context(error) or other_failure(error)
            if reason is None:
                raise
            _exit_if_restarted(reason, name)
            if lost_context(error):
                abandon()  # freeing what it had would fail
            raise PipelineError(f"{name}: {reason}") from error


def _shrink() -> bool:
    from pipeline.gpu.blocks import shrink

    return shrink()


def _exit_if_restarted(reason: str, task: str) -> None:
    """Exit if this process can no longer use its GPU: every task that Dask sends to it would fail.

    Its nanny starts another one, and Dask reruns the task elsewhere. In the client's own process nothing is done.
    """
    from distributed import get_worker

    if get_worker().nanny is not None:
        heartbeat.fail(reason, task)
        os._exit(1)
