"""Open planned files, check that they have not changed, and read from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from pipeline.errors import PipelineError
from pipeline.storage.identity import open_to_read
from pipeline.storage.pieces import Piece

KEPT_OPEN = 8  # files kept open by a task, which may read thousands

Opened = Callable[[Piece], AbstractContextManager[int]]


@contextmanager
def open_planned(piece: Piece) -> Iterator[int]:
    """File descriptor of a piece whose file is the planned one, checked before and after it is read."""
    try:
        fd = open_to_read(piece.path)
    except OSError as error:
        raise PipelineError(f"{piece.path}: expected the file that was planned, got {error.strerror!r}") from None
    try:
        _check(fd, piece)
        yield fd
        _check(fd, piece)
    finally:
        os.close(fd)


@contextmanager
def kept_open() -> Iterator[Opened]:
    """`open_planned` for files that are read repeatedly: the first few stay open and are checked at the end.

    Opening, checking and closing a file are calls that each wait for the GIL on return.
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


def _check(fd: int, piece: Piece) -> None:
    if piece.identity is not None:
        piece.identity.check(piece.path, fd)


def fill(fd: int, block: memoryview, piece: Piece, start: int) -> None:
    """Fill a buffer from byte `start` of a piece on."""
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
            _check(fd, piece)
            raise PipelineError(
                f"{piece.path}: ended at byte {piece.offset + start + filled}, expected {piece.offset + piece.nbytes}"
            )
        filled += got
