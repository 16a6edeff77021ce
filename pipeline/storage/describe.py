"""What files are, from their headers: format, arrays, and what can be read of them."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.files import whole
from pipeline.storage.list_file import with_lists
from pipeline.storage.other_content import OtherContent, advice_on
from pipeline.storage.paths import MEMBER, Item, expand, is_stdin, split_item
from pipeline.storage.protocol import DTYPES, Member, Opening, advice_for, component_of
from pipeline.storage.raw import RAW, RAW_DTYPE
from pipeline.storage.sources import format_of, open_one

UNREADABLE = "unreadable"  # in the place of a format


@dataclass(frozen=True)
class Description:
    """A file, with the arrays that were asked for.

    Attributes
    ----------
    path
    format
        Name of its format.
    nbytes
        Of the file; None of a folder.
    members
    """

    path: str
    format: str
    nbytes: int | None
    members: tuple[Member, ...]

    def command(self, member: Member) -> str | None:
        """A command that reads an array; None if no job for samples can."""
        if problem_of(member):
            return None
        mark = "" if member.name.startswith("[") else MEMBER
        name = f"{self.path}{mark}{member.name}" if member.name not in ("", ".") else self.path
        flags = f"--dtype {RAW_DTYPE}" if self.format == RAW.name else "--range auto"  # no header: as by default
        assert member.dtype is not None
        flags += "" if component_of(member.dtype) is None else " --part abs"
        return f"python -m pipeline histogram {shlex.quote(name)} {flags}"

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        arrays = [{
            "name": member.name, "dtype": None if member.dtype is None else name_of(member.dtype),
            "byteorder": byteorder_of(member), "shape": list(member.shape),
            "chunks": None if member.chunks is None else list(member.chunks),
            "compression": member.compression or None, "bytes": nbytes_of(member), "stored_bytes": member.stored,
            "problem": problem_of(member) or None, "command": self.command(member),
        } for member in self.members]  # fmt: skip
        return {"path": self.path, "format": self.format, "bytes": self.nbytes, "arrays": arrays}


def problem_of(member: Member) -> str:
    """Why jobs for samples cannot read an array; empty if they can."""
    if member.problem or member.dtype is None:
        return member.problem or "expected numbers"
    if Opening().counted(member.dtype).name not in DTYPES and component_of(member.dtype) is None:
        return f"expected samples of {', '.join(DTYPES)}, got {member.dtype}; {advice_for(member.dtype)}"
    return ""


def name_of(dtype: np.dtype[Any]) -> str:
    """Name of a dtype; of pairs, that of their numbers."""
    component = component_of(dtype)
    return dtype.name if component is None or dtype.names is None else f"complex {component.name}"


def byteorder_of(member: Member) -> str | None:
    """Little or big; None where it means nothing."""
    if member.dtype is None:
        return None
    dtype = component_of(member.dtype) or member.dtype
    if dtype.itemsize == 1 or dtype.kind not in "iuf":
        return None
    return "little" if dtype == dtype.newbyteorder("<") else "big"


def nbytes_of(member: Member) -> int | None:
    """Bytes of samples."""
    return None if member.dtype is None else math.prod(member.shape) * member.dtype.itemsize


def describe(*items: str, recursive: bool = False) -> Iterator[Description]:
    """What files are; of several files, one that cannot be read is `UNREADABLE` and hides none of the others.

    Parameters
    ----------
    items
        Paths, patterns or lists, as a job takes them.
    recursive
        Whether a folder stands for all files below it.

    Raises
    ------
    UsageError
        If the only file is missing or damaged, or its content is nothing that can be read.
    PipelineError
        If the only file cannot be read.
    """
    named = [one for item in items for one in _files(item, recursive)]
    for one in named:
        try:
            yield from _described(one)
        except PipelineError as error:
            if len(named) == 1:
                raise
            problem = str(error).removeprefix(f"{one.pattern}: ")
            yield Description(one.pattern, UNREADABLE, None, (Member("", None, (), problem=problem),))


def _described(one: Item) -> Iterator[Description]:
    path, name, text = one
    opening = Opening(samples=False, member=name)
    try:
        format_ = format_of(path, opening)
    except OtherContent as other:
        member = Member("", None, (), problem=f"no samples; {advice_on(other.what)}")
        yield Description(path, other.what, whole(path).nbytes, (member,))
        return
    members = [] if format_.members is None or text is not None else [
        member for member in format_.members(path) if name is None or member.name.strip("/") == name.strip("/")
    ]  # fmt: skip
    if (
        text is not None or format_.members is None or (name is not None and not members)
    ):  # also says why there is no such member
        members = [(_without_header if format_ is RAW else _opened)(path, opening, text)]
    folder = format_.name == "zarr" or os.path.isdir(path)
    yield Description(path, format_.name, None if folder else whole(path).nbytes, tuple(members))


def _files(item: str, recursive: bool) -> Iterator[Item]:
    if is_stdin(item):
        raise UsageError(f"{item}: expected files, got standard input, which can be read only once; write it to a file")
    for pattern, name, text in map(split_item, with_lists((item,))):
        yield from (Item(path, name, text) for path in expand(pattern, recursive))


def _opened(path: str, opening: Opening, text: str | None) -> Member:
    source = open_one(path, opening, text)
    view = "" if text is None else f"[{text}]"
    return Member(f"{opening.member or ''}{view}", source.dtype, source.shape or (), stored=source.nbytes)


def _without_header(path: str, opening: Opening, text: str | None) -> Member:
    """Raw samples of the default dtype, if there is a whole number of them."""
    nbytes = whole(path).nbytes
    if opening.member is not None or not nbytes or nbytes % np.dtype(RAW_DTYPE).itemsize == 0:
        return _opened(path, opening, text)
    return Member("", None, (), problem=f"no header, and no whole number of {RAW_DTYPE}; say what its samples are, for "
                  "example --dtype int16")  # fmt: skip
