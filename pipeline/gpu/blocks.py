"""Stream a chunk to a GPU block by block: reading, copying and counting overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np

from kernels.common import memory
from pipeline.errors import UsageError
from pipeline.gpu.transfer import Transfer, finish, opened, prepare, transfer, way
from pipeline.storage.chunks import Chunk
from pipeline.timeline import Timeline

BLOCK_BYTES = 2**27  # one kernel launch; many parts each; less where a limit of memory says so
LEAST_BLOCK_BYTES = 2**16
SLOTS = 3  # of a chunk: one being counted, two being filled
CHUNKS = 2  # under way on a GPU: while one begins or ends, the other keeps the bus busy

_making = Lock()
_ready: dict[tuple[int, int], SimpleQueue[tuple[Any, list[Any]]]] = {}  # one at most: by device and bytes of a buffer


def device_blocks(chunk: Chunk, timeline: Timeline, nbytes: int = BLOCK_BYTES) -> Iterator[Any]:
    """Blocks of a chunk in order, on the current device.

    Parameters
    ----------
    chunk
    timeline
        Gets, for each block, a span ``"read+copy"`` from the arrival of the one before it, and a span ``"kernel"`` for
        the work that the caller puts on the current stream. NVTX ranges have the same names.
    nbytes
        Bytes of a block.

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

    prepare()
    native = chunk.dtype.newbyteorder("=")
    with _lane(nbytes) as slots:
        timeline.transfer_paths.add(way())
        began, ended = cupy.cuda.Event(), cupy.cuda.Event()
        for piece in chunk.pieces:
            with opened(piece) as reading:
                step = len(slots[0]) // native.itemsize * native.itemsize
                starts = range(0, piece.nbytes, step)
                under_way: deque[Transfer] = deque()
                before = perf_counter()
                try:
                    for number in range(len(starts) + SLOTS - 1):
                        if number < len(starts):
                            length = min(step, piece.nbytes - starts[number])
                            target = slots[number % SLOTS][:length]
                            under_way.append(transfer(reading, piece, starts[number], np.array([[0, length]]), target))
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
                    finish(under_way)  # a buffer must not be given up while something writes to it


@contextmanager
def _lane(nbytes: int) -> Iterator[list[Any]]:
    """Buffers of so many bytes that nobody else uses meanwhile, and a stream of their own as the current one."""
    import cupy

    lanes = _lanes(int(cupy.cuda.runtime.getDevice()), nbytes)
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


def to_native(block: Any, dtype: np.dtype[Any]) -> Any:
    """Swap the bytes of each sample on the device where the file has the other order."""
    import cupy

    if dtype.isnative:
        return block
    swapped = block.view(cupy.uint8).reshape(-1, dtype.itemsize)[:, ::-1]
    return cupy.ascontiguousarray(swapped).reshape(-1).view(block.dtype)


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


def release() -> None:
    """Give up the buffers: a job that does not stream, or in other blocks, has other uses for the memory."""
    import cupy

    memory.release_pool()
    if _ready:
        _ready.clear()
        cupy.get_default_memory_pool().free_all_blocks()


def _lanes(device: int, nbytes: int) -> SimpleQueue[tuple[Any, list[Any]]]:
    """Streams and buffers that live as long as the worker: making them would cost more than filling the buffers."""
    import cupy

    with _making:
        if (device, nbytes) not in _ready:
            release()
            lanes: SimpleQueue[tuple[Any, list[Any]]] = SimpleQueue()
            for _ in range(CHUNKS):
                stream = cupy.cuda.Stream(non_blocking=True)
                lanes.put((stream, [cupy.empty(nbytes, cupy.uint8) for _ in range(SLOTS)]))
            _ready[device, nbytes] = lanes
        return _ready[device, nbytes]
