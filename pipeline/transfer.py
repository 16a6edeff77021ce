"""Bytes of files on their way to a device, through kvikio: by GPUDirect Storage, or through pinned memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from pipeline.chunks import Piece
from pipeline.devices import find_devices
from pipeline.errors import PipelineError

# Threads of kvikio copy from the page cache to pinned memory of their own, one task each, and have the device fetch it.
# As long as what all of them have under way on all GPUs of a machine fits into the last-level cache of the host, its
# memory gives each byte once; tasks that are too short wait for their copies. Figures are in docs/design.md.
THREADS = 16
TASK_BYTES = (2**21, 2**22)
CACHED_BYTES = 2**27

# In the environment of a process that sees one GPU, how many are fed on this machine.
FED = "BARU_GPUS_FED"

PINNED, DIRECT = "through pinned memory", "by GPUDirect Storage"


@cache
def prepare_threads() -> None:
    """Tell kvikio how many threads to run for the GPU of this process, and in what steps they read and write."""
    import kvikio.defaults

    cores = len(os.sched_getaffinity(0))
    gpus = int(os.environ.get(FED) or find_devices().usable)
    kvikio.defaults.set({"num_threads": max(1, min(THREADS, cores)), "task_size": task_bytes(gpus)})


def task_bytes(gpus: int) -> int:
    """Bytes that a thread of kvikio reads at a time where so many GPUs are fed."""
    low, high = TASK_BYTES
    return max(low, min(CACHED_BYTES // (THREADS * max(gpus, 1)), high))


@cache
def way() -> str:
    """How the bytes go, for the report."""
    import kvikio.cufile_driver
    import kvikio.defaults

    direct = not kvikio.defaults.is_compat_mode_preferred() and kvikio.cufile_driver.get("is_gds_available")
    return DIRECT if direct else PINNED


@dataclass(frozen=True)
class Transfer:
    """One run of bytes on its way from a piece of a file to memory of the device."""

    future: Any
    piece: Piece
    start: int
    target: Any

    def result(self) -> Any:
        """The memory, once all bytes are there.

        Raises
        ------
        PipelineError
            If the file system refuses, or the file ended.
        """
        offset = self.piece.offset + self.start
        try:
            got = int(self.future.get())
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise PipelineError(f"{self.piece.path}: reading at byte {offset} failed: {reason}") from None
        if got != len(self.target):
            raise PipelineError(f"{self.piece.path}: shrank while it was read: ended at byte {offset + got}, expected "
                                f"{self.piece.size}; run again when nothing writes to it")  # fmt: skip
        return self.target


def transfer(file: Any, piece: Piece, start: int, target: Any) -> Transfer:
    """Start to read from byte `start` of a piece, whose file kvikio has opened, until the target is full."""
    future = file.pread(target, len(target), piece.offset + start)
    return Transfer(future, piece, start, target)


def finish(transfers: Iterable[Transfer]) -> None:
    """Start them if they are not, and wait for all, also where one fails: memory must not be given up before."""
    under_way: deque[Transfer] = deque()
    try:
        under_way.extend(transfers)
        while under_way:
            under_way.popleft().result()
    finally:
        for other in under_way:
            other.future.get()
