"""The cache folder for compiled kernels."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path


def cache_folder() -> Path:
    """Where machine code is cached: a folder that only this user may write to, because it is loaded without a check.

    If there can be none below XDG_CACHE_HOME or the home folder, a temporary one for the life of the process.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baru"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK | os.X_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        pass
    return Path(_own_folder().name)


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="baru-")
