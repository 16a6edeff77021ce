"""Files that appear under their name whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from typing import BinaryIO

from pipeline.errors import PipelineError


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], nbytes: int = 0) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; on success it is flushed to the disk and takes its name, else it is removed.

    Parameters
    ----------
    path
        The final name. Where it is a link, the link goes on pointing to the file.
    nbytes
        Space that is known to be needed; checked before anything is written.

    Raises
    ------
    PipelineError
        If it cannot be written: no such folder, no permission, no space, not a regular file. What was there before is
        left as it was.
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
        with contextlib.suppress(OSError):  # after a success there is nothing left under this name
            os.unlink(temporary)
