"""TIFF stacks: pages of one shape and dtype, as an array pages × rows × columns (× samples of a pixel)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, whole
from pipeline.storage.formats.chunked import chunked
from pipeline.storage.formats.codecs import ZLIB, Decoder, Inflate
from pipeline.storage.formats.common import check_grid, choose, library, readable
from pipeline.storage.formats.places import Places
from pipeline.storage.formats.slabs import Decode, Grid, pieces_of
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import file_for_library
from pipeline.storage.protocol import Member, Opening, Source

WHAT = "a TIFF file"
NONE, DEFLATES = 1, (8, 32946)
HORIZONTAL = 2  # predictor: differences between neighbours of a row


@dataclass(frozen=True)
class _Differences:
    """Decodes rows of differences between neighbours, along an axis."""

    decode: Decode
    axis: int

    def __call__(self, stored: memoryview, shape: tuple[int, ...]) -> NDArray[Any]:
        samples = self.decode(stored, shape)
        native = np.cumsum(samples, axis=self.axis, dtype=samples.dtype.newbyteorder("="))
        return native.astype(samples.dtype, copy=False)


def _problem(page: Any) -> str:
    """Why a page cannot be read; empty if it can."""
    if 0 in page.shape:
        return f"expected pages of at least one pixel, got one of {' × '.join(map(str, page.shape))}; leave it out"
    if page.dtype is None or page.bitspersample != page.dtype.itemsize * 8:
        kind = "" if page.sampleformat in (1, 2, 3) else f" of {getattr(page.sampleformat, 'name', page.sampleformat)}"
        return f"expected samples of 8, 16, 32 or 64 bits, got {page.bitspersample}{kind}; unpack them"
    if page.compression != NONE and page.compression not in DEFLATES:
        return f"expected uncompressed or deflated pages, got {page.compression.name}; convert the file"
    if page.predictor not in (1, HORIZONTAL) or (page.predictor == HORIZONTAL and page.dtype.kind == "f"):
        return "expected no predictor or differences of integers, got another one; convert the file"
    if page.predictor == HORIZONTAL and page.compression == NONE:  # for tifffile differences, for libtiff samples
        return "expected a predictor of compressed pages only, got one of uncompressed ones; convert the file"
    if page.planarconfig != 1 and page.samplesperpixel > 1:
        return "expected samples of a pixel side by side, got planes; convert the file"
    if page.fillorder != 1 or page.subsampling not in (None, (1, 1)):
        return "expected plain samples, got bits in another order or subsampled ones; convert the file"
    return ""


def _dtype(tiff: Any, page: Any) -> np.dtype[Any] | None:
    return None if page.dtype is None else page.dtype.newbyteorder(tiff.byteorder)


def _member(tiff: Any, pages: Sequence[Any]) -> Member:
    first, number = pages[0], _planes(tiff, pages)
    problem = next(filter(None, map(_problem, pages)), "")
    if not problem and any((p.shape, p.dtype, p.compression, p.predictor) !=
                           (first.shape, first.dtype, first.compression, first.predictor) for p in pages):  # fmt: skip
        problem = "expected pages of one shape, dtype and compression, got several; write them to files of their own"
    shape = (number, *first.shape) if number > 1 else tuple(first.shape)
    codec = "" if first.compression == NONE else first.compression.name.lower()
    chunks = (1, *first.chunks) if number > 1 else tuple(first.chunks)
    stored = sum(sum(page.databytecounts) for page in pages)
    return Member("", _dtype(tiff, first), shape, chunks, codec, stored, problem)


def _planes(tiff: Any, pages: Sequence[Any]) -> int:
    """Number of images: beyond 4 GiB, ImageJ stores all of them after one page, whose description says how many."""
    if len(pages) > 1 or not (pages[0].is_imagej or pages[0].is_shaped or pages[0].is_stk):
        return len(pages)
    number: int = tiff.series[0].size // max(math.prod(pages[0].shape), 1)
    return max(number, 1)


def _pages(tiff: Any) -> list[Any]:
    pages = list(tiff.pages)
    if not pages:
        raise ValueError("no pages")
    return pages


def members_of(path: str) -> list[Member]:
    """The stack of a TIFF file."""
    with readable(path, WHAT), _opened(whole(path)) as tiff:
        return [_member(tiff, _pages(tiff))]


@contextmanager
def _opened(file: Piece) -> Iterator[Any]:
    """The file as tifffile sees it, which only logs what it cannot read: pages would be missing, or tags."""
    with library(file.path, WHAT, "tiff"):
        import tifffile
    problems: list[str] = []
    logger = logging.getLogger("tifffile")
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: problems.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    passed_on, logger.propagate = logger.propagate, False
    try:
        with (
            file_for_library(file) as name,
            tifffile.TiffFile(name if file.remote else file.path, is_ome=False, _multifile=False) as tiff,
        ):
            list(tiff.pages)
            if problems:
                raise ValueError(problems[0])
            yield tiff
            if problems:  # with what the description says
                raise ValueError(problems[0])
    finally:
        logger.removeHandler(handler)
        logger.propagate = passed_on


def open_tiff(path: str, opening: Opening) -> Source:
    """The pages of a TIFF file as one array.

    Raises
    ------
    UsageError
        If they cannot be read as one.
    """
    file = whole(path)
    with readable(path, WHAT), _opened(file) as tiff:
        pages = _pages(tiff)
        member = choose(path, [_member(tiff, pages)], opening)
        assert member.dtype is not None
        opening.check(path, member.dtype, member.shape)
        return _source(path, file, member, pages)


def _source(path: str, file: Piece, member: Member, pages: Sequence[Any]) -> Source:
    dtype, shape, chunks = member.dtype, member.shape, member.chunks
    assert dtype is not None and chunks is not None and file.identity is not None
    runs, number = [_run(page) for page in pages], math.prod(shape) // max(math.prod(pages[0].shape), 1)
    size = math.prod(pages[0].shape) * dtype.itemsize
    if member.compression == "" and pages[0].predictor == 1 and all(run == (run[0], size) for run in runs if run):
        offsets = [run[0] for run in runs if run]
        if len(offsets) == len(pages):
            if (last := max(offsets) + size * (number - len(pages))) + size > file.nbytes:
                raise ValueError(f"a page beyond its end, at byte {last}")
            if offsets == list(range(offsets[0], offsets[0] + size * len(pages), size)):
                return Files((SourceFile(path, offsets[0], size * number, file.identity, shape),), dtype)
            return PieceSource(path, dtype, shape, tuple(file.cut(offset, size) for offset in offsets), (file,))
    if len(pages) < number or any((p.is_tiled, p.chunks) != (pages[0].is_tiled, pages[0].chunks) for p in pages):
        raise UsageError(f"{path}: expected strips or tiles of one shape in every page, got others; convert the file")
    column = len(shape) - (1 if pages[0].samplesperpixel == 1 else 2)
    grid = Grid(shape, chunks, dtype, None if pages[0].is_tiled else column - 1)
    check_grid(path, grid)
    plain = Decoder(() if member.compression == "" else (Inflate(ZLIB),), dtype)
    decode = _Differences(plain, column) if pages[0].predictor == HORIZONTAL else plain
    how = grid, _places(file, pages, grid), decode, bytes(dtype.itemsize)
    return PieceSource(path, dtype, shape, tuple(pieces_of(path, *how)), (file,), chunked=chunked(*how))


def _run(page: Any) -> tuple[int, int] | None:
    """First byte and bytes of a page whose strips lie one after another; None if they do not."""
    if page.is_tiled or not page.dataoffsets:
        return None
    at = page.dataoffsets[0]
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
        if offset != at:
            return None
        at += count
    return page.dataoffsets[0], at - page.dataoffsets[0]


def _places(file: Piece, pages: Sequence[Any], grid: Grid) -> Places:
    """Where strips or tiles are stored; those of size 0 at byte 0 are missing, and are 0 throughout."""
    places = Places(grid.counts)
    of_file = places.add(file)
    counts = grid.counts[1:] if len(pages) > 1 else grid.counts
    for number, page in enumerate(pages):
        if len(page.dataoffsets) != math.prod(counts) or len(page.databytecounts) != math.prod(counts):
            raise ValueError(f"{len(page.dataoffsets)} strips or tiles where {math.prod(counts)} were expected")
        for place, offset, count in zip(np.ndindex(*counts), page.dataoffsets, page.databytecounts, strict=True):
            if not count and not offset:
                continue
            if not count or offset + count > file.nbytes:
                raise UsageError(f"{file.path}: expected strips within {file.nbytes} bytes, got one at {offset} of "
                                 f"{count} bytes; is the file complete?")  # fmt: skip
            index = (number, *place) if len(pages) > 1 else place
            places.table[index] = of_file, offset, count
    return places
