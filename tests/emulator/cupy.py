"""The few functions of CuPy that wrappers and tests call; for machines without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common import memory as device_memory
from kernels.histogram.launch import launch_plan
from kernels.reduce import gpu
from tests.emulator.array import DeviceArray, allocate, to_device, unwrap
from tests.emulator.device import HOST, LIMITS

MEMORY = 2**30  # bytes that the device says it has
# Functions of NumPy that make an array, and what is the same on either device.
MAKERS = "arange ascontiguousarray concatenate full linspace ones stack tile where zeros"
SAME = """
    bool_ float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 inf nan dtype
    isfinite isnan matmul maximum minimum
"""


class OutOfMemoryError(MemoryError):
    """The device has no room."""


def empty(shape: Any, dtype: Any = float) -> DeviceArray:
    """An array without values."""
    nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    if nbytes > MEMORY:
        raise OutOfMemoryError(f"{nbytes} bytes")
    return allocate(shape, dtype, False)


def asarray(values: Any, dtype: Any = None) -> DeviceArray:
    """The array on the device, or a copy there."""
    if isinstance(values, DeviceArray) and dtype in (None, values.dtype):
        return values
    return to_device(np.asarray(unwrap(values), dtype))


def _made(function: Any) -> Any:
    return lambda *arguments, **options: to_device(np.asarray(function(*map(unwrap, arguments), **options)))


def module() -> ModuleType:
    """What `import cupy` finds."""
    cupy: Any = ModuleType("cupy")
    for name in MAKERS.split():
        setattr(cupy, name, _made(getattr(np, name)))
    for name in SAME.split():
        setattr(cupy, name, getattr(np, name))
    cupy.ndarray, cupy.empty, cupy.asarray, cupy.array = DeviceArray, empty, asarray, asarray
    cupy.empty_like = lambda array: empty(array.shape, array.dtype)
    cupy.asnumpy = lambda array: array.get()
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    runtime = SimpleNamespace(getDevice=lambda: 0, memGetInfo=lambda: (MEMORY, MEMORY),
                              streamIsCapturing=lambda stream: False)  # fmt: skip
    memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    cupy.cuda = SimpleNamespace(runtime=runtime, memory=memory, get_current_stream=lambda: SimpleNamespace(ptr=0))
    return cupy  # type: ignore[no-any-return]


@contextmanager
def on_host(monkeypatch: Any) -> Iterator[Any]:
    """`cupy` and the loader of kernels are those of the host."""
    cupy = module()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(nvrtc, "load", HOST.load)
    monkeypatch.setattr(device, "limits", lambda: LIMITS)
    monkeypatch.setattr(device_memory, "POOL_BYTES", 0)  # a result is an array of its own, whose ends are watched
    HOST.seed, HOST.mutant = 0, 0
    HOST.launched.clear()
    held = launch_plan, gpu.free_totals  # they hold arrays of the device that they were made for
    for function in held:
        function.cache_clear()
    yield cupy
    for function in held:
        function.cache_clear()
