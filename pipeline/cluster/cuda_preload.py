"""Creates the CUDA context, which takes longer than importing Dask and CuPy, meanwhile; preload of GPU workers."""

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
