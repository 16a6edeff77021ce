"""Stream a chunk to the CPU block by block through one reused buffer: the counterpart of `pipeline.gpu.blocks`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.once import once_per_process
from pipeline.errors import PipelineError
from pipeline.storage.chunks import Chunk
from pipeline.storage.page_cache import Fetching, request
from pipeline.storage.pieces import AnyPiece, BlockPiece, EncodedPiece, FilledPiece, Piece, RemotePiece, WholePiece
from pipeline.storage.planned_file import fill, open_planned, stored_bytes
from pipeline.storage.remote.ahead import cut, read_ahead
from pipeline.storage.scratch import aligned_empty
from pipeline.threads import cores
from pipeline.timeline import Timeline

BLOCK_BYTES = 2**21  # still in the cache when it is computed; Python's overhead is a tenth of the time
DECODED_BYTES = 2**27  # of samples that are decoded ahead, if one piece has no more
AHEAD_BYTES = 2**25  # read-ahead to request, so that disk and CPU overlap without a second thread


def read_blocks(chunk: Chunk, timeline: Timeline, fetching: Fetching | None = None) -> Iterator[NDArray[Any]]:
    """Blocks of a chunk in order.

    Parameters
    ----------
    chunk
    timeline
        Gets a span ``"read"`` for each block; an encoded block is read and decoded whole within its first span. Of
        remote pieces it is the time that was waited: they are read ahead.
    fetching
        Measures the reads of byte runs of files.

    Yields
    ------
    array of ``chunk.dtype``, shape (n,)
        Valid until the next one is requested.

    Raises
    ------
    PipelineError
        If a file cannot be read, is no longer the one that was planned, or cannot be decoded.
    """
    itemsize = chunk.dtype.itemsize
    buffer = aligned_empty(min(BLOCK_BYTES // itemsize * itemsize, chunk.nbytes)).data
    fetching = fetching or Fetching()
    arriving = read_ahead(_requests(chunk.pieces, itemsize))
    for piece in chunk.pieces:
        if isinstance(piece, Piece):
            yield from _stored(piece, chunk.dtype, buffer, timeline, fetching)
        elif isinstance(piece, RemotePiece):
            yield from _arrived(piece, chunk.dtype, arriving, timeline)
        elif isinstance(piece, WholePiece):
            yield from _decoded(piece, chunk.dtype, len(buffer), timeline, arriving)
        else:
            yield from _filled(piece, np.frombuffer(buffer, chunk.dtype), timeline)


def _stored(
    piece: Piece, dtype: np.dtype[Any], buffer: memoryview, timeline: Timeline, fetching: Fetching
) -> Iterator[NDArray[Any]]:
    with open_planned(piece) as fd:
        for start in range(0, piece.nbytes, len(buffer)):
            block = buffer[: min(len(buffer), piece.nbytes - start)]
            with timeline.measure("read", len(block)), fetching.reading():
                if start % AHEAD_BYTES < len(buffer):
                    request(fd, piece.offset + start, min(2 * AHEAD_BYTES, piece.nbytes - start))
                fill(fd, block, piece, start)
            yield np.frombuffer(block, dtype)


def _requests(pieces: Sequence[AnyPiece], itemsize: int) -> Iterator[Piece]:
    """What is requested of remote objects, in the order in which it is used."""
    for piece in pieces:
        if isinstance(piece, RemotePiece):
            yield from cut(piece.stored, itemsize)
        elif isinstance(piece, EncodedPiece) and piece.stored.remote:
            yield piece.stored


def _arrived(
    piece: RemotePiece, dtype: np.dtype[Any], arriving: Iterator[memoryview], timeline: Timeline
) -> Iterator[NDArray[Any]]:
    for part in cut(piece.stored, dtype.itemsize):
        with timeline.measure("read", part.nbytes):
            samples = np.empty(part.nbytes // dtype.itemsize, dtype)  # aligned, which an answer need not be
            samples.view(np.uint8)[...] = next(arriving)
        yield samples


def _decoded(
    piece: WholePiece, dtype: np.dtype[Any], nbytes: int, timeline: Timeline, arriving: Iterator[memoryview]
) -> Iterator[NDArray[Any]]:
    step = nbytes // dtype.itemsize
    with timeline.measure("read", piece.nbytes):
        first = piece.first // dtype.itemsize
        samples = decode_whole(piece, dtype, arriving)[first : first + piece.nbytes // dtype.itemsize]
    for start in range(0, len(samples), step):
        yield samples[start : start + step]


def decoded_ahead(pieces: Iterable[BlockPiece], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """Samples of each piece, in order, decoded by all cores ahead of a device, which is faster than one thread.

    Raises
    ------
    PipelineError
        As of `decode_whole`.
    """
    under_way: deque[tuple[BlockPiece, Future[NDArray[Any]]]] = deque()
    waiting = 0  # bytes
    try:
        for piece in pieces:
            while under_way and waiting + piece.decoded > DECODED_BYTES:
                waiting -= under_way[0][0].decoded
                yield _result(*under_way.popleft(), dtype)
            under_way.append((piece, _decoding_threads().submit(decode_whole, piece, dtype)))
            waiting += piece.decoded
        while under_way:
            yield _result(*under_way.popleft(), dtype)
    finally:
        for _, future in under_way:
            future.cancel()


def _result(piece: BlockPiece, future: Future[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    first = piece.first // dtype.itemsize
    return future.result()[first : first + piece.nbytes // dtype.itemsize]


@once_per_process
def _decoding_threads() -> ThreadPoolExecutor:
    """They live as long as the process."""
    return ThreadPoolExecutor(cores(), "decode")


def decode_whole(piece: WholePiece, dtype: np.dtype[Any], arriving: Iterator[memoryview] | None = None) -> NDArray[Any]:
    """All samples of a block, which is read and decoded.

    Parameters
    ----------
    piece, dtype
    arriving
        Has the stored bytes next if they were requested ahead.

    Raises
    ------
    PipelineError
        If it cannot be read or decoded.
    """
    try:
        if isinstance(piece, EncodedPiece):
            ahead = arriving if piece.stored.remote else None
            samples = piece.decode(next(ahead or stored_bytes((piece.stored,))))
        else:
            samples = piece.block.read()
    except PipelineError:
        raise
    except Exception as error:  # each decoder raises errors of its own
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise PipelineError(f"{piece.where()}: expected a block that can be decoded, got {reason}; is the file "
                            "complete?") from error  # fmt: skip
    if samples.dtype != dtype or samples.ndim != 1 or samples.nbytes != piece.decoded:
        raise PipelineError(f"{piece.where()}: expected {piece.decoded // dtype.itemsize} samples of {dtype} in the "
                            f"block, got shape {samples.shape} of {samples.dtype}; is the file complete?")  # fmt: skip
    return samples


def _filled(piece: FilledPiece, buffer: NDArray[Any], timeline: Timeline) -> Iterator[NDArray[Any]]:
    for start in range(0, piece.samples, len(buffer)):
        block = buffer[: piece.samples - start]
        with timeline.measure("read", block.nbytes):
            piece.filler.fill(piece.start + start, block)
        yield block
