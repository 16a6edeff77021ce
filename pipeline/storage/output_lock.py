"""An advisory lock beside an output, so that two runs do not write it at the same time.

It is held by the system as long as the process lives. What it says (host, process, boot) is for messages, and decides
where a file system keeps no locks, or only those of one host.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from kernels.common.private import close
from pipeline.errors import PipelineError
from pipeline.storage.identity import SHARED, file_system, this_machine

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
MOST_BYTES = 4096
ATTEMPTS = 100  # each fails only if another run has just begun or ended


class Holder(NamedTuple):
    """Who holds a lock: its host, which run of that host's system, and the process with its start."""

    host: str
    machine: int
    process: int
    started: str

    def alive(self) -> bool:
        """Whether it may be running: certain on this host, assumed of others."""
        if self.machine == this_machine():
            return _start_of(self.process) == self.started
        return self.host != socket.gethostname()


def this_process() -> Holder:
    """The process that calls."""
    return Holder(socket.gethostname(), this_machine(), os.getpid(), _start_of(os.getpid()))


def _start_of(process: int) -> str:
    """When a process began, in ticks since the system did; empty if it is gone, or dead and only not yet reaped."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
            return "" if words[0] in "ZX" else words[19]
    except (OSError, IndexError):
        return ""


@contextmanager
def locked(folder: int, name: str, path: str) -> Iterator[bool]:
    """Hold the lock `name` in a folder for the output `path`.

    Yields
    ------
    Whether a run that was killed had left it.

    Raises
    ------
    PipelineError
        If another run holds it, or it cannot be made.
    """
    try:
        file, left = _take(folder, name, path)
    except OSError as error:
        raise PipelineError(f"{path}: expected to lock it by {name} beside it, got {error.strerror!r}; choose another "
                            "place") from None  # fmt: skip
    try:
        yield left
    finally:
        with suppress(OSError):
            if _has_name(file, folder, name):  # otherwise another run may have it: somebody has removed this one
                os.unlink(name, dir_fd=folder)
        close(file)


def _take(folder: int, name: str, path: str) -> tuple[int, bool]:
    left = False
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _ in range(ATTEMPTS):
        try:
            file = os.open(name, flags | os.O_RDWR | os.O_CREAT, 0o644, dir_fd=folder)
        except PermissionError:  # another user's
            file = os.open(name, flags | os.O_RDONLY, dir_fd=folder)
        try:
            left |= _lock(file, name, path)
            if not _has_name(file, folder, name):
                pass  # the run that had it has just ended and removed it
            elif fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR:
                _write_holder(file, folder, name)
                return file, left
            else:
                os.unlink(name, dir_fd=folder)
        except BaseException:
            close(file)
            raise
        close(file)
    raise PipelineError(f"{path}: expected to lock it by {name} beside it, but other runs keep replacing that file; "
                        "wait for them, or choose another name")  # fmt: skip


def _lock(file: int, name: str, path: str) -> bool:
    """Lock an open file; PipelineError if another run has it, or it is no lock. Returns whether one has had it."""
    status = os.fstat(file)
    content = os.pread(file, MOST_BYTES, 0) if stat.S_ISREG(status.st_mode) else b"?"
    holder = parse_holder(content)
    if content and holder is None:
        raise PipelineError(f"{path}: expected {name} beside it to be a lock, got something else; move it away")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        decisive = not file_system(status.st_dev).startswith(SHARED)
    except BlockingIOError:
        raise _busy(path, name, parse_holder(os.pread(file, MOST_BYTES, 0))) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        decisive = False
    if not decisive and holder is not None and holder.alive():
        raise _busy(path, name, holder)
    return holder is not None


def _write_holder(file: int, folder: int, name: str) -> None:
    """Write into a held lock who holds it."""
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(this_process()).encode() + b"\n", 0)
    except OSError:
        os.unlink(name, dir_fd=folder)
        raise


def _has_name(file: int, folder: int, name: str) -> bool:
    """Whether an open file still has its name."""
    try:
        named = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    status = os.fstat(file)
    return (named.st_dev, named.st_ino) == (status.st_dev, status.st_ino)


def parse_holder(content: bytes) -> Holder | None:
    """Who wrote a lock; None if it is not one."""
    try:
        values: Any = json.loads(content.decode())
    except (ValueError, RecursionError):
        return None
    if isinstance(values, list) and list(map(type, values)) == [str, int, int, str]:
        return Holder(*values)
    return None


def _busy(path: str, name: str, holder: Holder | None) -> PipelineError:
    who = f", process {holder.process} on {holder.host}" if holder else ""
    there = holder is not None and holder.machine != this_machine()
    advice = f"or, if that is gone, remove {name} beside it" if there else "or choose another name"
    return PipelineError(f"{path}: another run is writing it{who}; wait for it, {advice}")
