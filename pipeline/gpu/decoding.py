"""A batch of slabs: where its stored chunks lie, and how the device decodes all of them at once.

Where a device cannot decompress a chunk the host decodes its slab: its decoders name the error.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common.checksums import agree
from kernels.common.decompress import decompress
from kernels.common.memory import empty, to_pinned, zeros
from kernels.common.stored_samples import unshuffle
from pipeline.gpu.loads import Begun, to_native
from pipeline.gpu.slabs import Plan, counts_of
from pipeline.gpu.transfer import gather
from pipeline.storage.pieces import Piece


class Room(NamedTuple):
    """Bytes of a device for batches.

    Attributes
    ----------
    buffer
        Of a buffer for blocks, which has to hold the stored chunks of a batch.
    decoded
        That decompressing a batch may take besides.
    ahead
        Whether there are as many again, so that the next batch can be decompressed while one is counted.
    limit
        That CuPy's pool may have.
    """

    buffer: int
    decoded: int
    ahead: bool
    limit: int


class Batch:
    """Slabs that are decompressed together.

    Parameters
    ----------
    plans
        In order, at least one, all of the same scheme.
    files
        That their chunks are stored in, and perhaps others.
    table
        Where these are, as `pipeline.storage.formats.places.Stored.table` has it.
    room
        For it.

    Attributes
    ----------
    chunks, counts
        Number of chunks, also of missing ones: of all, and of each slab.
    absent
        Numbers of the missing ones.
    present
        Numbers of the others, by file and offset.
    sizes
        Bytes of these as they are stored.
    starts
        Where each of these begins in the buffer, and where the last one ends.
    files
        That these are stored in.
    runs
        Byte runs of these, as `pipeline.gpu.transfer.gather` takes them. Those that lie one after another are one:
        thousands of reads of some KiB each would take longer than the bus.
    in_order
        Whether the samples of all pieces lie one after another in the decoded chunks.
    """

    def __init__(self, plans: Sequence[Plan], files: Sequence[Piece], table: NDArray[np.int64], room: Room) -> None:
        self.plans, self.scheme, self.room, self.chunks = plans, plans[0].scheme, room, len(table)
        self.counts = counts_of(plans)
        self.absent = np.flatnonzero(table[:, 0] < 0)
        self.present = np.arange(self.chunks)
        if len(self.absent):
            self.present = np.delete(self.present, self.absent)
            table = table[self.present]
        edges, sorted_ = _edges(table)
        if not sorted_:
            order = np.lexsort((table[:, 1], table[:, 0]))
            self.present, table = self.present[order], table[order]
            edges, _ = _edges(table)
        self.sizes = table[:, 2]
        self.starts = np.zeros(len(table) + 1, np.int64)
        np.cumsum(self.sizes, out=self.starts[1:])
        numbers, offsets, _ = table[edges[:-1]].T
        others = np.concatenate([[True], numbers[1:] != numbers[:-1]])
        self.files = tuple(files[number] for number in numbers[others].tolist())
        self.runs = np.array([np.cumsum(others) - 1, offsets, np.diff(self.starts[edges])]).T
        whole = [plan.piece.nbytes for plan in plans[:-1]] == (self.counts[:-1] * self.scheme.chunk_bytes).tolist()
        self.in_order = whole and plans[-1].in_order

    def begin(self, order: int, slot: Any) -> Begun:
        """Start to read the stored chunks into a buffer on the device; `order` as `pipeline.gpu.transfer.opened` has
        it."""
        return gather(self.files, self.runs, slot[: int(self.starts[-1])], order), self.decoding

    def decoding(self, stored: Any) -> Decoding:
        """Start to decompress stored chunks on the device, after what is on the current stream."""
        return Decoding(self, stored)


def _edges(table: NDArray[np.int64]) -> tuple[NDArray[np.int64], bool]:
    """Numbers of the chunks with which byte runs begin, and behind the last one; and whether chunks are in order."""
    files, offsets, sizes = table.T
    edges = 1 + np.flatnonzero((files[1:] != files[:-1]) | (offsets[1:] != offsets[:-1] + sizes[:-1]))
    before, behind = table[edges - 1].T, table[edges].T  # those inside of a run are in order
    in_order = (behind[0] > before[0]) | (behind[0] == before[0]) & (behind[1] >= before[1])
    return np.concatenate([[0], edges, [len(table)]]), bool(in_order.all())


class Decoding:
    """Chunks of a batch that the device decompresses, beside the current stream.

    Attributes
    ----------
    began
        A CUDA event; None unless it is done ahead.
    decoded
        The event with which it ended.
    """

    def __init__(self, batch: Batch, stored: Any) -> None:
        import cupy

        self._batch = batch
        allocated, nbytes = zeros if len(batch.absent) else empty, batch.chunks * batch.scheme.chunk_bytes
        _make_room(nbytes, batch.room.limit)
        self._flat: Any = allocated("decompress", nbytes, np.uint8)
        lane = cupy.cuda.get_current_stream()
        streams = _streams_beside(lane.ptr, int(cupy.cuda.runtime.getDevice()))
        if batch.room.ahead:
            streams.rotate()
        with streams[0] as beside:
            beside.wait_event(lane.record())  # the memory may be that of samples that are being counted
            self.began = beside.record() if batch.room.ahead else None
            try:
                self._right = start(batch, stored, self._flat)
                self.decoded = beside.record()
            except BaseException:  # there may be no memory for its arguments
                beside.synchronize()
                raise

    def get(self) -> None:
        """Wait until the device has ended; RuntimeError if it is lost."""
        self.decoded.synchronize()

    def samples(self) -> Any:
        """Samples of all pieces, in native byte order; on the current stream."""
        batch, dtype = self._batch, self._batch.scheme.dtype
        flat, wrong = self._decompressed()
        if batch.in_order and not len(wrong):
            last = (batch.chunks - batch.counts[-1]) * batch.scheme.chunk_bytes // dtype.itemsize
            wanted = slice(batch.plans[0].wanted.start, int(last) + batch.plans[-1].wanted.stop)
            return to_native(flat.view(dtype.newbyteorder("="))[wanted], dtype)
        _make_room(2 * flat.nbytes, batch.room.limit)
        ends = (np.cumsum(batch.counts) * batch.scheme.chunk_bytes).tolist()
        parts = (
            plan.decoded_on_host() if number in wrong else to_native(plan.samples(flat[begin:end]), dtype)
            for number, (plan, begin, end) in enumerate(zip(batch.plans, [0, *ends], ends, strict=False))
        )
        if len(batch.plans) == 1:
            return next(parts)
        nbytes, native = sum(plan.piece.nbytes for plan in batch.plans), dtype.newbyteorder("=")
        out = empty("decompress", nbytes // dtype.itemsize, native)
        filled = 0
        for part in parts:
            out[filled : filled + len(part)] = part
            filled += len(part)
        return out

    def _decompressed(self) -> tuple[Any, NDArray[np.int64]]:
        """Bytes of all chunks, one after another, and numbers of the slabs with chunks that are not right."""
        import cupy

        batch, scheme, flat, self._flat = self._batch, self._batch.scheme, self._flat, None
        self.get()
        right = np.logical_and.reduce(self._right)
        if scheme.unshuffled:
            _make_room(flat.nbytes, batch.room.limit)
            flat = unshuffle(flat, scheme.unshuffled, scheme.chunk_bytes)
        if len(batch.absent):
            itemsize = scheme.dtype.itemsize
            samples = flat.reshape(-1, scheme.chunk_bytes // itemsize, itemsize)
            samples[cupy.asarray(batch.absent)] = cupy.asarray(np.frombuffer(scheme.fill, np.uint8))
        return flat, np.searchsorted(np.cumsum(batch.counts), batch.present[~right], "right")


def start(batch: Batch, stored: Any, out: Any) -> list[NDArray[np.uint8]]:
    """Start to decompress the chunks of a batch into `out`, on the current stream.

    Returns
    -------
    Pinned memory, for each chunk that is not missing; once the stream has come there, what is right has no 0 in any.
    """
    scheme, starts, sizes = batch.scheme, batch.starts[:-1], batch.sizes
    right = [decompress(stored, starts, sizes - scheme.tail, out, batch.present, scheme.chunk_bytes, scheme.codec)]
    if scheme.checksum:
        right.append(agree(stored, starts, sizes, scheme.checksum))
    return [to_pinned(one) for one in right]


def _make_room(nbytes: int, limit: int) -> None:
    """Free what CuPy's pool keeps for other streams and sizes, if it may have no more than `limit` bytes."""
    import cupy

    if limit < sys.maxsize and (pool := cupy.get_default_memory_pool()).total_bytes() + nbytes > limit:
        pool.free_all_blocks()


@cache
def _streams_beside(lane: int, device: int) -> deque[Any]:
    """Two streams of the default priority for what decompresses in a lane, whose stream has a higher one: thousands of
    blocks would otherwise keep the device, milliseconds each time, from what is counted."""
    import cupy

    return deque(cupy.cuda.Stream(non_blocking=True) for _ in range(2))
