"""Any elements of arrays that are stored in chunks, from the chunks that have some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.formats.codecs import Decoder
from pipeline.storage.formats.places import Index, Places, Stored
from pipeline.storage.formats.slabs import Decode, Grid, put, slab_of
from pipeline.storage.pieces import Block
from pipeline.storage.planned_file import stored_bytes


@dataclass(frozen=True)
class PickedSlab:
    """Assembles elements at the products of ranges of indices, from the chunks that have some.

    Attributes
    ----------
    ranges
    grid
    stored
        Of these chunks, in the order of `Grid.hit`.
    decode, fill
        As of `Slab`.
    """

    ranges: tuple[range, ...]
    grid: Grid
    stored: Stored
    decode: Decode
    fill: bytes

    def read(self) -> NDArray[Any]:
        """The elements in C order."""
        out = np.full(tuple(map(len, self.ranges)), np.frombuffer(self.fill, self.grid.dtype)[0], self.grid.dtype)
        hit = zip(product(*self.grid.hit(self.ranges)), self.stored.pieces(), strict=True)
        present = [(index, piece) for index, piece in hit if piece is not None]
        arriving = stored_bytes(piece for _, piece in present)
        for (index, piece), stored in zip(present, arriving, strict=True):
            target, source = self._inside(index)
            view = out[target] if target else out  # without axes, a scalar would be a copy
            put(stored, piece, self.decode, self.grid.stored(index), source, view)
        return out.reshape(-1)

    def _inside(self, index: Index) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Where a chunk's elements lie: in what is read, and in the chunk."""
        target, source = [], []
        for one, chunk, at in zip(self.ranges, self.grid.chunks, index, strict=True):
            first, last = (max(-(-(edge * chunk - one.start) // one.step), 0) for edge in (at, at + 1))
            inside = one[first:last]
            target.append(slice(first, first + len(inside)))
            source.append(slice(inside[0] - at * chunk, inside[-1] - at * chunk + 1, one.step))
        return tuple(target), tuple(source)


@dataclass(frozen=True)
class Chunked:
    """An array in chunks, of which any elements can be read.

    Attributes
    ----------
    grid
    block
        Ranges of indices along all axes -> what reads the elements at their products. Workers use it, so it must be
        picklable.
    """

    grid: Grid
    block: Callable[[tuple[range, ...]], Block]


def chunked(grid: Grid, places: Places, decode: Decode | None, fill: bytes) -> Chunked | None:
    """The same array as that of `pieces_of`; None if its chunks are byte runs, of which any part can be read."""
    if decode is None and grid.in_order:
        return None
    return Chunked(grid, _Decoded(grid, places, decode or Decoder((), grid.dtype), fill))


@dataclass(frozen=True)
class _Decoded:
    """Reads elements of chunks that need no library to decode."""

    grid: Grid
    places: Places
    decode: Decode
    fill: bytes

    def __call__(self, ranges: tuple[range, ...]) -> Block:
        if all(one.step == 1 or len(one) == 1 for one in ranges):
            region = tuple((one.start, one[-1] + 1) for one in ranges)
            return slab_of(region, self.grid, self.places, self.decode, self.fill)
        return PickedSlab(ranges, self.grid, self.places.at(self.grid.hit(ranges)), self.decode, self.fill)
