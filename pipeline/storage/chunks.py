"""The chunk plan: which samples of a source each task reads. Reads no samples, unless the length is unknown."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import PipelineError
from pipeline.storage.column_pickle import packed, unpacked
from pipeline.storage.pieces import AnyPiece, Piece, WholePiece
from pipeline.storage.protocol import Source

ALIGNMENT = 4096  # bytes; chunk boundaries are multiples of this, for direct reads from a disk

# One run of samples per chunk is always checked, this fraction of it; in an automatic run at least so many bytes.
SAMPLED_SHARE = {"auto": 100, "sample": 256}
LEAST_BYTES = {"auto": 2**18, "sample": 1}


@dataclass(frozen=True)
class Region:
    """A run of samples of a chunk."""

    start: int
    samples: int


@dataclass(frozen=True)
class Chunk:
    """The unit of computing: pieces of a source, read in order.

    Attributes
    ----------
    index
        Position in the plan.
    pieces
    dtype
        Dtype of the samples, with byte order.
    always
        Parts that are checked in any case.
    start
        Index of its first sample in the source.
    parts
        Regions that cover it once, in order. Each has a partial of its own and can be checked by itself.
    """

    index: int
    pieces: tuple[AnyPiece, ...]
    dtype: np.dtype[Any]
    always: tuple[Region, ...] = ()
    start: int = 0
    parts: tuple[Region, ...] = ()

    def __reduce__(self) -> Any:
        """With its pieces as columns, which become pieces again where these are needed: not in Dask's own threads."""
        columns = self.__dict__.get("columns") or packed(self.pieces)
        return _received, ({**self.__dict__, "columns": columns, "pieces": None},)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The pieces, when they are first asked for after the chunk was received."""
            if name != "pieces" or "columns" not in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            pieces = self.__dict__["pieces"] = tuple(unpacked(self.__dict__["columns"]))
            return pieces

    @cached_property  # there may be a piece for each of many small files, and some ask after each block
    def nbytes(self) -> int:
        """Bytes of samples."""
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.nbytes // self.dtype.itemsize

    @property
    def runs(self) -> bool:
        """Whether its samples are runs of files, in either byte order."""
        return all(isinstance(piece, Piece) for piece in self.pieces)

    @property
    def plain(self) -> bool:
        """Whether its samples are in files as they are in memory."""
        return self.dtype.isnative and self.runs

    def part(self, region: Region) -> Chunk:
        """The chunk that consists of a region of this one."""
        skip, left = region.start * self.dtype.itemsize, region.samples * self.dtype.itemsize
        pieces: list[AnyPiece] = []
        for piece in self.pieces:
            if not left:
                break
            start = min(skip, piece.nbytes)
            length = min(left, piece.nbytes - start)
            if length:
                pieces.append(piece.cut(start, length))
            skip, left = skip - start, left - length
        whole = (Region(0, region.samples),)
        return Chunk(self.index, tuple(pieces), self.dtype, start=self.start + region.start, parts=whole)

    def where(self, region: Region | None = None) -> str:
        """Where the samples of the chunk, or of a region of it, come from, for a message."""
        ranges = [piece.where() for piece in (self if region is None else self.part(region)).pieces]
        return ranges[0] if len(ranges) == 1 else f"{ranges[0]} … {ranges[-1]} ({len(ranges)} pieces)"


def _received(state: dict[str, Any]) -> Chunk:
    chunk = object.__new__(Chunk)
    chunk.__dict__.update(state)
    del chunk.__dict__["pieces"]
    return chunk


@dataclass(frozen=True)
class UnknownPlan:
    """The plan of a source of unknown length: every iteration reads the source again."""

    source: Source
    chunk_bytes: int
    verify: str
    seed: int
    part_bytes: int

    def __iter__(self) -> Iterator[Chunk]:
        return _cut(self.source, self.chunk_bytes, self.verify, self.seed, self.part_bytes)


Plan = tuple[Chunk, ...] | UnknownPlan


def plan(source: Source, chunk_bytes: int, verify: str, seed: int, part_bytes: int = sys.maxsize) -> Plan:
    """Cut a source into chunks of about `chunk_bytes`: small pieces share a chunk, large ones are cut.

    Parameters
    ----------
    source
    chunk_bytes
        At least one sample. A chunk is larger if an encoded block is.
    verify
        What is checked of each chunk in any case: with ``"full"`` everything, with ``"sample"`` and ``"auto"`` a
        random run, with ``"off"`` nothing.
    seed
        Seed of that choice.
    part_bytes
        Parts of a chunk have at most so many bytes, or one encoded block, which is decoded whole for each part.
    """
    if source.samples is None:
        return UnknownPlan(source, chunk_bytes, verify, seed, part_bytes)
    chunks = tuple(_cut(source, chunk_bytes, verify, seed, part_bytes))
    samples = sum(chunk.samples for chunk in chunks)
    if samples != source.samples:
        name = ", ".join(source.names)
        raise PipelineError(f"{name}: expected pieces of {source.samples} samples, got {samples}; report this")
    return chunks


def _cut(source: Source, chunk_bytes: int, verify: str, seed: int, part_bytes: int) -> Iterator[Chunk]:
    itemsize = source.dtype.itemsize
    step = max(chunk_bytes // itemsize * itemsize, itemsize)
    pieces: list[AnyPiece] = []
    filled = start = index = 0
    choice = random.Random(seed)

    def close() -> Chunk:
        nonlocal pieces, filled, start, index
        samples = filled // itemsize
        sampled = _sampled(samples, itemsize, verify, choice)
        parts = _parts(pieces, itemsize, sampled, max(part_bytes // itemsize, 1))
        always = {"full": parts, "off": ()}.get(verify, (sampled,))
        chunk = Chunk(index, tuple(pieces), source.dtype, always, start, parts)
        pieces, filled, start, index = [], 0, start + samples, index + 1
        return chunk

    for piece in source.pieces():
        if left_over := piece.nbytes % itemsize:
            raise PipelineError(f"{piece.where()}: expected whole samples of {itemsize} bytes, got {left_over} bytes "
                                "left over; check the dtype and whether the data is complete")  # fmt: skip
        if isinstance(piece, WholePiece) and filled and filled + piece.nbytes > step:
            yield close()
        done = 0
        while done < piece.nbytes:
            left = piece.nbytes - done
            length = left if isinstance(piece, WholePiece) else min(left, step - filled)
            if isinstance(piece, Piece) and length < left and step >= 256 * ALIGNMENT:
                excess = (piece.offset + done + length) % ALIGNMENT
                length -= excess if excess % itemsize == 0 and excess < length else 0
            pieces.append(piece.cut(done, length) if length < piece.nbytes else piece)
            done, filled = done + length, filled + length
            if length < left or filled >= step:
                yield close()
    if pieces:
        yield close()


def _sampled(samples: int, itemsize: int, verify: str, choice: random.Random) -> Region:
    """A random run; empty if everything is checked, or nothing."""
    if verify not in SAMPLED_SHARE:
        return Region(0, 0)
    length = min(samples, max(-(-samples // SAMPLED_SHARE[verify]), LEAST_BYTES[verify] // itemsize))
    return Region(choice.randrange(samples - length + 1), length)


def _parts(pieces: Sequence[AnyPiece], itemsize: int, sampled: Region, step: int) -> tuple[Region, ...]:
    """The sampled region, and the rest cut into parts of at most `step` samples, but not within encoded blocks."""
    samples = sum(piece.nbytes for piece in pieces) // itemsize
    inside = range(sampled.start + 1, sampled.start + sampled.samples)
    cuts = {0, sampled.start, sampled.start + sampled.samples, samples}
    encoded = any(isinstance(piece, WholePiece) for piece in pieces)
    ends = accumulate(piece.nbytes // itemsize for piece in pieces) if encoded else range(step, samples, step)
    cut = 0
    for end in ends:
        if end - cut >= step and end not in inside:
            cuts.add(end)
            cut = end
    return tuple(Region(first, last - first) for first, last in pairwise(sorted(cuts)))
