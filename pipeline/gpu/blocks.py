"""Stream a chunk to a GPU block by block; reading, copying and computing overlap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import chain, groupby, islice, repeat
from queue import Empty, SimpleQueue
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.common import memory
from pipeline.errors import UsageError
from pipeline.gpu import resident
from pipeline.gpu.buffered import buffered_blocks, computed
from pipeline.gpu.loads import DECODED, Begun, CheckedBeside, is_packed, loads_of, packed_loads, to_native
from pipeline.gpu.transfer import FIRST, PINNED, next_order, transfer_path, warm_up
from pipeline.storage.blocks import decoded_ahead, read_blocks
from pipeline.storage.chunks import Chunk
from pipeline.storage.pieces import AnyPiece, BlockPiece, FilledPiece, Piece, RemotePiece
from pipeline.timeline import Timeline, stage_range

if TYPE_CHECKING:
    from pipeline.gpu.decoding import Batch

BLOCK_BYTES = 2**27  # one kernel launch, read in many parts; smaller under a memory limit
LEAST_BLOCK_BYTES = 2**16
SLOTS = 3  # of a chunk: one being computed, two being filled
LOOK_SECONDS = 1.0  # between two looks whether the buffers that a chunk waits for are still those in use
RESIDENT = "resident on the device"  # how the blocks of a later pass came there
CHUNKS = 2  # in flight per GPU: while one starts or ends, the other keeps the bus busy
URGENT = -1  # priority of the lanes' streams, above what decompresses
AHEAD = 1  # chunks that are planned, and then wait for buffers: Dask takes milliseconds to start a task

_making = Lock()
_most = BLOCK_BYTES  # of this process: less if its device had no memory for more
_ready: dict[tuple[int, int], SimpleQueue[tuple[Any, list[Any]]]] = {}  # at most one, by device and bytes of a buffer


def device_blocks(
    chunk: Chunk, timeline: Timeline, nbytes: int = BLOCK_BYTES, beside: CheckedBeside | None = None,
    spare: int = sys.maxsize,
) -> Iterator[Any]:  # fmt: skip
    """Blocks of a chunk in order, on the current device.

    Parameters
    ----------
    chunk
    timeline
        Gets, for each block, a span ``"read+copy"`` from the arrival of the previous one, and a span ``"kernel"`` for
        decoding it on the device and for the work that the caller launches on the current stream. NVTX ranges have the
        same names.
    nbytes
        Bytes per block as it is stored.
    beside
        Is complete when the last block has been yielded; only where `checks_beside` says so.
    spare
        Bytes of the device that decompressing may take.

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
    expected = min(nbytes, _most)
    parts = _parts(chunk, expected, spare)
    parts = chain([*islice(parts, SLOTS)], parts)  # what the buffers take is planned before it waits for them
    with _lane(nbytes) as slots:
        if len(slots[0]) != expected:
            parts = _parts(chunk, len(slots[0]), spare)
        events = cupy.cuda.Event(), cupy.cuda.Event()
        order = next_order()  # if chunks took turns, they would end together
        for kind, group in groupby(parts, _kind):
            if kind is Kind.LOADED:
                loads = _loads(group, chunk.dtype, len(slots[0]), beside, order, timeline)
                yield from buffered_blocks(loads, slots, events, timeline)
                continue
            pieces = tuple(part for part in group if isinstance(part, AnyPiece))
            # Together, since remote objects are requested ahead, and blocks are decoded ahead.
            together = kind is Kind.REMOTE or all(isinstance(piece, BlockPiece) for piece in pieces)
            for some in [pieces] if together else zip(pieces, strict=True):
                yield from _from_host(replace(chunk, pieces=some), slots, events, timeline)


def _loads(
    parts: Iterable[Batch | AnyPiece], dtype: np.dtype[Any], nbytes: int, beside: CheckedBeside | None, order: int,
    timeline: Timeline,
) -> Iterator[Callable[[Any], Begun]]:  # fmt: skip
    """What begins to read each block into a buffer of `nbytes`; a block has as much as fits."""
    for kind, some in groupby(parts, type):
        if kind is Piece:
            timeline.transfer_paths.add(transfer_path())
            yield from loads_of((part for part in some if isinstance(part, Piece)), dtype, nbytes, beside, order)
        elif kind is FilledPiece:
            timeline.transfer_paths.add(transfer_path())
            yield from (
                begin for part in some if isinstance(part, FilledPiece) for begin in packed_loads(part, nbytes, order)
            )
        else:
            from pipeline.gpu.batches import DECOMPRESSED

            timeline.transfer_paths.add(f"{transfer_path()}, {DECOMPRESSED}")
            # A lane has nothing to decode before its first batches have come; others have.
            orders = chain(repeat(FIRST, DECODED), repeat(order))
            yield from (partial(part.begin, next(orders)) for part in some if not isinstance(part, AnyPiece))


