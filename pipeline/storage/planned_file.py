"""Stream a chunk to the CPU block by block: one reused buffer, while the kernel reads the file ahead."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError
from pipeline.storage.chunks import Chunk, Piece
from pipeline.timeline import Timeline

BLOCK_BYTES = 2**21  # read at a time: still in the cache when it is counted; Python's part is a tenth of its time
AHEAD_BYTES = 2**25  # asked of the file system ahead of the block, so that disk and CPU overlap without a second thread

KEPT_OPEN = 8  # files of a task: it may read thousands

Opened = Callable[[Piece], AbstractContextManager[int]]


def read_blocks(chunk: Chunk, timeline: Timeline) -> Iterator[NDArray[Any]]:
    """Blocks of a chunk in order.

    Parameters
    ----------
    chunk
    timeline
        Gets a span ``"read"`` for each block.

    Yields
    ------
    array of ``chunk.dtype``, shape (n,)
        Valid until the next one is asked for.

    Raises
    ------
    PipelineError
        If a file cannot be read or is no longer the one that was planned.
    """
    itemsize = chunk.dtype.itemsize
    buffer = memoryview(bytearray(min(BLOCK_BYTES // itemsize * itemsize, chunk.nbytes)))
    for piece in chunk.pieces:
        with open_planned(piece) as fd:
            for start in range(0, piece.nbytes, len(buffer)):
                block = buffer[: min(len(buffer), piece.nbytes - start)]
                with timeline.measure("read", len(block)):
                    if start % AHEAD_BYTES < len(buffer):
                        os.posix_fadvise(fd, piece.offset + start, 2 * AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
                    fill(fd, block, piece, start)
                yield np.frombuffer(block, chunk.dtype)


@contextmanager
def open_planned(piece: Piece) -> Iterator[int]:
    """File descriptor of a piece whose file is still the planned one, before and after it was read."""
    try:
        fd = os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PipelineError(f"{piece.path}: expected the file that was planned, got {error.strerror!r}") from None
    try:
        _check_unchanged(fd, piece)
        yield fd
        _check_unchanged(fd, piece)
    finally:
        os.close(fd)


@contextmanager
def kept_open() -> Iterator[Opened]:
    """`open_planned` for files that are read again and again: the first few stay open, and are looked at in the end.

    To open, look at and close a file are calls after each of which a thread waits for the interpreter.
    """
    kept: dict[Piece, int] = {}
    with ExitStack() as stack:

        def opened(piece: Piece) -> AbstractContextManager[int]:
            if piece not in kept:
                if len(kept) == KEPT_OPEN:
                    return open_planned(piece)
                kept[piece] = stack.enter_context(open_planned(piece))
            return nullcontext(kept[piece])

        yield opened


def _check_unchanged(fd: int, piece: Piece) -> None:
    status = os.fstat(fd)
    if piece.size is not None and status.st_size != piece.size:
        change = "shrank" if status.st_size < piece.size else "grew"
        raise PipelineError(
            f"{piece.path}: {change} while it was read: expected {piece.size} bytes, got {status.st_size}; "
            "run again when nothing writes to it"
        )
    if piece.mtime_ns not in (None, status.st_mtime_ns):
        raise PipelineError(f"{piece.path}: was written to while it was read; run again when nothing writes to it")


def fill(fd: int, block: memoryview, piece: Piece, start: int) -> None:
    """Fill a buffer from the byte `start` of a piece on."""
    filled = 0
    while filled < len(block):
        try:
            got = os.preadv(fd, [block[filled:]], piece.offset + start + filled)
        except OSError as error:
            raise PipelineError(
                f"{piece.path}: reading at byte {piece.offset + start + filled} failed: {error.strerror}; "
                "check the disk"
            ) from None
        if not got:
            _check_unchanged(fd, piece)
            raise PipelineError(
                f"{piece.path}: ended at byte {piece.offset + start + filled}, expected {piece.offset + piece.nbytes}"
            )
        filled += got
