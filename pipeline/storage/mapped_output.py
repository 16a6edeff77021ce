"""The output of a job, mapped whole by a process that writes to it from its first region to its last.

A mapping for each region would cost more: where pages are given back, all cores that the process runs on are
interrupted, for every 2 MiB of them. So that is done rarely, for most files at the end, and nobody waits for it.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

from pipeline.errors import PipelineError
from pipeline.storage.mapped import advise, map_file, unmap

KEPT_BYTES = 2**30  # that are written before pages are given back; until then the process has them in memory
GIVEN_BYTES = 2**26  # that are given back at a time, for meanwhile nobody else can map anything

_giving_back = ThreadPoolExecutor(1, "unmap")  # one after another, at last what unmaps a file
_lock = Lock()
_files: dict[str, _MappedFile] = {}
_ended: deque[str] = deque(maxlen=1000)


class _MappedFile:
    """A mapping, how many write to it, how much was written since pages were given back, whether the job has ended."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.address, self.nbytes = map_file(fd, 0, nbytes), nbytes
        self.writing, self.written, self.ended = 0, 0, False

    def give_back(self) -> None:
        """Others may be writing."""
        for start in range(0, self.nbytes, GIVEN_BYTES):
            advise(self.address + start, min(GIVEN_BYTES, self.nbytes - start), mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Nobody writes any more."""
        self.give_back()
        unmap(self.address, self.nbytes)


@contextmanager
def mapped_file(path: str, fd: int, nbytes: int, writes: int) -> Iterator[int]:
    """Where a file is mapped, to be written to inside.

    Parameters
    ----------
    path, fd, nbytes
        The file.
    writes
        Bytes that are written inside.

    Raises
    ------
    OSError
        If it cannot be mapped.
    PipelineError
        If `end` was called for this path.
    """
    with _lock:
        if path in _ended:
            raise PipelineError(f"{path}: expected a job that is under way, got one that has ended")
        if path not in _files:
            _files[path] = _MappedFile(fd, nbytes)
        file = _files[path]
        file.writing += 1
    try:
        yield file.address
        with _lock:
            file.written += writes
            many = file.written >= KEPT_BYTES
            file.written *= not many
        if many:
            _giving_back.submit(file.give_back)
    finally:
        with _lock:
            file.writing -= 1
            last = file.ended and not file.writing
        if last:
            _giving_back.submit(file.close)


def end(path: str) -> None:
    """Unmap a file that this process has perhaps written to, soon, and once nobody does any more."""
    with _lock:
        _ended.append(path)
        file = _files.pop(path, None)
        if file:
            file.ended = True
        idle = file and not file.writing
    if file and idle:
        _giving_back.submit(file.close)
