"""Open planned files, check that they have not changed, and read from them; from remote objects, too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import groupby
from typing import BinaryIO

from pipeline.errors import PipelineError
from pipeline.storage.identity import Identity, open_to_read
from pipeline.storage.pieces import Piece
from pipeline.storage.remote.address import ObjectIdentity
from pipeline.storage.remote.ahead import read_ahead
from pipeline.storage.scratch import aligned_empty

RUN_BYTES, GAP_BYTES = 2**21, 2**14  # of stored blocks that are read at once, and of what may lie between two
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
    if isinstance(piece.identity, Identity):
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
                f"{piece.path}: ended at byte {piece.offset + start + filled}, expected {piece.offset + piece.nbytes}; "
                "run again when nothing writes to it"
            )
        filled += got


def stored_bytes(pieces: Iterable[Piece]) -> Iterator[memoryview]:
    """The bytes of pieces of files and remote objects, in order; of the latter some are requested ahead."""
    for path, some in groupby(pieces, lambda piece: None if piece.remote else piece.path):
        if path is None:
            yield from read_ahead(some)
            continue
        every = list(some)
        with open_planned(every[0]) as fd:
            for near in _near(every):
                begin = near[0].offset
                run = near[0].cut(0, near[-1].offset + near[-1].nbytes - begin)
                stored = aligned_empty(run.nbytes).data
                fill(fd, stored, run, 0)
                for piece in near:
                    yield stored[piece.offset - begin : piece.offset - begin + piece.nbytes]


def _near(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Pieces that are read at once, since each call waits for the GIL on return: they lie close, one after another."""
    near: list[Piece] = []
    for piece in pieces:
        if near:
            end = near[-1].offset + near[-1].nbytes
            if not (0 <= piece.offset - end <= GAP_BYTES and piece.offset + piece.nbytes - near[0].offset <= RUN_BYTES):
                yield near
                near = []
        near.append(piece)
    yield near


@contextmanager
def file_for_library(piece: Piece) -> Iterator[str | BinaryIO]:
    """A planned file, whatever has its name now, as a path or as an object that another library reads."""
    if isinstance(piece.identity, ObjectIdentity):
        from pipeline.storage.remote.file import as_file

        with as_file(piece.identity) as file:
            yield file
    else:
        with open_planned(piece) as fd:
            yield f"/proc/self/fd/{fd}"
