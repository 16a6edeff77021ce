"""Early checks that a file can be written."""

from __future__ import annotations

import os
import stat

from pipeline.errors import UsageError
from pipeline.storage.paths import STDIN
from pipeline.storage.protocol import Source

USUAL_NAME_BYTES = 255  # where the system does not tell


def check_place(path: str, source: Source | None = None) -> None:
    """Refuse, before anything is computed, a file that cannot be written or would overwrite an input, if there is one.

    Raises
    ------
    UsageError
        If the folder is missing or not writable, the name is a dash, too long, a link or other than a regular file, or
        the file is an input.
    """
    if "\0" in path:
        raise UsageError(f"{path!r}: expected a file name for the output, got a null byte in it")
    if path == STDIN:  # which elsewhere means standard output
        raise UsageError(f"{path}: expected a file name for the output, got a dash; ./- is a file called so")
    folder, name = split(path)
    if os.path.isdir(path) or not name:
        got = "a directory" if os.path.isdir(path) else "an empty one" if not path else repr(path)
        store = ", or remove the store" if path.endswith(".zarr") else ""
        raise UsageError(f"{path}: expected a file name for the output, got {got}; choose another name{store}")
    if not os.path.isdir(folder):
        raise UsageError(f"{path}: expected an existing folder for the output, found none at {folder}; create it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{path}: expected a folder that can be written to, got {folder}; check its permissions")
    if (length := len(os.fsencode(name))) > (most := most_bytes(folder)):
        raise UsageError(f"{path}: expected a name of at most {most} bytes, got {length}; shorten it")
    inputs = source.paths if source is not None and os.path.exists(path) else ()
    if any(os.path.exists(name) and os.path.samefile(path, name) for name in inputs):
        raise UsageError(f"{path}: the output is one of the inputs; choose another name")
    try:
        status, above, user = os.lstat(path), os.stat(folder), os.geteuid()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path}: expected a path for the output, got {error.strerror!r}") from None
    if (kind := unsuitable(status)) is not None:
        raise UsageError(f"{path}: expected a regular file to replace or none, got {kind}; choose another name")
    if above.st_mode & stat.S_ISVTX and user not in (0, above.st_uid, status.st_uid):
        raise UsageError(f"{path}: expected a file that may be replaced, got one of another user in {folder}, where "
                         "only its owner may replace it; choose another name")  # fmt: skip


def split(path: str) -> tuple[str, str]:
    """Absolute path of the folder of a file, without links, as the system finds it; and the name in it."""
    folder, name = os.path.split(path)
    return os.path.realpath(folder or os.curdir), "" if name in (os.curdir, os.pardir) else name


def most_bytes(folder: str | int) -> int:
    """Longest name in a folder."""
    try:
        most = os.pathconf(folder, "PC_NAME_MAX")
    except OSError:
        most = -1
    return most if most > 0 else USUAL_NAME_BYTES


def unsuitable(status: os.stat_result) -> str | None:
    """What a name stands for if no file may take its place."""
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link, through which nothing is written"
    return None if stat.S_ISREG(status.st_mode) else "something else"
