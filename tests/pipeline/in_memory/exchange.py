"""What the emulator's CuPy lacks for arrays in memory: events, pinned memory, devices, and sharing of memory."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.emulator.array import DeviceArray, Memory

ON_CPU, ON_CUDA = 1, 2  # device types of DLPack


class OnHost:
    """A DLPack exporter whose memory a CPU reads, as the emulator's devices have it."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter

    def __dlpack__(self, **_: Any) -> Any:
        return self._exporter.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return ON_CPU, 0


class Event:
    """An event; every launch and copy ends before it returns."""

    def __init__(self, **_: Any) -> None:
        self.recorded = False

    def record(self, stream: Any = None) -> None:
        """After all work so far, on any stream."""
        self.recorded = True

    def synchronize(self) -> None:
        """Returns at once."""
        assert self.recorded


class Stream:
    """A stream; its work ends before the call that queues it returns."""

    ptr = 1

    def __init__(self, *, non_blocking: bool) -> None:
        assert non_blocking

    def wait_event(self, event: Event) -> None:
        """Returns at once."""
        assert event.recorded


class PinnedMemory(bytearray):
    """Memory of the host that a device copies to."""

    @property
    def ptr(self) -> int:
        """Its address."""
        return ctypes.addressof(ctypes.c_uint8.from_buffer(self))


def interface(array: DeviceArray) -> dict[str, Any]:
    """Its __cuda_array_interface__."""
    host = array.host
    strides = None if host.flags.c_contiguous else host.strides
    return {"shape": host.shape, "typestr": host.dtype.str, "data": (array.data.ptr, False), "strides": strides}


def copy(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
    """Copies to the host, at once."""
    assert kind == 2
    ctypes.memmove(target, source, nbytes)


def adopt(values: np.ndarray[Any, Any]) -> DeviceArray:
    """A device array of memory that something else owns, all of it written."""
    low, high = np.lib.array_utils.byte_bounds(values)
    memory = Memory.__new__(Memory)
    memory.bytes = np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)
    memory.has_value = np.ones(high - low, np.uint8)
    return DeviceArray(values, memory)


def shared(exporter: Any) -> DeviceArray:
    """The memory behind a __cuda_array_interface__; its strides say how much that is."""
    given = exporter.__cuda_array_interface__
    strides = given["strides"] or np.empty(given["shape"], given["typestr"]).strides
    memory = (ctypes.c_uint8 * 2**40).from_address(given["data"][0])
    return adopt(np.ndarray(given["shape"], given["typestr"], memory, strides=strides))


def extend(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give it to the emulator's module and arrays."""
    asarray = cupy.asarray

    def as_array(values: Any, dtype: Any = None) -> Any:
        foreign = not isinstance(values, DeviceArray) and hasattr(values, "__cuda_array_interface__")
        return shared(values) if foreign else asarray(values, dtype)

    for name, value in (
        ("device", property(lambda array: SimpleNamespace(id=0))),
        ("__cuda_array_interface__", property(interface)),
        ("__dlpack__", lambda array, **_: array.host.__dlpack__()),
        ("__dlpack_device__", lambda array: (ON_CUDA, 0)),
    ):  # fmt: skip
        monkeypatch.setattr(DeviceArray, name, value, raising=False)
    monkeypatch.setattr(cupy, "asarray", as_array)
    cupy.from_dlpack = lambda exporter: adopt(np.from_dlpack(OnHost(exporter)))
    pool = cupy.get_default_memory_pool()
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_bytes=lambda: 0, **vars(pool))
    cupy.cuda.Event, cupy.cuda.Stream, cupy.cuda.alloc_pinned_memory = Event, Stream, PinnedMemory
    cupy.cuda.get_current_stream = lambda: SimpleNamespace(ptr=0, synchronize=lambda: None)
    cupy.cuda.runtime.memcpyDeviceToHost, cupy.cuda.runtime.memcpyAsync = 2, copy
    cupy.cuda.Device = lambda index: nullcontext()
