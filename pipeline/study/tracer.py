"""Records the steps that a course's program takes on a GPU: pageable memory, an allocation at every call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.study.profile import ACTIVITIES, CALLS, TO_DEVICE, TO_HOST


class CupyTracer:
    """The current device of CuPy, on the current stream; every allocation is a call of cudaMalloc."""

    def __init__(self) -> None:
        import cupy

        self.steps: list[tuple[str, str, float]] = []
        self._cupy = cupy
        self._runtime = cupy.cuda.runtime
        self._events = cupy.cuda.Event(), cupy.cuda.Event()

    def upload(self, array: NDArray[Any]) -> Any:
        """Allocate and copy from pageable memory."""
        host = np.ascontiguousarray(array)
        with self._cupy.cuda.using_allocator(self._malloc):
            target = self._cupy.empty(host.shape, host.dtype)
        self._copy(TO_DEVICE, target.data.ptr, host.ctypes.data, host.nbytes, self._runtime.memcpyHostToDevice)
        return target

    def launch(self, name: str, work: Callable[[], Any]) -> Any:
        """Launch a kernel that was launched before, so that it is compiled and loaded, and wait for it."""
        work()
        with self._cupy.cuda.using_allocator(self._malloc):
            return self._timed(name, "kernel launch, with its checks in Python", work)

    def download(self, array: Any) -> None:
        """Copy to pageable memory."""
        host = np.empty(array.shape, array.dtype)
        source = self._cupy.ascontiguousarray(array)
        self._copy(TO_HOST, host.ctypes.data, source.data.ptr, host.nbytes, self._runtime.memcpyDeviceToHost)

    def _copy(self, name: str, target: int, source: int, nbytes: int, kind: int) -> None:
        self._timed(name, "cudaMemcpy", lambda: self._runtime.memcpy(target, source, nbytes, kind))

    def _timed(self, activity: str, call: str, work: Callable[[], Any]) -> Any:
        began, ended = self._events
        self._runtime.deviceSynchronize()
        began.record()
        start = time.perf_counter()
        result = work()
        stop = time.perf_counter()
        ended.record()
        ended.synchronize()
        waited = time.perf_counter()
        self.steps += [
            (ACTIVITIES, activity, float(self._cupy.cuda.get_elapsed_time(began, ended))),
            (CALLS, call, (stop - start) * 1e3),
            (CALLS, "cudaEventSynchronize", (waited - stop) * 1e3),
        ]
        return result

    def _malloc(self, nbytes: int) -> Any:
        start = time.perf_counter()
        memory = self._cupy.cuda.Memory(nbytes)
        self.steps.append((CALLS, "cudaMalloc", (time.perf_counter() - start) * 1e3))
        return self._cupy.cuda.MemoryPointer(memory, 0)
