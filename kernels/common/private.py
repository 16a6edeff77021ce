"""Folders and files that no other user can have put there or changed, opened step by step without following links.

What is checked is the descriptor that is used afterwards, so nothing can take its place in between.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

ABANDONED_SECONDS = 60  # before a folder without a lock counts as one of a process that was killed

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def close(file: int) -> None:
    """Close a descriptor through which nothing was written, so that nothing can be lost by an error."""
    with suppress(OSError):
        os.close(file)


def open_private_folder(path: Path) -> int:
    """Descriptor of this user's folder of mode 0700, or 2700 as below some folders; it is made if it is missing.

    Links in the path are resolved first; then each folder on the way must belong to this user or the system, and be
    writable by nobody else unless it is sticky, like /tmp.

    Raises
    ------
    OSError
        If it cannot be opened or made, or others can reach it; PermissionError says where.
    """
    parts = Path(os.path.realpath(path)).parts
    folder = os.open(parts[0], os.O_PATH | FOLDER)
    trusted = {0, os.getuid(), os.fstat(folder).st_uid}  # in a container, the owner of / may be some other number
    try:
        for depth, name in enumerate(parts[1:], 1):
            status = os.fstat(folder)
            if status.st_uid not in trusted or _open_to_others(status):
                raise PermissionError(f"{os.path.join(*parts[:depth])} belongs to others, or they may write to it")
            last = depth + 1 == len(parts)
            below = _open_below(folder, name, FOLDER | (os.O_RDONLY if last else os.O_PATH))
            close(folder)
            folder = below
        _check_private(folder, path)
    except BaseException:
        close(folder)
        raise
    return folder


def open_new_folder(path: Path) -> int:
    """Descriptor of a folder that was made with mode 0700; PermissionError if somebody else's has taken its place."""
    folder = os.open(path, os.O_RDONLY | FOLDER)
    try:
        _check_private(folder, path)
    except BaseException:
        close(folder)
        raise
    return folder


def _check_private(folder: int, path: Path) -> None:
    status = os.fstat(folder)
    if status.st_uid != os.getuid() or status.st_mode & 0o777 != 0o700:
        raise PermissionError(f"{path} belongs to others, or they may enter it")


def _open_below(folder: int, name: str, flags: int) -> int:
    """Open a folder in another one; make it if it is missing."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)


def _open_to_others(status: os.stat_result) -> bool:
    """Whether others may rename or remove what is in a folder."""
    if status.st_mode & stat.S_ISVTX or not status.st_mode & 0o022:
        return False
    return bool(status.st_mode & 0o002) or not _own_group(status.st_gid)


def _own_group(number: int) -> bool:
    """Whether a group is the one that some systems make for each user, who then lets it write by default."""
    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def open_private_file(folder: int, name: str) -> int:
    """Descriptor, to read, of a regular file in a private folder that only this user may write to.

    Raises
    ------
    OSError
        If it cannot be opened or is another kind of file; PermissionError if it may be somebody else's.
    """
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
        return file
    close(file)
    raise PermissionError(f"{name} belongs to others, or they may write to it")


def write_private_file(folder: int, name: str, content: bytes) -> None:
    """Write a file of mode 0600 to a folder, whole or not at all, whoever else writes it at the same time."""
    temporary = f"{name}.{secrets.token_hex(4)}.part"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(file)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new private folder, locked until it is removed; those that killed processes left are removed first.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    base, prefix = Path(tempfile.gettempdir()), f"baru-{re.sub(r'[^A-Za-z0-9]', '', socket.gethostname())[:32]}-"
    with suppress(OSError):  # a folder that cannot be listed
        for name in os.listdir(base):
            if name.startswith(prefix):
                with suppress(OSError):
                    _remove_abandoned(base / name)
    # What cannot be removed now is removed by a later process.
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as made, ExitStack() as stack:
        folder = open_new_folder(Path(made))
        stack.callback(close, folder)
        with suppress(OSError):  # a file system without locks: nobody else can take one either
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Path(made)


def _remove_abandoned(path: Path) -> None:
    """Remove a folder of this user if no process holds its lock; not a new one, which may have none yet."""
    folder = open_new_folder(path)
    try:
        if os.fstat(folder).st_mtime < time.time() - ABANDONED_SECONDS:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
    finally:
        close(folder)
