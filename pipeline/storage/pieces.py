"""Pieces of chunks: byte runs of files or objects, encoded or assembled blocks, buffers to fill; each has its reader.

Chunks are pickled for the workers, so a piece holds no open file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from numpy.typing import NDArray

from pipeline.storage.identity import Identity
from pipeline.storage.remote.address import ObjectIdentity

# Stored bytes -> samples, shape (n,), in the dtype of the source. Runs on a worker, so it must be picklable.
Decode = Callable[[memoryview], NDArray[Any]]


class Filler(Protocol):
    """Reads samples on a worker, so it must be picklable."""

    def fill(self, start: int, buffer: NDArray[Any]) -> None:
        """Fill a buffer, shape (n,), in the dtype of the source, with the samples from an index on."""


@dataclass(frozen=True)
class Piece:
    """A byte run of a file: the bytes are samples. This is the fast path, through pinned memory or kvikio to a GPU.

    `identity` is that of the file at planning time; None for a file that the run itself writes. Sources yield byte runs
    of remote objects as `RemotePiece`.
    """

    path: str
    offset: int
    nbytes: int
    identity: Identity | ObjectIdentity | None

    @property
    def remote(self) -> bool:
        """Whether it is one of a remote object."""
        return isinstance(self.identity, ObjectIdentity)

    def cut(self, start: int, nbytes: int) -> Piece:
        """The part that begins at byte `start`."""
        return Piece(self.path, self.offset + start, nbytes, self.identity)

    def where(self) -> str:
        """File and byte range, for a message."""
        return f"{self.path} bytes {self.offset}-{self.offset + self.nbytes - 1}"


@dataclass(frozen=True)
class RemotePiece:
    """A byte run of a remote object: the bytes are samples, which arrive in host memory."""

    stored: Piece

    @property
    def nbytes(self) -> int:
        """Bytes of samples."""
        return self.stored.nbytes

    def cut(self, start: int, nbytes: int) -> RemotePiece:
        """The part that begins at byte `start`."""
        return RemotePiece(self.stored.cut(start, nbytes))

    def where(self) -> str:
        """Object and byte range, for a message."""
        return self.stored.where()


@dataclass(frozen=True)
class EncodedPiece:
    """A block of compressed or packed samples, or a part of one; it is read and decoded whole, in memory.

    Attributes
    ----------
    stored
        The stored bytes of the block.
    decode
    decoded
        Bytes of samples in the whole block.
    first, nbytes
        The part of these that the piece covers.
    """

    stored: Piece
    decode: Decode
    decoded: int
    first: int
    nbytes: int

    def cut(self, start: int, nbytes: int) -> EncodedPiece:
        """The part that begins at byte `start`; reading it decodes the whole block."""
        return replace(self, first=self.first + start, nbytes=nbytes)

    def where(self) -> str:
        """File and byte range of the block, for a message."""
        return self.stored.where()


class Block(Protocol):
    """Reads a block of samples whole, from one or several places, on a worker: it must be picklable."""

    def read(self) -> NDArray[Any]:
        """All samples of the block, shape (n,), in the dtype of the source."""


@dataclass(frozen=True)
class BlockPiece:
    """A block of samples that an object reads whole, in memory, or a part of it.

    Attributes
    ----------
    block
    name
        Where it comes from, for a message.
    decoded
        Bytes of samples in the whole block.
    first, nbytes
        The part of these that the piece covers.
    """

    block: Block
    name: str
    decoded: int
    first: int
    nbytes: int

    def cut(self, start: int, nbytes: int) -> BlockPiece:
        """The part that begins at byte `start`; reading it reads the whole block."""
        return replace(self, first=self.first + start, nbytes=nbytes)

    def where(self) -> str:
        """Source and place of the block, for a message."""
        return self.name


@dataclass(frozen=True)
class FilledPiece:
    """Samples that an object puts into a buffer.

    Attributes
    ----------
    filler
    start
        Index of the first sample for the filler.
    samples, itemsize
    name
        Where they come from, for a message.
    """

    filler: Filler
    start: int
    samples: int
    itemsize: int
    name: str

    @property
    def nbytes(self) -> int:
        """Bytes of samples."""
        return self.samples * self.itemsize

    def cut(self, start: int, nbytes: int) -> FilledPiece:
        """The part that begins at byte `start`."""
        return replace(self, start=self.start + start // self.itemsize, samples=nbytes // self.itemsize)

    def where(self) -> str:
        """Source and range of samples, for a message."""
        return f"{self.name} samples {self.start}-{self.start + self.samples - 1}"


WholePiece = EncodedPiece | BlockPiece  # read whole, even for a part
AnyPiece = Piece | RemotePiece | WholePiece | FilledPiece


def as_read(piece: AnyPiece) -> AnyPiece:
    """A piece, by the reader that it needs."""
    return RemotePiece(piece) if isinstance(piece, Piece) and piece.remote else piece
