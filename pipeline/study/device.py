"""The GPU that a study runs on: timing, transfers, and the limits that rates are compared with."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.study.roofline import copy, displace_cache, product, read_stream
from pipeline.errors import UsageError
from pipeline.gpu.devices import find_devices
from pipeline.report.panel import versions
from pipeline.study.host import HostDevice, cpu_name
from pipeline.study.run import Device, median_ms
from pipeline.study.tracer import CupyTracer
from workflows.study.study import Arrays, Case, Study

STREAM_BYTES = 2**30
TRANSFER_BYTES, TRANSFERS = 2**28, 5  # 256 MiB take as long per byte as more
PRODUCT_SIZE = 4096
LEADS = 2


def open_device(study: Study, cases: Sequence[Case]) -> Device:
    """The current GPU; no device if all cases are baselines on the CPU.

    Raises
    ------
    UsageError
        If a GPU is needed and there is none, or CuPy is missing.
    """
    if all(study.variants[case.variant].on_host for case in cases):
        return HostDevice()
    devices = find_devices()
    if not devices.gpus or devices.cupy is None:
        raise UsageError(f"a study needs an NVIDIA GPU, its driver and CuPy, here {devices.missing}; "
                         "run `inspect` or the baselines (--variant cpu_numpy), which need none of them")  # fmt: skip
    return CupyDevice()


class CupyDevice:
    """The current device of CuPy, on the current stream."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._runtime = cupy.cuda.runtime
        self.errors: tuple[type[Exception], ...] = (
            cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError
        )  # fmt: skip
        self._device = cupy.cuda.Device()
        self.cache_bytes = int(self._device.attributes["L2CacheSize"])
        self._nbytes = min(STREAM_BYTES, self._free() // 8 // 4 * 4)
        self._lead = cupy.zeros(self._nbytes // 4, cupy.uint32)
        self._events = cupy.cuda.Event(), cupy.cuda.Event()

    def to_device(self, arrays: Arrays) -> tuple[Any, ...]:
        """Copy host arrays, but not through CuPy's pinned buffers, which would stay as large as the largest array."""
        needed, free = sum(array.nbytes for array in arrays), self._free()
        if needed > free:
            raise MemoryError(f"needs {needed} bytes of device memory for the inputs, {free} are free")
        return tuple(self._upload(np.ascontiguousarray(array)) for array in arrays)

    def to_host(self, array: Any) -> NDArray[Any]:
        """Wait for a result and copy it back."""
        copy: NDArray[Any] = self._cupy.asnumpy(array)
        return copy

    def elapsed(self, work: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
        """Milliseconds by events; a read of other data runs first, until Python has queued the launches."""
        began, ended = self._events
        for _ in range(LEADS):
            displace_cache(self._lead)
        if before is not None:
            before()
        began.record()
        work()
        ended.record()
        ended.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(began, ended))

    def transfer(self, nbytes: int, to_host: bool) -> float:
        """Median milliseconds of a copy between device memory and pinned memory; beyond a limit in proportion to it."""
        copied = min(nbytes, TRANSFER_BYTES)
        here = self._cupy.empty(TRANSFER_BYTES, self._cupy.uint8)
        there = self._pinned

        def copy_once() -> None:
            ends = (there.ptr, here.data.ptr) if to_host else (here.data.ptr, there.ptr)
            kind = self._runtime.memcpyDeviceToHost if to_host else self._runtime.memcpyHostToDevice
            self._memcpy(*ends, copied, kind)

        self.elapsed(copy_once)
        return statistics.median(self.elapsed(copy_once) for _ in range(TRANSFERS)) * nbytes / max(copied, 1)

    @cached_property
    def _pinned(self) -> Any:
        return self._cupy.cuda.alloc_pinned_memory(TRANSFER_BYTES)

    def limit(self, name: str) -> float:
        """GB/s of ``"read"`` and ``"copy"`` (read and written bytes), GFLOP/s of ``"float32"`` and ``"float64"``."""
        work, amount = self._limits()[name]()
        return amount / median_ms(lambda _: self.elapsed(work)) / 1e6

    def tracer(self) -> CupyTracer:
        """A new record of steps."""
        return CupyTracer()

    def release(self) -> None:
        """Empty CuPy's pools, so that the driver counts their memory as free."""
        self._cupy.get_default_memory_pool().free_all_blocks()
        self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    def environment(self) -> dict[str, Any]:
        """Device, driver, versions, date."""
        properties = self._runtime.getDeviceProperties(self._device.id)
        return {
            "date": datetime.date.today().isoformat(),
            "device": properties["name"].decode(),
            "cpu": cpu_name(),
            "compute_capability": self._device.compute_capability,
            "memory_bytes": int(properties["totalGlobalMem"]),
            "cache_bytes": self.cache_bytes,
            "driver": find_devices().driver,
            "cuda_runtime": int(self._runtime.runtimeGetVersion()),
            "versions": versions(),
        }

    def _limits(self) -> dict[str, Callable[[], tuple[Callable[[], None], float]]]:
        """Functions that make the work of each limit and return its bytes or operations."""
        return {
            "read": self._read, "copy": self._copy,
            "float32": lambda: self._product("float32"), "float64": lambda: self._product("float64"),
        }  # fmt: skip

    def _read(self) -> tuple[Callable[[], None], float]:
        data = self._cupy.arange(self._nbytes // 4, dtype=self._cupy.uint32)
        return lambda: read_stream(data), data.nbytes

    def _copy(self) -> tuple[Callable[[], None], float]:
        data = self._cupy.arange(self._nbytes // 4, dtype=self._cupy.uint32)
        target = self._cupy.empty_like(data)
        return lambda: copy(target, data), 2 * data.nbytes

    def _product(self, dtype: str) -> tuple[Callable[[], None], float]:
        # Random numbers: multiplying zeros draws less power, which keeps the clock higher than real work does.
        values = np.random.default_rng(0).standard_normal((2, PRODUCT_SIZE, PRODUCT_SIZE)).astype(dtype)
        a, b = self.to_device(tuple(values))
        out = self._cupy.empty_like(a)
        return lambda: product(a, b, out), 2.0 * PRODUCT_SIZE**3

    def _upload(self, array: NDArray[Any]) -> Any:
        target = self._cupy.empty(array.shape, array.dtype)
        self._runtime.memcpy(target.data.ptr, array.ctypes.data, array.nbytes, self._runtime.memcpyHostToDevice)
        return target

    def _memcpy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self._runtime.memcpyAsync(target, source, nbytes, kind, self._cupy.cuda.get_current_stream().ptr)

    def _free(self) -> int:
        return int(self._runtime.memGetInfo()[0]) + int(self._cupy.get_default_memory_pool().free_bytes())
