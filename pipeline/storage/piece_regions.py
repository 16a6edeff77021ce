"""Regions of views of arrays in pieces, or in chunks, for jobs that write an array."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.blocks import decode_whole
from pipeline.storage.formats.chunked import Chunked
from pipeline.storage.formats.places import MISSING
from pipeline.storage.formats.slabs import Slab
from pipeline.storage.pieces import AnyPiece, BlockPiece, Piece, RemotePiece, as_read
from pipeline.storage.protocol import RegionFiller
from pipeline.storage.view import View
from pipeline.storage.view_reader import PickedBlock, ViewFiller
from workflows.regions import Bounds


def regions_of(
    name: str, dtype: np.dtype[Any], parts: tuple[AnyPiece, ...], chunked: Chunked | None, view: View
) -> RegionFiller | None:
    """Reads regions of a view of an array; None if it would decode a piece from its beginning for each of them.

    Parameters
    ----------
    name
        Of the array, for messages.
    dtype, parts, chunked
        As of `PieceSource`.
    view
    """
    if chunked is not None:
        return ChunkedRegions(name, chunked, view)
    return PieceRegions(dtype, parts, view) if all(map(_at_hand, parts)) else None


def _at_hand(piece: AnyPiece) -> bool:
    """Whether any part of it can be read: a byte run, or a chunk that is missing and has the fill value."""
    if isinstance(piece, BlockPiece):
        return isinstance(piece.block, Slab) and piece.block.stored == MISSING
    return isinstance(piece, Piece)


@dataclass(frozen=True)
class PieceRegions:
    """Reads regions of a view of an array in pieces.

    Attributes
    ----------
    dtype
        Of the array, with byte order.
    parts
        All samples of the array.
    view
    """

    dtype: np.dtype[Any]
    parts: tuple[AnyPiece, ...]
    view: View

    @cached_property
    def _ends(self) -> list[int]:
        """Position in the array after each piece."""
        return list(accumulate(piece.nbytes // self.dtype.itemsize for piece in self.parts))

    def fill_region(self, region: Bounds, block: NDArray[Any]) -> None:
        """The elements of a region of the view, from the pieces that have some."""
        if not block.size:
            return
        view = self.view.region(region)
        values = block.reshape(-1) if block.flags.c_contiguous else np.empty(block.size, block.dtype)
        number, done = bisect_right(self._ends, view.start), 0
        while done < len(values):
            piece, begin = as_read(self.parts[number]), self._ends[number - 1] if number else 0
            stop = view.before(self._ends[number])
            if isinstance(piece, BlockPiece):
                values[done:stop] = PickedBlock(piece, self.dtype, begin, view, done, stop).read()
            elif done < stop:
                assert isinstance(piece, Piece | RemotePiece)
                ViewFiller(piece, begin, view).fill(done, values[done:stop])
            number, done = number + 1, stop
        if not block.flags.c_contiguous:
            block[...] = values.reshape(block.shape)


@dataclass(frozen=True)
class ChunkedRegions:
    """Reads regions of a view of an array in chunks: decodes those that a region crosses.

    Attributes
    ----------
    name
        For messages.
    chunked
    view
    """

    name: str
    chunked: Chunked
    view: View

    def fill_region(self, region: Bounds, block: NDArray[Any]) -> None:
        """The elements of a region, from all chunks that have some; PipelineError if one cannot be decoded."""
        if block.size:
            dtype, ranges = self.chunked.grid.dtype, self.view.region(region).ranges
            inside = ", ".join(f"{one.start}:{one.stop}" + f":{one.step}" * (one.step > 1) for one in ranges)
            where, nbytes = f"{self.name}[{inside}]", block.size * dtype.itemsize
            piece = BlockPiece(self.chunked.block(ranges), where, nbytes, 0, nbytes)
            block[...] = decode_whole(piece, dtype).reshape(block.shape)
