"""A source made of pieces of any kind."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import PipelineError
from pipeline.storage.pieces import AnyPiece, Piece, as_read
from pipeline.storage.planned_file import open_planned
from pipeline.storage.protocol import RegionFiller, Source
from pipeline.storage.view import View

if TYPE_CHECKING:  # files without chunks do without it
    from pipeline.storage.formats.chunked import Chunked


@dataclass(frozen=True, eq=False)
class PieceSource(Source):
    """Samples in pieces of any kind, which are known when it is opened.

    Attributes
    ----------
    name
        Path, and member if there are several.
    dtype
    lengths
        The shape.
    parts
        All samples in C order.
    files
        Every file that is read, whole.
    absent
        Files that were missing, where that means something.
    chunked
        Reads any elements from the chunks that have them; None if the pieces do.
    """

    name: str
    dtype: np.dtype[Any]
    lengths: tuple[int, ...]
    parts: tuple[AnyPiece, ...]
    files: tuple[Piece, ...]
    absent: tuple[str, ...] = ()
    chunked: Chunked | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.lengths

    @property
    def names(self) -> tuple[str, ...]:
        """The name."""
        return (str(self.name),)

    @property
    def paths(self) -> tuple[str, ...]:
        """Files of this machine that are read."""
        return tuple(dict.fromkeys(piece.path for piece in self.files if not piece.remote))

    @property
    def identity(self) -> Hashable:
        """Name, files and what is missing."""
        return self.name, self.files, self.absent

    @property
    def regions(self) -> RegionFiller | None:
        """Reads byte runs, or decodes those chunks that a region crosses; None if pieces are decoded as a whole."""
        from pipeline.storage.piece_regions import regions_of

        return regions_of(self.name, self.dtype, self.parts, self.chunked, View.whole(self.lengths))

    def pieces(self) -> Iterator[AnyPiece]:
        """All of them."""
        return map(as_read, self.parts)

    def check_unchanged(self) -> None:
        """Look at every file once more; answers of servers have all been compared."""
        for piece in self.files:
            if not piece.remote:
                with open_planned(piece):
                    pass
        for path in self.absent:
            if os.path.lexists(path):
                raise PipelineError(
                    f"{path}: was written while the array was read; run again when nothing writes to it"
                )
