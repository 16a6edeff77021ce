"""Find files and open them as a source, by a table of formats; reads headers only."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError, meant
from pipeline.process.heartbeat import STALL_SECONDS
from pipeline.storage.alike import check_dtypes
from pipeline.storage.array_source import ArraySource
from pipeline.storage.files import Files, SourceFile
from pipeline.storage.formats.table import LATE
from pipeline.storage.list_file import with_lists
from pipeline.storage.npy import NPY
from pipeline.storage.other_content import OtherContent, advice_on, other_of
from pipeline.storage.packed import Packing
from pipeline.storage.paths import MEMBER, STDIN, expand, is_stdin, split_item
from pipeline.storage.pieces import AnyPiece
from pipeline.storage.protocol import (
    BYTEORDERS,
    DTYPES,
    HEAD_BYTES,
    NAMES,
    PACKED,
    PARTS,
    Byteorder,
    Format,
    Opening,
    Part,
    Source,
)
from pipeline.storage.raw import RAW, RAW_DTYPE, raw_dtype
from pipeline.storage.remote.address import HIDDEN, Url
from pipeline.storage.stream import NAME as STREAM
from pipeline.storage.stream import Stream, StreamSource, open_npy_stream

__all__ = [
    "BYTEORDERS", "DTYPES", "FORMATS", "NAMES", "PACKED", "PARTS", "RAW_DTYPE", "Byteorder", "Files", "Format",
    "Opening", "Part", "Source", "SourceFile", "open_source",
]  # fmt: skip

# A new format is a module with a function that opens it, and an entry in `LATE`: the first that recognizes a file does.
FORMATS = [NPY, *LATE]

SKIPPED_BYTES = 2**20  # at a time


@dataclass(frozen=True)
class Joined(Source):
    """Several sources of one dtype, one after another."""

    sources: tuple[Source, ...]

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """The dtype of each of them."""
        return self.sources[0].dtype

    @property
    def shape(self) -> tuple[int, ...] | None:
        """One dimension; None if the length of one of them is unknown."""
        lengths = [source.samples for source in self.sources]
        known = [length for length in lengths if length is not None]
        return (sum(known),) if len(known) == len(lengths) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them."""
        return tuple(chain.from_iterable(source.names for source in self.sources))

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all of them."""
        return tuple(chain.from_iterable(source.paths for source in self.sources))

    @property
    def identity(self) -> Hashable:
        """The identity of each of them."""
        return tuple(source.identity for source in self.sources)

    @property
    def local(self) -> bool:  # type: ignore[override]
        """Whether one of them can be read by this process only."""
        return any(source.local for source in self.sources)

    @property
    def read_once(self) -> bool:  # type: ignore[override]
        """Whether one of them cannot be read again."""
        return any(source.read_once for source in self.sources)

    @property
    def fortran(self) -> bool:
        """Whether one of them counts as it is stored."""
        return any(source.fortran for source in self.sources)

    def check_unchanged(self) -> None:
        """Check that none of them has changed."""
        for source in self.sources:
            source.check_unchanged()

    def pieces(self) -> Iterator[AnyPiece]:
        """The pieces of one source after another."""
        return chain.from_iterable(source.pieces() for source in self.sources)


def open_source(
    inputs: Sequence[str | NDArray[Any]],
    dtype: str | None = None,
    byteorder: Byteorder | None = None,
    offset: int | None = None,
    *,
    samples: bool = True,
    empty: bool = False,
    part: Part | None = None,
    recursive: bool = False,
    stall_seconds: float = STALL_SECONDS,
) -> Source:
    """Find the files and how to read them.

    Parameters
    ----------
    inputs
        Paths, glob patterns, whose matches are sorted, URLs, each with a member after ``::`` and a slice like
        ``[1000:5000]`` or without; ``@FILE`` for the names in a file, ``-`` for standard input, or arrays in memory.
    dtype, byteorder, offset
        For raw files: a name in `DTYPES` (default int32) or `PACKED`, little (default) or big, bytes to skip (default
        0). Other formats have their own; a value that disagrees is an error.
    samples
        Require at least one sample of a dtype in `DTYPES`; otherwise an array may also be empty, or have any dtype
        except Python objects.
    empty
        Accept an empty array even if `samples` is set.
    part
        Of complex samples: a name in `PARTS`.
    recursive
        Whether a folder stands for all files below it, sorted by their paths.
    stall_seconds
        How long standard input may bring nothing. Its first bytes are read here.

    Raises
    ------
    UsageError
        If a file is missing, empty, not a regular file, of the wrong size or of an unsupported dtype.
    PipelineError
        If a file cannot be read.
    """
    if dtype is not None and dtype not in NAMES:
        raise UsageError(f"--dtype: expected one of {', '.join(NAMES)}, got {dtype!r}{meant(dtype, NAMES)}")
    if byteorder is not None and byteorder not in BYTEORDERS:
        raise UsageError(f"--byteorder: expected one of {', '.join(BYTEORDERS)}, got {byteorder!r}")
    if offset is not None and offset < 0:
        raise UsageError(f"--offset: expected bytes to skip, 0 or more, got {offset}")
    if part is not None and part not in PARTS:
        raise UsageError(f"--part: expected one of {', '.join(PARTS)}, got {part!r}")
    opening = Opening(dtype, byteorder, offset, samples, empty, part=part)
    sources: list[Source] = []
    for item in with_lists(inputs):
        if isinstance(item, np.ndarray):
            if part is not None:
                raise UsageError("part: expected none with an array in memory; pass the part of it instead")
            sources.append(ArraySource.of(item, opening))
        elif is_stdin(item):
            if item != STDIN:
                raise UsageError(f"{item}: expected a file, got {STREAM}, which is read in order; write it to a file "
                                 "first, as --spool does")  # fmt: skip
            if any(isinstance(source, StreamSource) for source in sources):
                raise UsageError(f"{STDIN}: expected {STREAM} once, got it twice; name it once")
            sources.append(open_stdin(opening, stall_seconds))
        else:
            pattern, member, text = split_item(item)
            named = replace(opening, member=member)
            sources += (open_one(path, named, text) for path in expand(pattern, recursive))
    check_dtypes(sources)
    if part is not None and not samples:
        from pipeline.storage.complex_parts import joined_parts

        sources = joined_parts(sources)
    return _joined(sources)


def _joined(sources: Sequence[Source]) -> Source:
    files = [source for source in sources if isinstance(source, Files)]
    if len(sources) == 1:
        return sources[0]
    if len(files) == len(sources):
        return Files(tuple(chain.from_iterable(source.files for source in files)), files[0].dtype)
    return Joined(tuple(sources))


def open_one(path: str, opening: Opening, text: str | None = None) -> Source:
    """One file, or a slice of it, as a source; errors as of `open_source`."""
    format_ = format_of(path, opening)
    if text is not None and opening.member is not None and format_.members is not None:
        whole = f"{opening.member}[{text}]"  # a member may be called so
        if any(member.name.strip("/") == whole.strip("/") for member in format_.members(path)):
            opening, text = replace(opening, member=whole), None
    if opening.member is not None and format_.members is None:
        raise UsageError(f"{path}: expected a file of several arrays before ::{opening.member}, got {format_.name}; "
                         "leave the :: out")  # fmt: skip
    if isinstance(path, Url) and not format_.remote:
        raise UsageError(f"{path}: expected a format that is read at a URL, got {format_.name}; copy it to a file")
    source = format_.open(path, opening)
    opening.check_part(path, source.dtype)  # raw samples have nothing else that does
    if text is not None:
        from pipeline.storage.sliced import sliced

        source = sliced(source, path if opening.member is None else f"{path}{MEMBER}{opening.member}", text, opening)
    if opening.part is None:
        return source
    from pipeline.storage.complex_parts import PartSource

    return PartSource(source, opening.part)


def format_of(path: str, opening: Opening) -> Format:
    """Format by content, unless the user gives an offset, then by suffix; everything else is raw.

    Raises
    ------
    UsageError
        If the content is something else, and the user has not said that it is raw.
    """
    head = _head(path)
    if opening.offset is None:
        for format_ in FORMATS:
            if format_.recognizes(path, head):
                return format_
    if (other := other_of(head, opening)) is not None:
        raise OtherContent(path, other)
    return next((format_ for format_ in FORMATS if path.endswith(format_.suffixes)), RAW)


def open_stdin(opening: Opening, stall_seconds: float) -> StreamSource:
    """Standard input, raw or `.npy`; errors as of `open_source`."""
    if not opening.samples:
        raise UsageError(f"{STDIN}: expected files for a job that writes an array, got {STREAM}, which can be read "
                         "only once and in order; write it to a file first, as --spool does")  # fmt: skip
    if opening.part is not None:
        raise UsageError(f"{STDIN}: expected files for --part, got {STREAM}; write it to a file first, as --spool does")
    stream, skipped = Stream(0, stall_seconds), opening.offset or 0
    while (left := skipped - stream.done) and stream.read(min(left, SKIPPED_BYTES)):
        pass
    head = stream.peek(HEAD_BYTES)
    if not head:
        after = f" after --offset {skipped}" if skipped else ""
        raise UsageError(f"{STREAM}: expected samples{after}, got {stream.done} bytes; did its writer fail?")
    if opening.offset is None:
        known = next((format_ for format_ in FORMATS if format_.recognizes("/dev/stdin", head)), None)
        if known is NPY:
            return open_npy_stream(stream, opening)
        if known is not None:
            raise UsageError(f"{STREAM}: expected raw samples or .npy, got {known.name}, which is not read in order; "
                             "write it to a file first, as --spool does, or say --offset 0 if it is raw")  # fmt: skip
    if (other := other_of(head, opening)) is not None:
        raise UsageError(f"{STREAM}: expected raw samples or .npy, got {other}; {advice_on(other)}")
    packing = Packing.of(opening)
    return StreamSource(stream, raw_dtype(opening) if packing is None else packing.dtype, packing)


def _head(path: str) -> bytes:
    """The first bytes of a regular file or a remote object; none of anything else: reading it might block forever."""
    if isinstance(path, Url):
        return _remote_head(path)
    try:
        with open(path if os.path.isfile(path) else os.devnull, "rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""  # opening it as samples reports why


def _remote_head(url: Url) -> bytes:
    """The first bytes of a remote object; none of a folder, which may be a Zarr store."""
    if url.rstrip(f"?{HIDDEN}").endswith(("/", ".zarr")):
        return b""
    try:
        from pipeline.storage.remote.objects import look

        return look(url).head
    except UsageError:
        return b""  # opening it as samples reports why
