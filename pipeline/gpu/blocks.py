"""Stream a chunk to a GPU block by block; reading, copying and computing overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from threading import Lock
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.common import memory
from kernels.common.decode import unpack
from pipeline.errors import UsageError
from pipeline.gpu.pinned import Checks
from pipeline.gpu.transfer import PINNED, Transfer, finish, opened, transfer, transfer_path, warm_up
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Chunk
from pipeline.storage.packed import PackedFiller
from pipeline.storage.pieces import AnyPiece, FilledPiece, Piece
from pipeline.timeline import Timeline

BLOCK_BYTES = 2**27  # one kernel launch, read in many parts; smaller under a memory limit
LEAST_BLOCK_BYTES = 2**16
SLOTS = 3  # of a chunk: one being computed, two being filled
CHUNKS = 2  # in flight per GPU: while one starts or ends, the other keeps the bus busy

_making = Lock()
_most = BLOCK_BYTES  # of this process: less if its device had no memory for more
_ready: dict[tuple[int, int], SimpleQueue[tuple[Any, list[Any]]]] = {}  # at most one, by device and bytes of a buffer


class CheckedBeside(Protocol):
    """Checks samples of a chunk beside their read."""

    checks: Checks

    def piece(self, start: int) -> Piece:
        """The piece that a sample of the chunk lies in."""

    def runs(self, start: int, samples: int) -> NDArray[np.int64]:
        """What to check of these samples of the chunk, all in one piece, as `pipeline.gpu.pinned.Beside` takes it."""


def device_blocks(
    chunk: Chunk, timeline: Timeline, nbytes: int = BLOCK_BYTES, beside: CheckedBeside | None = None
) -> Iterator[Any]:
    """Blocks of a chunk in order, on the current device.

    Parameters
    ----------
    chunk
    timeline
        Gets, for each block, a span ``"read+copy"`` from the arrival of the previous one, and a span ``"kernel"`` for
        the work that the caller launches on the current stream. NVTX ranges have the same names.
    nbytes
        Bytes per block.
    beside
        Is complete when the last block has been yielded; only where `checks_beside` says so.

    Yields
    ------
    CuPy array of the native ``chunk.dtype``, shape (n,)
        Valid, on the current stream, until the next one is requested.

    Raises
    ------
    PipelineError
        If a file cannot be read or is no longer the one that was planned.
    """
    import cupy

    warm_up()
    with _lane(nbytes) as slots:
        events = cupy.cuda.Event(), cupy.cuda.Event()
        start = 0  # first sample of the piece
        for piece in chunk.pieces:
            if run := _run_of(piece, chunk.dtype, len(slots[0])):
                timeline.transfer_paths.add(transfer_path())
                checked = _Checked(beside, start, chunk.dtype) if beside else None
                yield from _from_file(run, slots, events, timeline, checked)
            else:
                yield from _from_host(replace(chunk, pieces=(piece,)), slots, events, timeline)
            start += piece.nbytes // chunk.dtype.itemsize


def checks_beside(chunk: Chunk) -> bool:
    """Whether the samples of a chunk can be checked beside their read: they pass through memory as they are."""
    return chunk.plain and transfer_path() == PINNED


@dataclass(frozen=True)
class _Run:
    """Samples as a byte run of a file has them.

    Attributes
    ----------
    stored
    step
        Bytes of a block at most.
    samples
        (bytes of a block on the device, where they begin in the run) -> samples, in native byte order.
    """

    stored: Piece
    step: int
    samples: Callable[[Any, int], Any]


def _run_of(piece: AnyPiece, dtype: np.dtype[Any], nbytes: int) -> _Run | None:
    """Blocks of at most so many bytes, of samples; None if no byte run has them."""
    if isinstance(piece, Piece):
        native, itemsize = dtype.newbyteorder("="), dtype.itemsize
        return _Run(piece, nbytes // itemsize * itemsize, lambda raw, _: to_native(raw.view(native), dtype))
    if not isinstance(piece, FilledPiece) or not isinstance(piece.filler, PackedFiller):
        return None
    packing = piece.filler.packing
    stored, skipped = piece.filler.run(piece.start, piece.samples)

    def unpacked(raw: Any, first: int) -> Any:
        before = first // packing.group_bytes * packing.group - skipped  # samples of the piece before the block
        return unpack(raw, packing.bits, packing.signed, packing.big)[max(-before, 0) : piece.samples - before]

    return _Run(stored, nbytes // (packing.group * packing.dtype.itemsize) * packing.group_bytes, unpacked)


@dataclass(frozen=True)
class _Checked:
    """What is checked beside the read of a byte run of samples, which begins with the sample `start` of its chunk."""

    beside: CheckedBeside
    start: int
    dtype: np.dtype[Any]

    def runs(self, first: int, nbytes: int) -> NDArray[np.int64]:
        """Of a block, by its place in the run."""
        return self.beside.runs(self.start + first // self.dtype.itemsize, nbytes // self.dtype.itemsize)


def _from_file(
    run: _Run, slots: list[Any], events: tuple[Any, Any], timeline: Timeline, checked: _Checked | None
) -> Iterator[Any]:
    """Read ahead into the other slots while one is computed."""
    stored = run.stored
    starts = range(0, stored.nbytes, run.step)
    in_flight: deque[Transfer] = deque()
    with opened(stored, (checked.beside.checks, checked.beside.piece(checked.start)) if checked else None) as reading:
        before = perf_counter()
        try:
            for number in range(len(starts) + SLOTS - 1):
                if number < len(starts):
                    length = min(run.step, stored.nbytes - starts[number])
                    target = slots[number % SLOTS][:length]
                    checks = checked.runs(starts[number], length) if checked else None
                    in_flight.append(transfer(reading, stored, starts[number], np.array([[0, length]]), target, checks))
                if number < SLOTS - 1:
                    continue
                with _range("read+copy"):
                    raw = in_flight.popleft().result()
                now = perf_counter()
                timeline.add("read+copy", before, now - before, raw.nbytes)
                before = now
                # The slot is refilled next, so wait for the kernels that read it. Two transfers stay in flight.
                yield from _computed(partial(run.samples, raw, starts[number - SLOTS + 1]), events, timeline)
        finally:
            finish(in_flight)  # a buffer must not be released while something writes to it


def _from_host(chunk: Chunk, slots: list[Any], events: tuple[Any, Any], timeline: Timeline) -> Iterator[Any]:
    """Blocks that are decoded or filled in host memory, then copied to the device."""
    native = chunk.dtype.newbyteorder("=")
    step = len(slots[0]) // native.itemsize
    before = perf_counter()
    for samples in read_blocks(chunk, Timeline()):
        for start in range(0, len(samples), step):
            part = np.ascontiguousarray(samples[start : start + step])
            with _range("read+copy"):
                block = slots[0][: part.nbytes]
                block.set(part.view(np.uint8))
            now = perf_counter()
            timeline.add("read+copy", before, now - before, part.nbytes)
            yield from _computed(partial(to_native, block.view(native), chunk.dtype), events, timeline)
            before = perf_counter()


def _computed(samples: Callable[[], Any], events: tuple[Any, Any], timeline: Timeline) -> Iterator[Any]:
    """Make a block of samples and yield it, then wait for the kernels that the caller launched on it."""
    import cupy

    began, ended = events
    now = perf_counter()
    began.record()
    with _range("kernel"):
        block = samples()
        yield block
    ended.record()
    ended.synchronize()
    timeline.add("kernel", now, cupy.cuda.get_elapsed_time(began, ended) / 1000, block.nbytes)


@contextmanager
def _lane(nbytes: int) -> Iterator[list[Any]]:
    """Exclusive buffers of `nbytes`, with their own stream as the current one."""
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
    """Name a range for Nsight Systems."""
    from cupy.cuda import nvtx

    nvtx.RangePush(name)
    try:
        yield
    finally:
        nvtx.RangePop()


def to_native(block: Any, dtype: np.dtype[Any]) -> Any:
    """Swap the bytes of each sample on the device if the file has the other byte order."""
    import cupy

    if dtype.isnative:
        return block
    swapped = block.view(cupy.uint8).reshape(-1, dtype.itemsize)[:, ::-1]
    return cupy.ascontiguousarray(swapped).reshape(-1).view(block.dtype)


def block_bytes_within(limit: int) -> int:
    """Bytes per block such that all buffers of a device take half of its memory limit; kernels get the rest.

    Raises
    ------
    UsageError
        If blocks would be too small to be useful.
    """
    nbytes = min(BLOCK_BYTES, limit // (2 * CHUNKS * SLOTS) // LEAST_BLOCK_BYTES * LEAST_BLOCK_BYTES)
    if nbytes < LEAST_BLOCK_BYTES:
        raise UsageError(f"--device-memory-limit: expected at least {2 * CHUNKS * SLOTS * LEAST_BLOCK_BYTES} bytes, "
                         f"got {limit}")  # fmt: skip
    return nbytes


def release() -> None:
    """Free the buffers, for a job that does not stream or has another block size."""
    import cupy

    memory.release_pool()
    if _ready:
        _ready.clear()
        cupy.get_default_memory_pool().free_all_blocks()


def shrink() -> bool:
    """Free the buffers, and make blocks half as large from now on; False if they would be too small to be useful."""
    global _most
    with _making:
        if _most // 2 < LEAST_BLOCK_BYTES:
            return False
        _most //= 2
        release()
        return True


def _lanes(device: int, nbytes: int) -> SimpleQueue[tuple[Any, list[Any]]]:
    """Streams and buffers that live as long as the worker: allocating them costs more than filling them."""
    import cupy

    with _making:
        nbytes = min(nbytes, _most)
        if (device, nbytes) not in _ready:
            release()
            lanes: SimpleQueue[tuple[Any, list[Any]]] = SimpleQueue()
            for _ in range(CHUNKS):
                stream = cupy.cuda.Stream(non_blocking=True)
                lanes.put((stream, [cupy.empty(nbytes, cupy.uint8) for _ in range(SLOTS)]))
            _ready[device, nbytes] = lanes
        return _ready[device, nbytes]
