"""Bytes of files on their way to a device: through pinned memory, or by GPUDirect Storage where a machine has it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.chunks import Piece
from pipeline.errors import PipelineError

# Threads of kvikio copy a part from the page cache to pinned memory, each a read of it; from there the device fetches
# it. As long as all that is under way on all GPUs of a machine fits into the last-level cache of the host, memory
# gives each byte once. Registering the mapped file instead, without any copy, is no way: the driver does that for all
# processes of a machine one after another, 60 GB/s on four H200.
THREADS = 16
PART_BYTES = 2**22
READ_BYTES = 2**18
PARTS = 4  # of a task: one is fetched, the others are read

PINNED, DIRECT = "through pinned memory", "by GPUDirect Storage"


@dataclass(frozen=True)
class Part:
    """Pinned memory, and the event after which the device has fetched what was in it."""

    memory: NDArray[np.uint8]
    fetched: Any


Ring = list[Part]
_rings: list[Ring] = []  # nobody uses; the one that was used last is still in the cache


@contextmanager
def pinned() -> Iterator[Ring | None]:
    """Parts that nobody else uses meanwhile; None where kvikio reads straight into the memory of the device."""
    if _direct():
        yield None
        return
    try:
        ring = _rings.pop()
    except IndexError:
        ring = _make_ring()
    try:
        yield ring
    finally:
        _rings.append(ring)


def way(ring: Ring | None) -> str:
    """How the bytes go, for the report."""
    return DIRECT if ring is None else PINNED


def _make_ring() -> Ring:
    import cupy
    from cupyx import empty_pinned

    return [Part(empty_pinned(PART_BYTES, np.uint8), cupy.cuda.Event(disable_timing=True)) for _ in range(PARTS)]


@cache
def _direct() -> bool:
    import kvikio.cufile_driver
    import kvikio.defaults

    return not kvikio.defaults.is_compat_mode_preferred() and bool(kvikio.cufile_driver.get("is_gds_available"))


@cache
def prepare_threads() -> None:
    """Tell kvikio how many threads to run."""
    import kvikio.defaults

    cores = len(os.sched_getaffinity(0))
    kvikio.defaults.set({"num_threads": max(1, min(THREADS, cores))})


def cut(start: int, target: Any) -> Iterator[tuple[int, Any]]:
    """A run of bytes, from its first one in a piece on, as parts that pinned memory has room for."""
    for at in range(0, len(target), PART_BYTES):
        yield start + at, target[at : at + PART_BYTES]


def send(file: Any, piece: Piece, runs: Iterable[tuple[int, Any]], ring: Ring | None, ahead: int) -> Generator[Any]:
    """Bring runs of bytes to a device, in order.

    Parameters
    ----------
    file
        The piece's, as kvikio opened it.
    piece
    runs
        First byte in the piece, and memory of the device, as bytes, to fill from there on; with a ring none is longer
        than a part. Each is asked for just before its memory may be written to.
    ring
        Pinned memory to go through.
    ahead
        Runs that are read while another one is waited for, without a ring; with one that depends on its parts.

    Yields
    ------
    The memory of each run, once its bytes are there: with a ring for what is put on the current stream from then on.

    Raises
    ------
    PipelineError
        If the file system refuses, or the file ended.
    """
    import cupy

    stream = cupy.cuda.get_current_stream()
    left = enumerate(runs)
    under_way: deque[_Read] = deque()

    def start(number: int) -> None:
        for index, (at, target) in islice(left, number):
            part = ring[index % len(ring)] if ring else None
            if part:
                part.fetched.synchronize()
            memory = part.memory[: len(target)] if part else target
            future = file.pread(memory, len(target), piece.offset + at, task_size=READ_BYTES if part else None)
            under_way.append(_Read(future, piece, at, target, part))

    try:
        start(len(ring) - 1 if ring else ahead)
        while under_way:
            read = under_way.popleft()
            read.wait()
            if read.part:
                read.target.set(read.part.memory[: len(read.target)], stream=stream)
                read.part.fetched.record(stream)
            start(1)
            yield read.target
    finally:
        for read in under_way:  # memory must not be given up while kvikio writes to it
            with suppress(RuntimeError):
                read.future.get()


@dataclass(frozen=True)
class _Read:
    """One run of bytes that kvikio reads."""

    future: Any
    piece: Piece
    at: int
    target: Any
    part: Part | None

    def wait(self) -> None:
        """Return when all bytes are there."""
        offset = self.piece.offset + self.at
        try:
            got = int(self.future.get())
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise PipelineError(f"{self.piece.path}: reading at byte {offset} failed: {reason}") from None
        if got != len(self.target):
            raise PipelineError(f"{self.piece.path}: shrank while it was read: ended at byte {offset + got}, expected "
                                f"{self.piece.size}; run again when nothing writes to it")  # fmt: skip
