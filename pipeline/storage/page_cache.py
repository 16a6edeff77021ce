"""What reads through the page cache bring from storage, and what they cost; gives pages of the cache back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from resource import RUSAGE_THREAD, getrusage
from time import perf_counter, thread_time

from pipeline.storage.chunks import Chunk
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import open_planned

SECTOR = 512  # bytes, in which the system counts what comes from storage


class Fetching:
    """The reads of one thread.

    Attributes
    ----------
    nbytes
        What they brought from storage, or had read ahead; 0 on file systems that do not tell.
    copying
        Seconds of CPU time that they took: for the copy, and for what memory the page cache needed.
    waiting
        Seconds that they took besides.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.copying = self.waiting = 0.0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Measure the body, a read."""
        sectors, began, before = _sectors(), perf_counter(), thread_time()
        try:
            yield
        finally:
            copying = thread_time() - before
            self.copying += copying
            self.waiting += perf_counter() - began - copying
            self.nbytes += SECTOR * (_sectors() - sectors)


def _sectors() -> int:
    """What this thread has requested of storage."""
    return getrusage(RUSAGE_THREAD).ru_inblock


def request(fd: int, offset: int, nbytes: int) -> None:
    """Have bytes of a file read ahead, as far as the system reads ahead at a time; it may refuse."""
    with suppress(OSError):
        os.posix_fadvise(fd, offset, nbytes, os.POSIX_FADV_WILLNEED)


def give_back(chunk: Chunk) -> None:
    """Have the system drop a chunk of files from its cache; it keeps what is mapped or not yet written, or refuses.

    Raises
    ------
    PipelineError
        If a file is no longer the one that was planned.
    """
    for piece in chunk.pieces:
        assert isinstance(piece, Piece)
        with open_planned(piece) as fd, suppress(OSError):
            os.posix_fadvise(fd, piece.offset, piece.nbytes, os.POSIX_FADV_DONTNEED)
