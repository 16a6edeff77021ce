"""Stream a chunk to a GPU block by block: reading, copying and counting overlap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from queue import SimpleQueue
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.chunks import Chunk
from pipeline.errors import UsageError
from pipeline.read import open_planned
from pipeline.timeline import Timeline
from pipeline.transfer import Ring, cut, pinned, prepare_threads, send, way

BLOCK_BYTES = 2**27  # one kernel launch; several parts each; less where a limit of memory says so
LEAST_BLOCK_BYTES = 2**16
SLOTS = 2  # of a chunk: one being counted, one being filled
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
    import kvikio

    prepare_threads()
    native = chunk.dtype.newbyteorder("=")
    with _lane(nbytes) as slots, pinned() as ring:
        timeline.ways.add(way(ring))
        step = nbytes // native.itemsize * native.itemsize
        kernels = [(cupy.cuda.Event(), cupy.cuda.Event()) for _ in slots]  # before and after it, by the slot it reads
        for piece in chunk.pieces:
            blocks = [slots[number % SLOTS][: min(step, piece.nbytes - start)]
                      for number, start in enumerate(range(0, piece.nbytes, step))]  # fmt: skip
            runs = _runs(blocks, step, ring, kernels)
            with (
                open_planned(piece),
                kvikio.CuFile(piece.path, "r") as file,
                closing(send(file, piece, runs, ring, SLOTS - 1)) as sent,
            ):
                before = perf_counter()
                launched: list[tuple[float, int]] = []
                for number, block in enumerate(blocks):
                    with _range("read+copy"):
                        missing = len(block)
                        while missing:
                            missing -= len(next(sent))
                    now = perf_counter()
                    timeline.add("read+copy", before, now - before, len(block))
                    before = now
                    began, ended = kernels[number % SLOTS]
                    began.record()
                    with _range("kernel"):
                        yield to_native(block.view(native), chunk.dtype)
                    ended.record()
                    launched.append((now, len(block)))
                    if number:
                        _add_kernel(timeline, launched[number - 1], kernels[(number - 1) % SLOTS])
                _add_kernel(timeline, launched[-1], kernels[(len(blocks) - 1) % SLOTS])


def _runs(blocks: list[Any], step: int, ring: Ring | None, kernels: list[tuple[Any, Any]]) -> Iterator[tuple[int, Any]]:
    """What is read of a piece for its blocks, the one in a slot when no kernel reads the one before it there."""
    for number, block in enumerate(blocks):
        if ring:  # the stream has copies wait for kernels
            yield from cut(number * step, block)
            continue
        if number >= SLOTS:
            kernels[number % SLOTS][1].synchronize()
        yield number * step, block


def _add_kernel(timeline: Timeline, launched: tuple[float, int], kernel: tuple[Any, Any]) -> None:
    """Wait for what was done with a block, and count what it took."""
    import cupy

    (now, nbytes), (began, ended) = launched, kernel
    ended.synchronize()
    timeline.add("kernel", now, cupy.cuda.get_elapsed_time(began, ended) / 1000, nbytes)


@contextmanager
def _lane(nbytes: int) -> Iterator[list[Any]]:
    """Buffers of so many bytes that nobody else uses meanwhile, and a stream of their own as the current one."""
    import cupy

    lanes = _lanes(int(cupy.cuda.runtime.getDevice()), nbytes)
    stream, slots = lanes.get()
    try:
        with stream:
            try:
                yield slots
            finally:
                stream.synchronize()
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
