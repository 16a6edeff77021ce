"""Byte runs of files on their way to a device, and how they become samples there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.common.decode import unpack
from pipeline.gpu.pinned import Checks
from pipeline.gpu.transfer import Arriving, opened, transfer
from pipeline.storage.packed import PackedFiller
from pipeline.storage.pieces import AnyPiece, FilledPiece, Piece

# What is on its way to a buffer, and (bytes that have arrived) -> samples, in native byte order.
Begun = tuple[Arriving, Callable[[Any], Any]]


class CheckedBeside(Protocol):
    """Checks samples of a chunk beside their read."""

    checks: Checks

    def piece(self, start: int) -> Piece:
        """The piece that a sample of the chunk lies in."""

    def runs(self, start: int, samples: int) -> NDArray[np.int64]:
        """What to check of these samples of the chunk, all in one piece, as `pipeline.gpu.pinned.Beside` takes it."""


@dataclass(frozen=True)
class Run:
    """Samples as a byte run of a file has them.

    Attributes
    ----------
    stored
    step
        Bytes of a block at most.
    samples
        (bytes of a block on the device, where they begin in the run) -> samples, in native byte order.
    """

    stored: Piece
    step: int
    samples: Callable[[Any, int], Any]

    @contextmanager
    def opened(self, checked: Checked | None) -> Iterator[list[Callable[[Any], Begun]]]:
        """What begins to read each block into a buffer on the device, as long as the file is open."""
        with opened(self.stored, checked.where() if checked else None) as reading:

            def begin(start: int, slot: Any) -> Begun:
                length = min(self.step, self.stored.nbytes - start)
                runs, checks = np.array([[0, length]]), checked.runs(start, length) if checked else None
                arriving = transfer(reading, self.stored, start, runs, slot[:length], checks)
                return arriving, lambda raw: self.samples(raw, start)

            yield [partial(begin, start) for start in range(0, self.stored.nbytes, self.step)]


def run_of(piece: AnyPiece, dtype: np.dtype[Any], nbytes: int) -> Run | None:
    """Blocks of at most so many bytes, of samples; None if no byte run has them."""
    if isinstance(piece, Piece):
        native, itemsize = dtype.newbyteorder("="), dtype.itemsize
        return Run(piece, nbytes // itemsize * itemsize, lambda raw, _: to_native(raw.view(native), dtype))
    if not isinstance(piece, FilledPiece) or not isinstance(piece.filler, PackedFiller) or piece.filler.stored.remote:
        return None
    packing = piece.filler.packing
    stored, skipped = piece.filler.run(piece.start, piece.samples)

    def unpacked(raw: Any, first: int) -> Any:
        before = first // packing.group_bytes * packing.group - skipped  # samples of the piece before the block
        return unpack(raw, packing.bits, packing.signed, packing.big)[max(-before, 0) : piece.samples - before]

    return Run(stored, nbytes // (packing.group * packing.dtype.itemsize) * packing.group_bytes, unpacked)


@dataclass(frozen=True)
class Checked:
    """What is checked beside the read of a byte run of samples, which begins with the sample `start` of its chunk."""

    beside: CheckedBeside
    start: int
    dtype: np.dtype[Any]

    def where(self) -> tuple[Checks, Piece]:
        """As `pipeline.gpu.transfer.opened` takes it."""
        return self.beside.checks, self.beside.piece(self.start)

    def runs(self, first: int, nbytes: int) -> NDArray[np.int64]:
        """Of a block, by its place in the run."""
        return self.beside.runs(self.start + first // self.dtype.itemsize, nbytes // self.dtype.itemsize)


def to_native(block: Any, dtype: np.dtype[Any]) -> Any:
    """Swap the bytes of each sample on the device if the file has the other byte order."""
    import cupy

    if dtype.isnative:
        return block
    swapped = block.view(cupy.uint8).reshape(-1, dtype.itemsize)[:, ::-1]
    return cupy.ascontiguousarray(swapped).reshape(-1).view(block.dtype)
