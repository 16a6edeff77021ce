"""Preload of GPU workers: creates the CUDA context while Dask and CuPy are imported, which takes less time."""

from __future__ import annotations

import ctypes
from threading import Thread
from typing import Any


def dask_setup(worker: Any) -> None:
    """Called by Dask when the worker starts."""
    make_context()


def make_context() -> None:
    """Start a thread that creates the context of the first visible GPU, which CuPy will wait for and use."""
    Thread(target=_make_context, daemon=True).start()


def _make_context() -> None:
    """Create it; if this fails, CuPy reports why."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def warm_up() -> None:
    """Initialize CUDA on a worker, so that it counts as start-up and not as part of the first task."""
    from pipeline.gpu.devices import find_devices

    if find_devices().usable:
        import cupy

        from pipeline.gpu.transfer import warm_up

        warm_up()
        cupy.cuda.Device().synchronize()  # waits for the context


def warm_up_gpus(client: Any, where: str) -> None:
    """Warm up all GPUs; one that fails is found by its first tasks, and left out, unless all fail."""
    from pipeline.cluster.client import CALL_SECONDS
    from pipeline.cluster.cuda_errors import lost_context, out_of_memory
    from pipeline.errors import PipelineError

    try:
        results = client.run(warm_up, on_error="return").values()
    except TimeoutError:
        raise PipelineError(f"{where}: expected every GPU to start within {CALL_SECONDS} s; nvidia-smi may tell which "
                            "one hangs; leave it out with --gpus") from None  # fmt: skip
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors and len(errors) == len(results):
        reason = out_of_memory(errors[0]) or lost_context(errors[0])
        text = reason or f"{type(errors[0]).__name__}: {errors[0]}".partition("\n")[0]
        raise PipelineError(f"{where}: expected a GPU that computes, but {text}") from errors[0]
