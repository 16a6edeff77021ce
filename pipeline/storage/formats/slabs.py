"""Arrays that are stored in chunks, as blocks of samples in C order.

The samples of an array count in C order, whatever its chunks: positions mean the same as in NumPy. A slab is a run of
samples in C order that is as near to whole rows of chunks as memory allows; it is assembled from the chunks that it
crosses. Chunks that are themselves such runs, and whose bytes are samples, are read as byte runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.formats.codecs import Decoder
from pipeline.storage.formats.decode_many import CHUNK, many_of
from pipeline.storage.formats.places import MISSING, Index, Places, Stored
from pipeline.storage.pieces import AnyPiece, Block, BlockPiece, Piece
from pipeline.storage.planned_file import stored_bytes
from workflows.regions import Bounds, sizes

SLAB_BYTES = 2**27  # of a slab at most, unless one chunk has more; a thread holds one
SCRATCH_BYTES = 2**20  # of decoded chunks that are then put in their places
LEAST_BYTES = 2**22  # of a slab at least, if rows of chunks are smaller

# Stored bytes, shape of the chunk -> its samples in that shape. Runs on a worker, so it must be picklable.
Decode = Callable[[memoryview, tuple[int, ...]], NDArray[Any]]


@dataclass(frozen=True)
class Grid:
    """An array in chunks, all of one shape.

    Attributes
    ----------
    shape, chunks, dtype
    cut
        Axis along which chunks at the edge are stored without what is beyond it; elsewhere they are stored whole.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    cut: int | None = None

    @cached_property
    def chunk_bytes(self) -> int:
        """Bytes of samples in a whole chunk."""
        return math.prod(self.chunks) * self.dtype.itemsize

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True))

    @cached_property
    def in_order(self) -> bool:
        """Whether every chunk is a run of samples in C order."""
        cut = max((axis for axis, count in enumerate(self.counts) if count > 1), default=0)
        return set(self.chunks[:cut]) <= {1} and self.chunks[cut + 1 :] == self.shape[cut + 1 :]

    def stored(self, index: Index) -> tuple[int, ...]:
        """Shape of a chunk as it is stored."""
        return tuple(
            min(chunk, self.shape[axis] - index[axis] * chunk) if axis == self.cut else chunk
            for axis, chunk in enumerate(self.chunks)
        )

    def crossed(self, region: Bounds) -> list[range]:
        """Indices, along each axis, of the chunks that a region crosses."""
        return [
            range(start // chunk, -(-stop // chunk)) for (start, stop), chunk in zip(region, self.chunks, strict=True)
        ]

    def chunks_of(self, region: Bounds) -> Iterator[Index]:
        """Indices of the chunks that a region crosses."""
        return product(*self.crossed(region))

    def hit(self, ranges: Sequence[range]) -> list[Sequence[int]]:
        """Indices, along each axis, of the chunks that have some of the elements at these indices."""
        return [_hit(one, chunk) for one, chunk in zip(ranges, self.chunks, strict=True)]

    def slabs(self, most: int = SLAB_BYTES, least: int = LEAST_BYTES) -> Iterator[Bounds]:
        """Regions in C order that cover the array; each is a run of samples in C order."""
        rank, most = len(self.shape), max(most, 1)
        if not math.prod(self.shape):
            return
        if not rank:
            yield ()
            return
        cut = min(range(rank), key=lambda axis: self._decodings(axis, most))
        chunk, row = self.chunks[cut], math.prod(self.shape[cut + 1 :]) * self.dtype.itemsize
        step = max(most // row, 1)
        if step >= chunk:
            step = outer = min(step // chunk, max(-(-least // (row * chunk)), 1)) * chunk
        else:
            step, outer = -(-chunk // -(-chunk // step)), chunk
        after = tuple((0, length) for length in self.shape[cut + 1 :])
        for index in product(*map(range, self.shape[:cut])):
            before = tuple((at, at + 1) for at in index)
            for first in range(0, self.shape[cut], outer):
                end = min(first + outer, self.shape[cut])
                for start in range(first, end, step):
                    yield (*before, (start, min(start + step, end)), *after)

    def _decodings(self, axis: int, most: int) -> float:
        """How often a chunk is decoded if slabs are cut along an axis; infinite if they are too large."""
        row = math.prod(self.shape[axis + 1 :]) * self.dtype.itemsize
        if row > most and axis < len(self.shape) - 1:
            return math.inf
        return math.prod(self.chunks[:axis]) * math.ceil(self.chunks[axis] / max(most // row, 1))


def _hit(one: range, chunk: int) -> Sequence[int]:
    """Chunks along an axis that have some of these indices."""
    if one.step <= chunk:
        return range(one[0] // chunk, one[-1] // chunk + 1) if one else ()
    return [index // chunk for index in one]


@dataclass(frozen=True)
class Slab:
    """Assembles a region from chunks.

    Attributes
    ----------
    region
    grid
    stored
        Of the chunks that it crosses, in the order of `Grid.chunks_of`.
    decode
    fill
        The value of missing chunks, as bytes of one sample.
    """

    region: Bounds
    grid: Grid
    stored: Stored
    decode: Decode
    fill: bytes

    def read(self) -> NDArray[Any]:
        """Samples of the region."""
        out = np.empty(sizes(self.region), self.grid.dtype)
        there = self.stored.table[:, 0] >= 0
        if not there.all():
            out[...] = np.frombuffer(self.fill, self.grid.dtype)[0]
        there[self._decoded_together(out, np.flatnonzero(there))] = False
        if not there.any():
            return out.reshape(-1)
        crossed = zip(self.grid.chunks_of(self.region), self.stored.pieces(), there, strict=True)
        left = [(index, piece) for index, piece, is_left in crossed if is_left and piece]
        arriving = stored_bytes(piece for _, piece in left)
        for (index, piece), stored in zip(left, arriving, strict=True):
            target, source = self._inside(index)
            view = out[target] if target else out  # without axes, a scalar would be a copy
            put(stored, piece, self.decode, self.grid.stored(index), source, view)
        return out.reshape(-1)

    def _decoded_together(self, out: NDArray[Any], present: NDArray[np.int64]) -> NDArray[np.int64]:
        """Decode chunks many at a time, if that is possible; returns the numbers of those that were."""
        grid, decode = self.grid, self.decode
        many = many_of(decode.steps) if isinstance(decode, Decoder) and grid.cut is None else None
        if many is None or len(present) < 2 or any(file.remote for file in self.stored.files):
            return present[:0]
        assert isinstance(decode, Decoder)
        nbytes, flat, done = grid.chunk_bytes, out.reshape(-1).view(np.uint8), []
        places = self._places() if decode.order is None and grid.in_order else np.full(len(self.stored.table), -1)
        shaped, indices = replace(decode, steps=()), np.array(list(self.grid.chunks_of(self.region)))
        if nbytes > SCRATCH_BYTES:  # a call for each of them costs nothing
            present = present[places[present] >= 0]
        for rows, stored, begins in self.stored.read(present) if len(present) else ():
            chunks = np.empty(len(rows), CHUNK)
            chunks["first"], chunks["nbytes"], chunks["place"] = begins, self.stored.table[rows, 2], places[rows]
            whole = chunks["place"] >= 0
            done.append(np.delete(rows[whole], many(stored, chunks[whole], flat, nbytes)))
            step = max(SCRATCH_BYTES // nbytes, 1)
            for first in range(0, int((~whole).sum()), step):
                some, numbers = chunks[~whole][first : first + step], rows[~whole][first : first + step]
                some["place"] = nbytes * np.arange(len(some))
                scratch = np.empty(nbytes * len(some), np.uint8)
                good = np.delete(np.arange(len(some)), many(stored, some, scratch, nbytes))
                for number, place in zip(numbers[good], some["place"][good].tolist(), strict=True):
                    target, source = self._inside(tuple(indices[number].tolist()))
                    out[target] = shaped(scratch[place : place + nbytes].data, grid.chunks)[source]
                done.append(numbers[good])
        return np.concatenate([present[:0], *done])

    def _places(self) -> NDArray[np.int64]:
        """First byte of each chunk in the region, if chunks are runs of samples; -1 of those that are not all in it."""
        grid, region = self.grid, self.region
        cut = max((axis for axis, count in enumerate(grid.counts) if count > 1), default=0)
        (start, stop), chunk = region[cut], grid.chunks[cut]
        row = math.prod(sizes(region[cut + 1 :])) * grid.dtype.itemsize
        firsts = np.arange(start // chunk, -(-stop // chunk)) * chunk
        outer = np.arange(math.prod(sizes(region[:cut])))[:, None] * (stop - start)
        inside = (firsts >= start) & (firsts + chunk <= stop) & (row * chunk == grid.chunk_bytes)
        return np.where(inside, (outer + firsts - start) * row, -1).reshape(-1)

    def _inside(self, index: Index) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Where a chunk's part of the region lies: in the region, and in the chunk."""
        target, source = [], []
        for (start, stop), length, at in zip(self.region, self.grid.chunks, index, strict=True):
            first, last = max(start, at * length), min(stop, (at + 1) * length)
            target.append(slice(first - start, last - start))
            source.append(slice(first - at * length, last - at * length))
        return tuple(target), tuple(source)


def put(
    stored: memoryview, piece: Piece, decode: Decode, shape: tuple[int, ...], source: tuple[slice, ...],
    target: NDArray[Any],
) -> None:  # fmt: skip
    """Decode a chunk, and put a part of it into its place; ValueError if it cannot be decoded."""
    try:
        if not (isinstance(decode, Decoder) and target.shape == shape and decode.into(stored, target)):
            target[...] = decode(stored, shape)[source]
    except Exception as error:  # each decoder raises errors of its own
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{reason} (at {piece.where()})") from error


def pieces_of(name: str, grid: Grid, places: Places, decode: Decode | None, fill: bytes) -> Iterator[AnyPiece]:
    """The samples of an array in C order.

    Parameters
    ----------
    name
        For messages.
    grid
    places
        Where its chunks are stored.
    decode
        None if the stored bytes are the samples in C order.
    fill
        The value of missing chunks, as bytes of one sample.
    """
    if decode is None and grid.in_order:
        yield from joined(_runs(name, grid, places, fill))
        return
    make = decode or Decoder((), grid.dtype)
    for region in grid.slabs(max(SLAB_BYTES, grid.chunk_bytes)):  # a chunk is decoded whole in any case
        yield block_piece(name, region, grid.dtype, slab_of(region, grid, places, make, fill))


def slab_of(region: Bounds, grid: Grid, places: Places, decode: Decode, fill: bytes) -> Slab:
    """A slab of the array."""
    stored = places.within([slice(along.start, along.stop) for along in grid.crossed(region)])
    return Slab(region, grid, stored, decode, fill)


def _runs(name: str, grid: Grid, places: Places, fill: bytes) -> Iterator[AnyPiece]:
    for index in product(*map(range, grid.counts)):
        region = tuple(
            (at * chunk, min((at + 1) * chunk, length))
            for at, chunk, length in zip(index, grid.chunks, grid.shape, strict=True)
        )
        if (stored := places.piece(index)) is None:
            missing = Slab(region, grid, MISSING, Decoder((), grid.dtype), fill)
            yield block_piece(name, region, grid.dtype, missing)
        else:
            yield stored.cut(0, math.prod(sizes(region)) * grid.dtype.itemsize)


def joined(pieces: Iterable[AnyPiece]) -> Iterator[AnyPiece]:
    """Byte runs that follow one another in a file as one: a run takes 0.1 ms, longer than small chunks."""
    last: Piece | None = None
    for piece in pieces:
        if last is not None:
            if isinstance(piece, Piece) and (piece.path, piece.offset) == (last.path, last.offset + last.nbytes):
                last = Piece(last.path, last.offset, last.nbytes + piece.nbytes, last.identity)
                continue
            yield last
        last = piece if isinstance(piece, Piece) else None
        if last is None:
            yield piece
    if last is not None:
        yield last


def block_piece(name: str, region: Bounds, dtype: np.dtype[Any], block: Block) -> BlockPiece:
    """A region as a piece, with a name for messages."""
    nbytes = math.prod(sizes(region)) * dtype.itemsize
    inside = ", ".join(f"{start}:{stop}" for start, stop in region)
    return BlockPiece(block, f"{name}[{inside}]", nbytes, 0, nbytes)
