"""Stream a chunk to the CPU block by block through one reused buffer: the counterpart of `pipeline.gpu.blocks`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError
from pipeline.storage.chunks import Chunk
from pipeline.storage.pieces import EncodedPiece, FilledPiece, Piece, WholePiece
from pipeline.storage.planned_file import fill, open_planned
from pipeline.timeline import Timeline

BLOCK_BYTES = 2**21  # still in the cache when it is computed; Python's overhead is a tenth of the time
AHEAD_BYTES = 2**25  # read-ahead to request, so that disk and CPU overlap without a second thread


def read_blocks(chunk: Chunk, timeline: Timeline) -> Iterator[NDArray[Any]]:
    """Blocks of a chunk in order.

    Parameters
    ----------
    chunk
    timeline
        Gets a span ``"read"`` for each block; an encoded block is read and decoded whole within its first span.

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
    buffer = memoryview(bytearray(min(BLOCK_BYTES // itemsize * itemsize, chunk.nbytes)))
    for piece in chunk.pieces:
        if isinstance(piece, Piece):
            yield from _stored(piece, chunk.dtype, buffer, timeline)
        elif isinstance(piece, WholePiece):
            yield from _decoded(piece, chunk.dtype, len(buffer), timeline)
        else:
            yield from _filled(piece, np.frombuffer(buffer, chunk.dtype), timeline)


def _stored(piece: Piece, dtype: np.dtype[Any], buffer: memoryview, timeline: Timeline) -> Iterator[NDArray[Any]]:
    with open_planned(piece) as fd:
        for start in range(0, piece.nbytes, len(buffer)):
            block = buffer[: min(len(buffer), piece.nbytes - start)]
            with timeline.measure("read", len(block)):
                if start % AHEAD_BYTES < len(buffer):
                    os.posix_fadvise(fd, piece.offset + start, 2 * AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
                fill(fd, block, piece, start)
            yield np.frombuffer(block, dtype)


def _decoded(piece: WholePiece, dtype: np.dtype[Any], nbytes: int, timeline: Timeline) -> Iterator[NDArray[Any]]:
    step = nbytes // dtype.itemsize
    with timeline.measure("read", piece.nbytes):
        first = piece.first // dtype.itemsize
        samples = decode_whole(piece, dtype)[first : first + piece.nbytes // dtype.itemsize]
    for start in range(0, len(samples), step):
        yield samples[start : start + step]


def decode_whole(piece: WholePiece, dtype: np.dtype[Any]) -> NDArray[Any]:
    """All samples of a block, which is read and decoded.

    Raises
    ------
    PipelineError
        If it cannot be read or decoded.
    """
    try:
        samples = piece.decode(_bytes(piece.stored)) if isinstance(piece, EncodedPiece) else piece.block.read()
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


def _bytes(piece: Piece) -> memoryview:
    stored = memoryview(bytearray(piece.nbytes))
    with open_planned(piece) as fd:
        fill(fd, stored, piece, 0)
    return stored


def _filled(piece: FilledPiece, buffer: NDArray[Any], timeline: Timeline) -> Iterator[NDArray[Any]]:
    for start in range(0, piece.samples, len(buffer)):
        block = buffer[: piece.samples - start]
        with timeline.measure("read", block.nbytes):
            piece.filler.fill(piece.start + start, block)
        yield block
