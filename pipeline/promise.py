"""Room for a file that is being written: its file system promises it while the work has begun."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from threading import Event, Thread
from time import sleep
from typing import BinaryIO

from pipeline.errors import PipelineError

# Asked for at a time. A file system in memory makes room at 5 to 12 GB/s, which would be half of the time of a job;
# where threads touch pages for which there is none yet, they get less, however many there are.
STEP_BYTES = 2**28
PAUSE_SECONDS = 0.002


@contextlib.contextmanager
def promised_room(file: BinaryIO, nbytes: int, path: str) -> Iterator[bool]:
    """Make room for so many bytes of a file. It is as long as the room that is promised, and grows meanwhile.

    Parameters
    ----------
    file
        Under a temporary name, which it loses where room turns out to be missing: nobody waits for it any longer.
    nbytes
    path
        Its name in messages.

    Yields
    ------
    Whether the file system promises anything. If not, the file has all of its length at once.

    Raises
    ------
    PipelineError
        If there is no room: the bytes needed and free. At once if the first step fails, else at the end.
    """
    steps = list(pairwise([*range(0, nbytes, STEP_BYTES), nbytes]))
    if not steps or not _promise(file, *steps[0], path):
        os.ftruncate(file.fileno(), nbytes)
        yield False
        return
    missing: list[PipelineError] = []
    enough = Event()

    def go_on() -> None:
        try:
            for step in steps[1:]:
                if not enough.is_set():
                    _promise(file, *step, path)
        except PipelineError as error:
            missing.append(error)
            os.unlink(file.name)

    thread = Thread(target=go_on, name="promise")
    thread.start()
    try:
        yield True
    finally:
        enough.set()
        thread.join()
        if missing:
            raise missing[0] from None


def _promise(file: BinaryIO, start: int, stop: int, path: str) -> bool:
    """What is promised now is there when the last region is written, hours later. False if nothing is promised."""
    try:
        os.posix_fallocate(file.fileno(), start, stop - start)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot promise
            return False
        folder = os.path.dirname(os.path.abspath(path))
        raise PipelineError(f"{path}: expected room for {stop} bytes in {folder}, got {error.strerror!r} with "
                            f"{shutil.disk_usage(folder).free} free; ask for less or free space") from None  # fmt: skip
    return True


def wait_for_room(fd: int, nbytes: int) -> None:
    """Wait until a file is so long; OSError once it has no name any more."""
    while (status := os.fstat(fd)).st_size < nbytes:
        if not status.st_nlink:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sleep(PAUSE_SECONDS)
