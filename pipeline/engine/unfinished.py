"""All unfinished runs of this user, and what they have left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from kernels.common.private import close
from pipeline.engine import journal_file
from pipeline.engine.journal import LOCK
from pipeline.engine.journal_file import DamagedError
from pipeline.engine.resume import progress_of
from pipeline.errors import PipelineError
from pipeline.storage.leftovers import remove_part
from pipeline.storage.output_lock import MOST_BYTES, locked, parse_holder
from pipeline.storage.state import JOURNALS, open_state, state_path


class Unfinished(NamedTuple):
    """A journal: its key, its run (in progress, or how far it came), the request, and the temporary file."""

    key: str
    state: str
    what: str
    part: str | None
    nbytes: int


def unfinished() -> list[Unfinished]:
    """Every journal of this user; PipelineError if they cannot be listed."""
    with _told("list"):
        return [_look(key) for key in journal_file.journals()]


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn an OSError about the folder of journals into a line for the user."""
    try:
        yield
    except OSError as error:
        raise PipelineError(f"{state_path(JOURNALS)}: expected to {what} journals, got {error.strerror or error}; "
                            "check the folder") from None  # fmt: skip


def _look(key: str) -> Unfinished:
    try:
        rows = journal_file.read(key) or []
        state = f"unfinished, {progress_of(rows)}" if rows else "unfinished, nothing done"
        header = rows[0].header if rows else {"what": "", "part": None}
        what, part = str(header["what"]), header["part"] and str(header["part"])
    except (DamagedError, KeyError, TypeError, ValueError) as error:
        state, what, part = f"damaged ({error})", "", None
    if (process := _running(key)) is not None:
        state = f"in progress, {process}"
    nbytes = 0
    with suppress(OSError, ValueError):
        nbytes = os.lstat(part).st_blocks * 512 if part else 0
    return Unfinished(key, state, what, part, nbytes)


def _running(key: str) -> str | None:
    """The process that has a journal locked."""
    with suppress(OSError), open_state(JOURNALS) as folder:
        file = os.open(key + LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            holder = parse_holder(os.pread(file, MOST_BYTES, 0))
        finally:
            close(file)
        if holder is not None and holder.alive():
            return f"process {holder.process} on {holder.host}"
    return None


def remove(one: Unfinished) -> bool:
    """Remove a journal and its temporary file, unless its run is in progress; returns whether it did.

    Raises
    ------
    PipelineError
        If it cannot be removed.
    """
    with _told("remove"), open_state(JOURNALS) as folder:
        try:
            with locked(folder, one.key + LOCK, one.what):
                journal_file.remove(one.key)
                if one.part is not None:
                    remove_part(one.part)
        except PipelineError:
            return False
    return True
