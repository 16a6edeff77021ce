"""The chunk plan: which region of the source each task reads. No sample is read here."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.storage.sources import Source

ALIGNMENT = 4096  # bytes; what direct reads from a disk want chunk borders to be a multiple of

# `--verify sample` recomputes one run of samples in each chunk, this share of it.
SAMPLED_SHARE = 256


@dataclass(frozen=True)
class Piece:
    """`nbytes` bytes at `offset` of a file; size and mtime are those of the file when it was planned.

    A file that the run itself writes to has none to keep.
    """

    path: str
    offset: int
    nbytes: int
    size: int | None
    mtime_ns: int | None


@dataclass(frozen=True)
class Region:
    """A run of samples of a chunk."""

    start: int
    samples: int


@dataclass(frozen=True)
class Chunk:
    """One Dask task: pieces of one or several files, read in order.

    Attributes
    ----------
    index
        Position in the plan.
    pieces
    dtype
        Of the samples, with byte order.
    checked
        The samples that the reference recomputes, if any.
    start
        Index of its first sample in the source.
    """

    index: int
    pieces: tuple[Piece, ...]
    dtype: np.dtype[Any]
    checked: Region | None = None
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of samples."""
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.nbytes // self.dtype.itemsize

    def part(self, region: Region) -> Chunk:
        """The chunk that consists of a region of this one."""
        skip, left = region.start * self.dtype.itemsize, region.samples * self.dtype.itemsize
        pieces = []
        for piece in self.pieces:
            start = min(skip, piece.nbytes)
            length = min(left, piece.nbytes - start)
            if length:
                pieces.append(Piece(piece.path, piece.offset + start, length, piece.size, piece.mtime_ns))
            skip, left = skip - start, left - length
        return Chunk(self.index, tuple(pieces), self.dtype, start=self.start + region.start)

    def where(self, region: Region | None = None) -> str:
        """File and byte range, for a message: the whole chunk's, or a region's."""
        ranges = [
            f"{piece.path} bytes {piece.offset}-{piece.offset + piece.nbytes - 1}"
            for piece in (self if region is None else self.part(region)).pieces
        ]
        return ranges[0] if len(ranges) == 1 else f"{ranges[0]} … {ranges[-1]} ({len(ranges)} pieces)"


def plan(source: Source, chunk_bytes: int, verify: str, seed: int) -> tuple[Chunk, ...]:
    """Cut a source into chunks of about `chunk_bytes`; small files share a chunk, large ones are cut.

    Parameters
    ----------
    source
    chunk_bytes
        At least one sample.
    verify
        What the reference recomputes: ``"full"`` everything, ``"sample"`` a random run of each chunk, ``"off"``
        nothing.
    seed
        Of that choice.
    """
    itemsize = source.dtype.itemsize
    step = max(chunk_bytes // itemsize * itemsize, itemsize)
    chunks: list[Chunk] = []
    pieces: list[Piece] = []
    filled = start = 0
    choice = random.Random(seed)

    def close() -> None:
        nonlocal pieces, filled, start
        samples = filled // itemsize
        chunks.append(Chunk(len(chunks), tuple(pieces), source.dtype, _checked(samples, verify, choice), start))
        pieces, filled, start = [], 0, start + samples

    for file in source.files:
        done = 0
        while done < file.nbytes:
            left = file.nbytes - done
            length = min(left, step - filled)
            if length < left and step >= 256 * ALIGNMENT:
                excess = (file.offset + done + length) % ALIGNMENT
                length -= excess if excess % itemsize == 0 and excess < length else 0
            pieces.append(Piece(file.path, file.offset + done, length, file.size, file.mtime_ns))
            done, filled = done + length, filled + length
            if length < left or filled == step:
                close()
    if pieces:
        close()
    return tuple(chunks)


def _checked(samples: int, verify: str, choice: random.Random) -> Region | None:
    if verify == "off":
        return None
    if verify == "full":
        return Region(0, samples)
    length = -(-samples // SAMPLED_SHARE)
    return Region(choice.randrange(samples - length + 1), length)
