"""The emulator's `cupy`: the few functions that wrappers and tests call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common import memory as device_memory
from tests.emulator.array import DeviceArray, allocate, to_device, unwrap
from tests.emulator.device import HOST, LIMITS

MATH_MODES: list[int] = []  # that cuBLAS was set to
MEMORY = 2**30  # bytes of the device
# NumPy functions whose result becomes a device array, and names that are the same in both.
MAKERS = "arange ascontiguousarray concatenate flatnonzero full linspace ones stack tile where"
SAME = """
    bool_ float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 inf nan dtype
    absolute add copysign divide equal greater greater_equal isfinite isnan less less_equal logical_and logical_not
    logical_or matmul maximum minimum multiply negative not_equal rint sqrt square subtract
"""
# Cached functions of wrappers, by module; not imported, so that one family's tests do not depend on the others.
CACHES = {"kernels.histogram.launch": ("launch_plan",), "kernels.reduce.gpu": ("launch_plan", "free_totals")}


class OutOfMemoryError(MemoryError):
    """The device's memory is exhausted."""


def empty(shape: Any, dtype: Any = float) -> DeviceArray:
    """An uninitialised array."""
    nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    if nbytes > MEMORY:
        raise OutOfMemoryError(f"{nbytes} bytes")
    return allocate(shape, dtype, False)


def zeros(shape: Any, dtype: Any = float) -> DeviceArray:
    """An array of zeros, if the device has the memory."""
    empty(shape, dtype)
    return to_device(np.zeros(shape, dtype))


def asarray(values: Any, dtype: Any = None) -> DeviceArray:
    """The array itself if it is on the device, else a copy there."""
    if isinstance(values, DeviceArray) and dtype in (None, values.dtype):
        return values
    return to_device(np.asarray(unwrap(values), dtype))


def _made(function: Any) -> Any:
    return lambda *arguments, **options: to_device(np.asarray(function(*map(unwrap, arguments), **options)))


def module() -> ModuleType:
    """The module that `import cupy` returns."""
    cupy: Any = ModuleType("cupy")
    for name in MAKERS.split():
        setattr(cupy, name, _made(getattr(np, name)))
    for name in SAME.split():
        setattr(cupy, name, getattr(np, name))
    cupy.ndarray, cupy.empty, cupy.asarray, cupy.array = DeviceArray, empty, asarray, asarray
    cupy.zeros = zeros
    cupy.empty_like = lambda array: empty(array.shape, array.dtype)
    cupy.asnumpy = lambda array: array.get()
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    runtime = SimpleNamespace(getDevice=lambda: 0, memGetInfo=lambda: (MEMORY, MEMORY),
                              streamIsCapturing=lambda stream: False)  # fmt: skip
    memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    cublas = SimpleNamespace(getMathMode=lambda handle: 0, setMathMode=lambda handle, mode: MATH_MODES.append(mode))
    cupy.cuda = SimpleNamespace(runtime=runtime, memory=memory, cublas=cublas, get_cublas_handle=lambda: 1,
                                get_current_stream=lambda: SimpleNamespace(ptr=0))  # fmt: skip
    return cupy  # type: ignore[no-any-return]


@contextmanager
def on_host(monkeypatch: Any) -> Iterator[Any]:
    """`cupy`, the loader of kernels and the device's limits are the emulator's."""
    cupy = module()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(nvrtc, "load", HOST.load)
    monkeypatch.setattr(device, "limits", lambda: LIMITS)
    monkeypatch.setattr(device_memory, "POOL_BYTES", 0)  # each result is an allocation of its own, with watched ends
    HOST.seed, HOST.mutant = 0, 0
    HOST.launched.clear()
    forget()
    yield cupy
    forget()


def forget() -> None:
    """Clear the wrappers' caches, which hold arrays of the previous device."""
    for module, names in CACHES.items():
        for name in names if module in sys.modules else ():
            getattr(sys.modules[module], name).cache_clear()
