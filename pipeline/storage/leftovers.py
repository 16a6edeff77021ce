"""What a killed run leaves beside its outputs: listed in a file of the state folder, removed by the next run.

The file is locked as long as its process lives, so a lock that can be taken means that the process is gone. Runs of
other hosts that share the home folder are left alone: their locks and paths mean nothing here.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from kernels.common.private import close
from pipeline.storage.output_lock import MOST_BYTES as MOST_LOCK_BYTES
from pipeline.storage.output_lock import parse_holder
from pipeline.storage.state import JOURNAL_SUFFIX, JOURNALS, open_state

FOLDER = "runs"  # in the state folder
OURS = re.compile(r"\..*\.(part|lock)", re.DOTALL)  # file names that are ever removed
MOST_BYTES = 2**20  # of a list that is read
ATTEMPTS = 100  # to make a list, each of which fails only if another process looks for leftovers at that moment

_lock = Lock()
_listed: set[str] = set()
_file: tuple[int, str] | None = None  # descriptor and name of this process's list


@dataclass(frozen=True)
class Resumable:
    """A temporary file that a run may leave for a later one to continue.

    Attributes
    ----------
    token
        In its name: the beginning of the name of the run's journal.
    begun
        Whether an earlier run has left it.
    kept
        () -> whether to leave it if this run does not succeed either.
    """

    token: str
    begun: bool
    kept: Callable[[], bool]


@contextmanager
def listed(path: str) -> Iterator[Callable[[], None]]:
    """Have a later process remove a file that is still there when this one has ended.

    Yields
    ------
    A function that has it stay.
    """
    with _lock:
        _listed.add(path)
        with suppress(OSError):  # without a state folder nobody will know
            _append(path)

    def forget() -> None:
        with _lock:
            _listed.discard(path)
            if not _listed:
                with suppress(OSError):
                    _close()

    try:
        yield forget
    finally:
        if not os.path.lexists(path):
            forget()


def _append(path: str) -> None:
    global _file
    if _file is None:
        _file = _create()
    os.write(_file[0], json.dumps(path).encode() + b"\n")


def _create() -> tuple[int, str]:
    """A new list, locked."""
    with open_state(FOLDER) as folder:
        for _ in range(ATTEMPTS):
            name = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_APPEND, 0o600, dir_fd=folder)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file).st_nlink:  # otherwise another process has just taken it for one without a process
                    return file, name
            except BlockingIOError:
                pass
            except BaseException:
                close(file)
                raise
            close(file)
    raise BlockingIOError("other processes keep taking the list")


def _close() -> None:
    global _file
    if _file is not None:
        (file, name), _file = _file, None
        try:
            with open_state(FOLDER) as folder:
                os.unlink(name, dir_fd=folder)
        finally:
            close(file)


def remove_leftovers() -> list[str]:
    """Remove what dead runs of this user on this host have left; returns the paths of what was removed."""
    removed: list[str] = []
    with suppress(OSError), open_state(FOLDER) as folder:
        for name in os.listdir(folder):
            if name.startswith(f"{socket.gethostname()}."):
                with suppress(OSError):
                    removed += _remove(folder, name)
    return removed


def _remove(folder: int, name: str) -> list[str]:
    """Remove what a list names but unfinished runs, then the list if it names none; OSError if its process lives."""
    file = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        paths = [*parse_paths(os.pread(file, MOST_BYTES, 0))]
        kept = [*filter(resumable, paths)]
        removed = [path for path in paths if path not in kept and remove_part(path)]
        if not any(map(os.path.lexists, kept)):
            os.unlink(name, dir_fd=folder)
        return removed
    finally:
        close(file)


def parse_paths(content: bytes) -> Iterator[str]:
    """Paths in a list, of files such as runs leave."""
    for line in content.splitlines():
        with suppress(ValueError, RecursionError):  # the last line may be half written
            path: Any = json.loads(line.decode())
            if isinstance(path, str) and os.path.isabs(path) and OURS.fullmatch(os.path.basename(path)):
                yield path


def resumable(path: str) -> bool:
    """Whether a temporary file belongs to an unfinished run: the token in its name begins that of a journal."""
    token = re.search(r"\.([0-9a-f]{8})\.part\Z", path)
    if token is not None:
        with suppress(OSError), open_state(JOURNALS) as folder:
            return any(name.startswith(token[1]) and name.endswith(JOURNAL_SUFFIX) for name in os.listdir(folder))
    return False


def remove_part(path: str) -> bool:
    """Remove a temporary file: a regular file of this user that no process has locked, or says it has."""
    if not OURS.fullmatch(os.path.basename(path)):
        return False
    with suppress(OSError, ValueError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                holder = parse_holder(os.pread(file, MOST_LOCK_BYTES, 0)) if path.endswith(".lock") else None
                if holder is None or not holder.alive():  # where each host keeps locks of its own
                    os.unlink(path)
                    return True
        finally:
            close(file)
    return False
