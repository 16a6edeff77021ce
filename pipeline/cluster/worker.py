"""What a task has to do with the worker that it runs on: who it is, and when it had better end."""

from __future__ import annotations

import os

# Errors after which a CUDA context serves nothing but errors (cudaError in the CUDA runtime API).
STICKY_ERRORS = frozenset({214, 700, 702, 704, 710, 714, 715, 716, 717, 718, 719, 720, 721})


def worker_address() -> str:
    """Address of the worker that this runs on."""
    from distributed import get_worker

    return str(get_worker().address)


def device_name(device: str) -> str:
    """Name of the GPU in use, or "cpu"."""
    if device == "cpu":
        return "cpu"
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"].decode())


def exit_on_lost_context(error: Exception) -> None:
    """End a worker process whose CUDA context is lost: alive, it would fail every task that it attracts.

    Its nanny starts a new one and Dask runs the task there. In the client's own process the error just goes up.
    """
    status = getattr(error, "status", None)
    if status in STICKY_ERRORS:
        from distributed import get_worker

        if get_worker().nanny is not None:
            os._exit(1)
