"""Loaded first by a worker that has a GPU: CUDA gets ready while Dask and CuPy do, for it takes longer than both."""

from __future__ import annotations

import ctypes
from threading import Thread
from typing import Any


def dask_setup(worker: Any) -> None:
    """What Dask calls."""
    Thread(target=_make_context, daemon=True).start()


def _make_context() -> None:
    """The context that CuPy finds and waits for; where there can be none, it says why."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
