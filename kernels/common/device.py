"""Limits of the current CUDA device, and the architecture that its kernels are compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

HOPPER = "sm_90a"


@dataclass(frozen=True)
class Limits:
    """Limits of a device: threads, registers and bytes of shared memory, per block and per multiprocessor.

    `hopper`: whether it has the instructions that only Hopper has.
    """

    multiprocessors: int
    threads_per_block: int
    threads_per_multiprocessor: int
    registers_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block: int
    hopper: bool = False

    def resident_blocks(self, threads: int, registers: int, shared: int) -> int:
        """Blocks that are resident on the whole device at once (at least one per multiprocessor).

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
        # The system takes 1 KiB of shared memory for each resident block, on sm_80 and newer.
        by_shared = self.shared_per_multiprocessor // (shared + 1024)
        return self.multiprocessors * max(1, min(by_threads, by_registers, by_shared))


def architecture_of(device: int) -> str:
    """Architecture of a device; for Hopper the one with instructions that no later device has."""
    import cupy

    architecture = f"sm_{cupy.cuda.Device(device).compute_capability}"
    return HOPPER if architecture == "sm_90" else architecture


def limits() -> Limits:
    """Limits of the current CUDA device."""
    import cupy

    return limits_of(int(cupy.cuda.runtime.getDevice()))


@cache
def limits_of(device: int) -> Limits:
    """Limits of a CUDA device by its index."""
    import cupy

    attributes = cupy.cuda.Device(device).attributes
    return Limits(
        multiprocessors=attributes["MultiProcessorCount"],
        threads_per_block=attributes["MaxThreadsPerBlock"],
        threads_per_multiprocessor=attributes["MaxThreadsPerMultiProcessor"],
        registers_per_multiprocessor=attributes["MaxRegistersPerMultiprocessor"],
        shared_per_multiprocessor=attributes["MaxSharedMemoryPerMultiprocessor"],
        shared_per_block=attributes["MaxSharedMemoryPerBlockOptin"],
        hopper=architecture_of(device) == HOPPER,
    )
