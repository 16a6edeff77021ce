"""The cache of compiled kernels: files in a folder that only this user can reach, because they are run as they are."""

from __future__ import annotations

import atexit
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kernels.common.messages import warn_once
from kernels.common.private import (
    open_new_folder,
    open_private_file,
    open_private_folder,
    temporary_folder,
    write_private_file,
)

SEAL = hashlib.sha256().digest_size  # bytes of a checksum appended to a file, to detect a truncated one
ABANDONED_SECONDS = 3600  # after which somebody's unfinished file is one of a process that was killed


def cache_folder() -> Path:
    """Where machine code is cached: below XDG_CACHE_HOME or the home folder.

    If others could put code there, a temporary folder for the life of the process.
    """
    folder, path = _open()
    os.close(folder)
    return path


@contextmanager
def open_cache() -> Iterator[int]:
    """Descriptor of that folder, checked."""
    folder, _ = _open()
    try:
        yield folder
    finally:
        os.close(folder)


def _open() -> tuple[int, Path]:
    try:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baru"
        return open_private_folder(path), path
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        folder, path = _own_folder(str(error))
        return os.dup(folder), path


_own: list[tuple[int, Path]] = []


def _own_folder(reason: str) -> tuple[int, Path]:
    """A new folder, which stays open: wherever it is, what is opened in it later is in the folder that was checked."""
    if not _own:
        until_exit = ExitStack()
        atexit.register(until_exit.close)
        made = until_exit.enter_context(temporary_folder())
        _own.append((open_new_folder(made), made))
        warn_once("cache", f"compiled kernels are not kept after this run: {reason}; set XDG_CACHE_HOME to a folder "
                           "that is yours alone")  # fmt: skip
    return _own[0]


def open_cached(folder: int, name: str) -> int | None:
    """Descriptor of a file in the cache, complete and this user's; None if there is none."""
    try:
        file = open_private_file(folder, name)
    except OSError:
        return None
    with open(file, "rb", closefd=False) as stream:
        content = stream.read()
    if content[-SEAL:] == hashlib.sha256(content[:-SEAL]).digest():
        return file
    os.close(file)
    return None


def read_cached(folder: int, name: str) -> bytes | None:
    """The content of such a file."""
    file = open_cached(folder, name)
    if file is None:
        return None
    with os.fdopen(file, "rb") as stream:
        stream.seek(0)
        return stream.read()[:-SEAL]


def cached_source(text: str) -> Path:
    """Path of a file of this text, a generated CUDA source, which is compiled as those that are installed.

    It is in the cache or, if that is full, in a folder for the life of the process; OSError if that is full as well.
    """
    name, content = f"{hashlib.sha256(text.encode()).hexdigest()}.cu", text.encode()
    folder, path = _open()
    try:
        if _content(folder, name) != content:
            write_private_file(folder, name, content)
    except OSError as error:
        own, path = _own_folder(str(error))
        write_private_file(own, name, content)
    finally:
        os.close(folder)
    return path / name


def _content(folder: int, name: str) -> bytes | None:
    """A file of this user's as it is; None if there is none."""
    try:
        file = open_private_file(folder, name)
    except OSError:
        return None
    with os.fdopen(file, "rb") as stream:
        return stream.read()


def write_cached(folder: int, name: str, content: bytes) -> None:
    """Keep a file in the cache; raises OSError."""
    with suppress(OSError):
        for left in os.listdir(folder):
            if left.endswith(".part") and os.stat(left, dir_fd=folder).st_mtime < time.time() - ABANDONED_SECONDS:
                os.unlink(left, dir_fd=folder)
    write_private_file(folder, name, content + hashlib.sha256(content).digest())
