"""Views of sources: only what they need is read, where it is stored, and nothing is copied to a file."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile
from pipeline.storage.formats.chunked import Chunked
from pipeline.storage.formats.slabs import SLAB_BYTES, Grid
from pipeline.storage.piece_regions import regions_of
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import AnyPiece, BlockPiece, EncodedPiece, FilledPiece, as_read
from pipeline.storage.protocol import Opening, RegionFiller, Source
from pipeline.storage.view import View, parse
from pipeline.storage.view_reader import PickedBlock, ViewFiller


@dataclass(frozen=True, eq=False)
class ViewSource(Source):
    """A view of a source.

    Attributes
    ----------
    whole
        What it is a view of.
    name
        With the slice.
    lengths
        The shape.
    parts
        All samples.
    filler
        Reads regions; None if jobs that write an array cannot read the whole source.
    """

    whole: Source
    name: str
    lengths: tuple[int, ...]
    parts: tuple[AnyPiece, ...]
    filler: RegionFiller | None

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """The dtype of the source."""
        return self.whole.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the view."""
        return self.lengths

    @property
    def names(self) -> tuple[str, ...]:
        """The name."""
        return (self.name,)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the source."""
        return self.whole.paths

    @property
    def identity(self) -> Hashable:
        """The identity of the source, with the name."""
        return self.whole.identity, self.name

    @property
    def regions(self) -> RegionFiller | None:
        """What fills regions, if the source is byte runs or chunks."""
        return self.filler

    @property
    def fortran(self) -> bool:
        """Whether the source is in Fortran order; along one axis there is only one order."""
        return self.whole.fortran and len(self.lengths) > 1

    def pieces(self) -> Iterator[AnyPiece]:
        """All of them."""
        return iter(self.parts)

    def check_unchanged(self) -> None:
        """Check that the source has not changed."""
        self.whole.check_unchanged()


def sliced(source: Source, name: str, text: str, opening: Opening) -> Source:
    """The view of a source that the text in brackets describes.

    Parameters
    ----------
    source, name
    text
        What is between the brackets, a slice.
    opening
        What the job accepts.

    Raises
    ------
    UsageError
        If it does not fit the shape, or has no samples where some are needed.
    """
    indices = parse(text)
    assert indices is not None
    if source.shape is None:
        raise UsageError(f"{name}: expected an array of known length before [{text}], got another one; write it to a "
                         ".npy file")  # fmt: skip
    whole = f"{name}[{text}]"
    view = View.of(whole, indices, source.shape)
    opening.check_length(whole, view.sizes)
    if not view.size:
        return ViewSource(source, whole, view.sizes, (), ViewFiller(FilledPiece(_NOTHING, 0, 0, 1, whole), 0, view))
    if isinstance(source, Files) and len(source.files) == 1:
        return _of_file(source, source.files[0], whole, view)
    if not isinstance(source, PieceSource):
        return ViewSource(source, whole, view.sizes, tuple(_linear(source, whole, view)), None)
    parts = _linear(source, whole, view) if source.chunked is None else _blocks(source.chunked, whole, view)
    filler = regions_of(name, source.dtype, source.parts, source.chunked, view)
    return ViewSource(source, whole, view.sizes, tuple(parts), filler)


def _of_file(source: Files, file: SourceFile, name: str, view: View) -> Source:
    """A view of the samples of one file, in the order in which they are stored: as a part of the file if it is one."""
    stored, itemsize = view.reversed if file.fortran else view, source.dtype.itemsize
    if stored.span == stored.size:
        offset, fortran = file.offset + stored.start * itemsize, file.fortran and len(view.sizes) > 1
        run = SourceFile(file.path, offset, view.size * itemsize, file.identity, view.sizes, fortran, name)
        return Files((run,), source.dtype)
    piece = as_read(file.piece())
    assert not isinstance(piece, EncodedPiece | BlockPiece)
    filler = ViewFiller(piece, 0, view, file.fortran)
    return ViewSource(source, name, view.sizes, tuple(_linear(source, name, stored)), filler)


def _linear(source: Source, name: str, view: View) -> Iterator[AnyPiece]:
    """The parts of a source's pieces that a view has."""
    position, itemsize = 0, source.dtype.itemsize
    for piece in source.pieces():
        first, stop = view.before(position), view.before(position + piece.nbytes // itemsize)
        nbytes = (stop - first) * itemsize
        if not nbytes:
            pass
        elif view.span == view.size:
            yield piece.cut((view.start + first - position) * itemsize, nbytes)
        elif isinstance(piece, EncodedPiece | BlockPiece):
            yield BlockPiece(PickedBlock(piece, source.dtype, position, view, first, stop), name, nbytes, 0, nbytes)
        else:
            yield FilledPiece(ViewFiller(piece, position, view), first, stop - first, itemsize, name)
        position += piece.nbytes // itemsize


def _blocks(chunked: Chunked, name: str, view: View) -> Iterator[AnyPiece]:
    """Blocks of a view in C order, from the chunks that it hits."""
    grid = chunked.grid
    begins = [one.start // chunk * chunk for one, chunk in zip(view.ranges, grid.chunks, strict=True)]
    ends = [one[-1] + 1 for one in view.ranges]
    near = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
    for region in Grid(near, grid.chunks, grid.dtype).slabs(max(SLAB_BYTES, grid.chunk_bytes)):
        box = tuple(
            tuple(max(-(-(edge + begin - one.start) // one.step), 0) for edge in bounds)
            for bounds, begin, one in zip(region, begins, view.ranges, strict=True)
        )
        ranges = tuple(one[start:stop] for one, (start, stop) in zip(view.ranges, box, strict=True))
        if nbytes := math.prod(map(len, ranges)) * grid.dtype.itemsize:
            yield BlockPiece(chunked.block(ranges), name, nbytes, 0, nbytes)


class _Nothing:
    """Fills no buffer."""

    def fill(self, start: int, buffer: Any) -> None:
        """Nothing to do."""


_NOTHING = _Nothing()
