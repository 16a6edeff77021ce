"""The worker that runs a task: its address, its device, and when it must exit."""

from __future__ import annotations

import os

# Errors after which every call in a CUDA context fails (cudaError in the CUDA runtime API).
STICKY_ERRORS = frozenset({214, 700, 702, 704, 710, 714, 715, 716, 717, 718, 719, 720, 721})


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


def exit_on_lost_context(error: Exception) -> None:
    """Exit if the worker's CUDA context is lost: otherwise every task that Dask sends to it would fail.

    Its nanny starts another worker, and Dask reruns the task there. In the client's own process the error is raised.
    """
    status = getattr(error, "status", None)
    if status in STICKY_ERRORS:
        from distributed import get_worker

        if get_worker().nanny is not None:
            os._exit(1)
