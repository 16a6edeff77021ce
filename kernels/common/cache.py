"""The folder that compiled kernels are kept in."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path


def cache_folder() -> Path:
    """Where machine code is kept: a folder that only this user may write to, since it is loaded unseen.

    Where there can be none below XDG_CACHE_HOME or the home folder, one that lasts as long as the process.
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
