"""What formats share: missing libraries, the choice of a member, and limits of what is decoded."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.formats.slabs import SLAB_BYTES, Grid
from pipeline.storage.protocol import Member, Opening

MOST_BLOCK = 2**30  # bytes of a block that is decoded whole, in memory
MOST_CHUNKS = 2**22
LISTED = 5  # members that a message names
MOST_REASON = 150  # characters of another library's message


@contextmanager
def library(path: str, what: str, extra: str) -> Iterator[None]:
    """Turn the error of an import into one line with the command that installs what is missing."""
    try:
        yield
    except ImportError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise UsageError(f"{path}: expected the package {package}, which reads {what}, got none; "
                         f"pip install 'baru[{extra}]'") from None  # fmt: skip


@contextmanager
def readable(path: str, what: str) -> Iterator[None]:
    """Turn errors of other libraries, and of headers that make no sense, into one line."""
    try:
        yield
    except (PipelineError, ImportError):
        raise
    except Exception as error:  # each library raises errors of its own
        reason = str(error).strip().partition("\n")[0][:MOST_REASON] or type(error).__name__
        raise UsageError(f"{path}: expected {what}, got {reason}; is the file complete?") from None


def choose(path: str, members: Sequence[Member], opening: Opening) -> Member:
    """The member that the user names, or the only one that can be read.

    Raises
    ------
    UsageError
        If there is none, or several and no name.
    """
    if opening.member is not None:
        named = [member for member in members if member.name.strip("/") == opening.member.strip("/")]
        if not named:
            raise UsageError(f"{path}: expected a member {opening.member!r}, got {_listed(members)}; name one of them")
        if len(named) > 1:
            raise UsageError(f"{path}: expected one member {opening.member!r}, got {len(named)}; rename them")
        member = named[0]
    else:
        sound = [(member, member.dtype) for member in members if not member.problem and member.dtype is not None]
        able = [member for member, dtype in sound if opening.takes(dtype)]  # flags beside samples are none of them
        able = able or [member for member, dtype in sound if opening.takes(opening.counted(dtype))] or [*members]
        if not able:
            raise UsageError(f"{path}: expected one array, got none")
        if len(able) > 1:
            raise UsageError(f"{path}: expected one array, got {_listed(able)}; name one of them like "
                             f"'{os.path.basename(path)}::{_shown(able[0].name)}'")  # fmt: skip
        member = able[0]
    if member.problem:
        name = f"{path}::{_shown(member.name)}" if member.name else path
        raise UsageError(f"{name}: {member.problem}")
    return member


def _listed(members: Sequence[Member]) -> str:
    if not members:
        return "none"
    more = f" and {len(members) - LISTED} more" if len(members) > LISTED else ""
    return ", ".join(_shown(member.name) for member in members[:LISTED]) + more


def _shown(name: str) -> str:
    """A name as a part of one line, whatever a file has there."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in name[:MOST_REASON])


def check_block(name: str, nbytes: int) -> None:
    """Refuse a block that is too large to be decoded in memory.

    Raises
    ------
    UsageError
        Expected, got, and what to do.
    """
    if nbytes > MOST_BLOCK:
        raise UsageError(f"{name}: expected blocks of at most {MOST_BLOCK >> 20} MiB decoded, got one of "
                         f"{nbytes >> 20} MiB; store it uncompressed or in smaller blocks")  # fmt: skip


def check_grid(name: str, grid: Grid, files: int = 0) -> None:
    """Refuse chunks that are too large to be decoded in memory, or too many to be planned.

    Raises
    ------
    UsageError
        Expected, got, and what to do.
    """
    check_block(name, grid.chunk_bytes)
    number = max(math.prod(grid.counts), files, math.prod(grid.shape) * grid.dtype.itemsize // SLAB_BYTES)
    if number > MOST_CHUNKS:
        raise UsageError(f"{name}: expected at most {MOST_CHUNKS} chunks, got {number}; store it in larger ones")
