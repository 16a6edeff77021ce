"""The state folder, which only this user can reach: for files that outlive a run and have no other place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernels.common.private import close, open_private_folder

JOURNALS = "journals"  # folder of the journals of unfinished runs, which are files named KEY.sqlite
JOURNAL_SUFFIX = ".sqlite"


def state_path(name: str) -> Path:
    """A folder in the state folder, below XDG_STATE_HOME or the home folder; RuntimeError if there is no home."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "baru" / name


@contextmanager
def open_state(name: str) -> Iterator[int]:
    """Descriptor of such a folder, which is made if it is missing.

    Raises
    ------
    OSError
        If there can be none that others cannot reach.
    """
    try:
        path = state_path(name)
    except RuntimeError as error:
        raise OSError(str(error)) from None
    close(open_private_folder(path.parent))  # so that it is private, too
    folder = open_private_folder(path)
    try:
        yield folder
    finally:
        close(folder)