def resident_blocks(run: str, chunk: Chunk, timeline: Timeline, nbytes: int) -> Iterator[Any]:
    """As `device_blocks`; blocks stay on the device for later passes of the run, if there is room."""
    import cupy

    place = int(cupy.cuda.runtime.getDevice()), chunk.start, chunk.samples
    blocks = resident.kept(run, place)
    if blocks is None:
        yield from resident.keeping(run, place, device_blocks(chunk, timeline, nbytes))
        return
    timeline.transfer_paths.add(RESIDENT)
    with _lane(nbytes):
        events = cupy.cuda.Event(), cupy.cuda.Event()
        for block in blocks:
            yield from computed(partial(to_native, block, chunk.dtype.newbyteorder("=")), events, timeline)


def checks_beside(chunk: Chunk) -> bool:
    """Whether the samples of a chunk can be checked beside their read: they pass through memory as they are."""
    return chunk.plain and transfer_path() == PINNED


def _from_host(chunk: Chunk, slots: list[Any], events: tuple[Any, Any], timeline: Timeline) -> Iterator[Any]:
    """Blocks that are decoded or filled in host memory, then copied to the device."""
    native = chunk.dtype.newbyteorder("=")
    step = len(slots[0]) // native.itemsize
    before = perf_counter()
    blocks = [piece for piece in chunk.pieces if isinstance(piece, BlockPiece)]
    for samples in decoded_ahead(blocks, chunk.dtype) if blocks else read_blocks(chunk, Timeline()):
        for start in range(0, len(samples), step):
            part = np.ascontiguousarray(samples[start : start + step])
            with stage_range("read+copy"):
                block = slots[0][: part.nbytes]
                block.set(part.view(np.uint8))
            now = perf_counter()
            timeline.add("read+copy", before, now - before, part.nbytes)
            yield from computed(partial(to_native, block.view(native), chunk.dtype), events, timeline)
            before = perf_counter()


def _parts(chunk: Chunk, nbytes: int, spare: int) -> Iterator[Batch | AnyPiece]:
    """As `pipeline.gpu.batches.batches`, which is imported, as all of formats, only for chunks of one."""
    if not any(isinstance(piece, BlockPiece) for piece in chunk.pieces):
        return iter(chunk.pieces)
    from pipeline.gpu.batches import batches

    limit = sys.maxsize if spare == sys.maxsize else CHUNKS * (SLOTS * nbytes + spare)
    return batches(chunk.pieces, chunk.dtype, nbytes, spare, limit)


class Kind(Enum):
    """How parts of a chunk come to the device."""

    LOADED, REMOTE, FROM_HOST = range(3)


def _kind(part: Batch | AnyPiece) -> Kind:
    if isinstance(part, RemotePiece):
        return Kind.REMOTE
    if isinstance(part, Piece) or not isinstance(part, AnyPiece) or is_packed(part):
        return Kind.LOADED
    return Kind.FROM_HOST


@contextmanager
def _lane(nbytes: int) -> Iterator[list[Any]]:
    """Exclusive buffers of `nbytes`, with their own stream as the current one."""
    import cupy

    device = int(cupy.cuda.runtime.getDevice())
    lanes, lane = _lanes(device, nbytes), None
    while lane is None or lanes is not _lanes(device, nbytes):  # given up meanwhile, since there was no memory
        lanes, lane = _lanes(device, nbytes), None
        with suppress(Empty):
            lane = lanes.get(timeout=LOOK_SECONDS)
    stream, slots = lane
    try:
        with stream:
            yield slots
    finally:
        lanes.put(lane)


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


def spare_bytes_within(limit: int) -> int:
    """Bytes of a memory limit that each chunk in flight has besides its buffers, of `block_bytes_within` it."""
    return limit // CHUNKS - SLOTS * block_bytes_within(limit)


def release() -> None:
    """Free the buffers and what is kept, for a job that does not stream or has another block size."""
    import cupy

    resident.forget()
    memory.release_pool()
    if _ready:
        _ready.clear()
        cupy.get_default_memory_pool().free_all_blocks()


def shrink() -> bool:
    """Make room: free what is kept, or else the buffers, and make blocks half as large from now on.

    False if blocks would be too small to be useful.
    """
    global _most
    if resident.make_room():
        return True
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
                stream = cupy.cuda.Stream(non_blocking=True, priority=URGENT)
                lanes.put((stream, [cupy.empty(nbytes, cupy.uint8) for _ in range(SLOTS)]))
            _ready[device, nbytes] = lanes
        return _ready[device, nbytes]
