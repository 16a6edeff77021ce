"""Stream a chunk to a GPU block by block through kvikio: reading, copying and counting overlap."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.chunks import Chunk, Piece
from pipeline.devices import find_devices
from pipeline.errors import PipelineError, UsageError
from pipeline.read import open_planned
from pipeline.timeline import Timeline

BLOCK_BYTES = 2**27  # one kernel launch; several kvikio tasks each; less where a limit of memory says so
LEAST_BLOCK_BYTES = 2**16
SLOTS = 2  # of a chunk: one being counted, one being filled
CHUNKS = 2  # under way on a GPU: while one begins or ends, the other keeps the bus busy
# Of one kvikio thread. On four H200s reading the page cache 4 MiB streams at 143 GB/s, 16 MiB at 106, 1 MiB at 108:
# what the threads have under way then fits into the last-level cache of the host.
TASK_BYTES = 2**22
THREADS = 16

_block_bytes = BLOCK_BYTES


def device_blocks(chunk: Chunk, timeline: Timeline) -> Iterator[Any]:
    """Blocks of a chunk in order, on the current device.

    Parameters
    ----------
    chunk
    timeline
        Gets, for each block, a span ``"read+copy"`` from the arrival of the one before it, and a span ``"kernel"`` for
        the work that the caller puts on the current stream. NVTX ranges have the same names.

    Yields
    ------
    CuPy array of the native ``chunk.dtype``, shape (n,)
        Valid, on the current stream, until the next one is asked for.

    Raises
    ------
    PipelineError
        If a file cannot be read or is no longer the one that was planned.
    """
    import cupy
    import kvikio

    prepare_threads()
    native = chunk.dtype.newbyteorder("=")
    with _lane() as slots:
        began, ended = cupy.cuda.Event(), cupy.cuda.Event()
        for piece in chunk.pieces:
            with open_planned(piece), kvikio.CuFile(piece.path, "r") as file:
                step = len(slots[0]) // native.itemsize * native.itemsize
                regions = [(start, min(step, piece.nbytes - start)) for start in range(0, piece.nbytes, step)]
                under_way: deque[Transfer] = deque()
                before = perf_counter()
                try:
                    for number in range(len(regions) + SLOTS - 1):
                        if number < len(regions):
                            start, length = regions[number]
                            under_way.append(transfer(file, piece, start, slots[number % SLOTS][:length]))
                        if number < SLOTS - 1:
                            continue
                        with _range("read+copy"):
                            block = under_way.popleft().result().view(native)
                        now = perf_counter()
                        timeline.add("read+copy", before, now - before, block.nbytes)
                        before = now
                        began.record()
                        with _range("kernel"):
                            yield to_native(block, chunk.dtype)
                        ended.record()
                        # The slot is filled again next: what reads it has to be done. Another transfer is under way.
                        ended.synchronize()
                        timeline.add("kernel", now, cupy.cuda.get_elapsed_time(began, ended) / 1000, block.nbytes)
                finally:
                    finish(under_way)  # a buffer must not be given up while kvikio writes to it


@contextmanager
def _lane() -> Iterator[list[Any]]:
    """Buffers that nobody else uses meanwhile, and a stream of their own as the current one."""
    import cupy

    lanes = _lanes(int(cupy.cuda.runtime.getDevice()))
    stream, slots = lanes.get()
    try:
        with stream:
            yield slots
    finally:
        lanes.put((stream, slots))


@contextmanager
def _range(name: str) -> Iterator[None]:
    """Name what happens inside for Nsight Systems."""
    from cupy.cuda import nvtx

    nvtx.RangePush(name)
    try:
        yield
    finally:
        nvtx.RangePop()


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
    future = file.pread(target, len(target), piece.offset + start, task_size=TASK_BYTES)
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


def to_native(block: Any, dtype: np.dtype[Any]) -> Any:
    """Swap the bytes of each sample on the device where the file has the other order."""
    import cupy

    if dtype.isnative:
        return block
    swapped = block.view(cupy.uint8).reshape(-1, dtype.itemsize)[:, ::-1]
    return cupy.ascontiguousarray(swapped).reshape(-1).view(block.dtype)


def prepare() -> None:
    """Get ready to stream to the current device: context, buffers, threads. The first block waits for it otherwise."""
    import cupy

    prepare_threads()
    _lanes(int(cupy.cuda.runtime.getDevice()))


def block_bytes_within(limit: int) -> int:
    """Bytes of a block, so that all buffers of a device take half of a limit of its memory; kernels have the rest.

    Raises
    ------
    UsageError
        If blocks would be so small that it is no use.
    """
    nbytes = min(BLOCK_BYTES, limit // (2 * CHUNKS * SLOTS) // LEAST_BLOCK_BYTES * LEAST_BLOCK_BYTES)
    if nbytes < LEAST_BLOCK_BYTES:
        raise UsageError(f"--device-memory-limit: expected at least {2 * CHUNKS * SLOTS * LEAST_BLOCK_BYTES} bytes, "
                         f"got {limit}")  # fmt: skip
    return nbytes


def use_blocks(nbytes: int = BLOCK_BYTES) -> None:
    """Stream in blocks of so many bytes from now on; runs on a worker, also one that has no GPU."""
    global _block_bytes
    if nbytes != _block_bytes and find_devices().usable:
        release()
        _block_bytes = nbytes
        prepare()


def release() -> None:
    """Give up the buffers: a job that does not stream has other uses for the memory."""
    import cupy

    if _lanes.cache_info().currsize:
        _lanes.cache_clear()
        cupy.get_default_memory_pool().free_all_blocks()


@cache
def _lanes(device: int) -> SimpleQueue[tuple[Any, list[Any]]]:
    """Streams and buffers that live as long as the worker: making them would cost more than filling the buffers."""
    import cupy

    lanes: SimpleQueue[tuple[Any, list[Any]]] = SimpleQueue()
    for _ in range(CHUNKS):
        lanes.put((cupy.cuda.Stream(non_blocking=True), [cupy.empty(_block_bytes, cupy.uint8) for _ in range(SLOTS)]))
    return lanes


@cache
def prepare_threads() -> None:
    """Tell kvikio how many threads to run, and in what steps they read and write."""
    import kvikio.defaults

    cores = len(os.sched_getaffinity(0))
    kvikio.defaults.set({"num_threads": max(1, min(THREADS, cores)), "task_size": TASK_BYTES})
