"""Files that appear under their name whole or not at all, and early checks that they can be written."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from typing import BinaryIO

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.protocol import Source


def check_place(path: str, source: Source | None = None) -> None:
    """Refuse, before anything is computed, a file that cannot be written or would overwrite an input, if there is one.

    Raises
    ------
    UsageError
        If the folder is missing or not writable, or the file is an input.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"{path}: expected an existing folder for the output, found none at {folder}; create it")
    if os.path.isdir(path) or not path:
        got = "a directory" if path else "an empty one"
        raise UsageError(f"{path}: expected a file name for the output, got {got}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{path}: expected a folder that can be written to, {folder} cannot; check its permissions")
    inputs = source.paths if source is not None and os.path.exists(path) else ()
    if any(os.path.exists(name) and os.path.samefile(path, name) for name in inputs):
        raise UsageError(f"{path}: the output is one of the inputs; choose another name")


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], nbytes: int = 0) -> Iterator[BinaryIO]:
    """Open a temporary file next to `path`; on success it is flushed to disk and renamed, otherwise removed.

    Parameters
    ----------
    path
        The final name. If it is a link, the link keeps pointing to the file.
    nbytes
        Required space; checked before anything is written.

    Raises
    ------
    PipelineError
        If it cannot be written: no such folder, no permission, no space, not a regular file. An existing file is left
        unchanged.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise PipelineError(f"{path}: expected a file in an existing folder, got no folder {folder}; create it first")
    if os.path.exists(target) and not os.path.isfile(target):
        raise PipelineError(f"{path}: expected a regular file or none, got something else; choose another name")
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.part")
    try:
        free = shutil.disk_usage(folder).free
        if nbytes > free:
            raise PipelineError(
                f"{path}: expected {nbytes} free bytes in {folder}, got {free}; ask for less or free space"
            )
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        reason = error.strerror or error  # without the temporary name
        raise PipelineError(f"{path}: expected to write the file, got {reason}; choose another place") from error
    finally:
        with contextlib.suppress(OSError):  # after a success nothing has this name any more
            os.unlink(temporary)
