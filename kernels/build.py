"""Turns a `.cu` file and its template arguments into a callable kernel; the only place that compiles.

Sources are compiled by NVRTC through CuPy for the device at hand and cached on disk by CuPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

OPTIONS = ("--std=c++17", "-default-device")
SOURCES = Path(__file__).parent


class Kernel(Protocol):
    """A compiled kernel. `arguments` are device arrays and NumPy scalars of the exact C type, never Python numbers."""

    num_regs: int

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], *, shared_mem: int = 0
    ) -> None: ...


@dataclass(frozen=True)
class Limits:
    """What the current device allows: threads and bytes of shared memory, per block and per multiprocessor."""

    multiprocessors: int
    threads_per_multiprocessor: int
    registers_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block: int

    def resident_blocks(self, threads: int, registers: int, shared: int) -> int:
        """Blocks that fit on the whole device at once (at least one a multiprocessor).

        Parameters
        ----------
        threads
            Per block.
        registers
            Per thread.
        shared
            Bytes of shared memory per block.
        """
        by_threads = self.threads_per_multiprocessor // threads
        by_registers = self.registers_per_multiprocessor // (threads * (-(-registers // 8) * 8))
        # Each resident block also pays 1 KiB of shared memory to the system on sm_80 and newer.
        by_shared = self.shared_per_multiprocessor // (shared + 1024)
        return self.multiprocessors * max(1, min(by_threads, by_registers, by_shared))


def load(stem: str, instance: str) -> Kernel:
    """Compile `kernels/<stem>.cu` and return its kernel `instance`, e.g. ``"histogram_shift<int, 1, true>"``.

    Raises
    ------
    cupy.cuda.compiler.CompileException
        If the source does not compile for the current device.
    """
    import cupy

    return _load(stem, instance, int(cupy.cuda.runtime.getDevice()))


@cache
def _load(stem: str, instance: str, device: int) -> Kernel:
    import cupy

    source = (SOURCES / f"{stem}.cu").read_text(encoding="utf-8")
    module = cupy.RawModule(code=source, options=OPTIONS, name_expressions=(instance,))
    kernel = module.get_function(instance)
    # Above 48 KiB dynamic shared memory has to be asked for once per kernel.
    kernel.max_dynamic_shared_size_bytes = limits().shared_per_block - kernel.shared_size_bytes
    return cast(Kernel, kernel)


def limits() -> Limits:
    """Limits of the current CUDA device."""
    import cupy

    return _limits(int(cupy.cuda.runtime.getDevice()))


@cache
def _limits(device: int) -> Limits:
    import cupy

    attributes = cupy.cuda.Device(device).attributes
    return Limits(
        multiprocessors=attributes["MultiProcessorCount"],
        threads_per_multiprocessor=attributes["MaxThreadsPerMultiProcessor"],
        registers_per_multiprocessor=attributes["MaxRegistersPerMultiprocessor"],
        shared_per_multiprocessor=attributes["MaxSharedMemoryPerMultiprocessor"],
        shared_per_block=attributes["MaxSharedMemoryPerBlockOptin"],
    )
