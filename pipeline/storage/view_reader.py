"""Reads the elements of a view from a run of samples: neighbours in one read, the rest one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import tee
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from pipeline.errors import VerificationError
from pipeline.storage.blocks import decode_whole
from pipeline.storage.pieces import FilledPiece, Piece, RemotePiece, WholePiece
from pipeline.storage.planned_file import fill, open_planned, stored_bytes
from pipeline.storage.scratch import aligned_empty
from pipeline.storage.view import View, boxes
from workflows.regions import Bounds

BLOCK_BYTES = 2**22  # read at once, of which a part may be left out
GAP_BYTES = 2**16  # read in vain rather than skipped: another read takes as long
STEP = 2**16  # elements whose positions are in memory
CHECKED = 8  # elements of each buffer that are read again by themselves


@dataclass(frozen=True)
class Read:
    """Samples to read: where the first one is, how many, and the elements among them that go into a target."""

    start: int
    samples: int
    strides: tuple[int, ...]
    target: NDArray[Any]

    @property
    def whole(self) -> bool:
        """Whether they are the target."""
        return self.samples == self.target.size and self.target.flags.c_contiguous

    def put(self, samples: NDArray[Any]) -> None:
        """Pick the elements."""
        strides = tuple(stride * samples.itemsize for stride in self.strides)
        self.target[...] = as_strided(samples, self.target.shape, strides, writeable=False)


def reads(view: View, target: NDArray[Any], start: int = 0) -> Iterator[Read]:
    """What to read for a view.

    Parameters
    ----------
    view
    target : array, shape view.lengths
    start
        Position of the first sample of the run in the array.
    """
    itemsize, span = target.itemsize, view.span
    strides = tuple(one.step * stride for one, stride in zip(view.ranges, view.strides, strict=True))
    if span == target.size or (span * itemsize <= BLOCK_BYTES and _close(view, strides, itemsize)):
        yield Read(view.start - start, span, strides, target)
        return
    axis = next(axis for axis, length in enumerate(view.lengths) if length > 1)
    at_once = max(BLOCK_BYTES // (strides[axis] * itemsize), 1) if _close(view, strides, itemsize) else 1
    for first in range(0, view.lengths[axis], at_once):
        bounds = first, min(first + at_once, view.lengths[axis])
        box = tuple(bounds if other == axis else (0, length) for other, length in enumerate(view.lengths))
        yield from reads(view.part(box), target[tuple(slice(*one) for one in box)], start)


def _close(view: View, strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether no gap between its elements is worth another read."""
    span = 1  # from the first to the last element of one index of an axis
    for length, stride in zip(reversed(view.lengths), reversed(strides), strict=True):
        if length > 1 and (stride - span) * itemsize > GAP_BYTES:
            return False
        span += (length - 1) * stride
    return True


@dataclass(frozen=True)
class ViewFiller:
    """Fills buffers with elements of a view on a worker.

    Attributes
    ----------
    piece
        Samples of the array in the order in which they are stored.
    start
        Position of the first of them.
    view
    fortran
        Whether the first index varies fastest; of a whole array, for regions only.
    """

    piece: Piece | RemotePiece | FilledPiece
    start: int
    view: View
    fortran: bool = False

    def fill(self, start: int, buffer: NDArray[Any]) -> None:
        """The elements from an index on, in C order."""
        done = 0
        for box in boxes(self.view.lengths, start, start + len(buffer)):
            part = self.view.part(box)
            self._read(part, buffer[done : done + part.size].reshape(part.lengths))
            done += part.size

    def fill_region(self, region: Bounds, block: NDArray[Any]) -> None:
        """The elements of a region of the view."""
        if block.size:
            axes = tuple(slice(None) if axis in self.view.kept else None for axis in range(len(self.view.shape)))
            self._read(self.view.region(region), block[axes])

    def _read(self, view: View, target: NDArray[Any]) -> None:
        stored = reads(view.reversed, target.T) if self.fortran else reads(view, target, self.start)
        if isinstance(self.piece, FilledPiece):
            self._filled(self.piece, stored)
        elif isinstance(self.piece, RemotePiece):
            self._arrived(self.piece.stored, stored)
        else:
            self._from_file(self.piece, stored, view, target)

    def _from_file(self, piece: Piece, stored: Iterator[Read], view: View, target: NDArray[Any]) -> None:
        kept = np.empty(0, np.uint8)
        with open_planned(piece) as fd:
            for read in stored:
                dtype, nbytes = read.target.dtype, read.samples * read.target.itemsize
                if read.whole:
                    block = read.target.reshape(-1).view(np.uint8)
                else:
                    kept = kept if len(kept) >= nbytes else aligned_empty(nbytes)
                    block = kept[:nbytes]
                fill(fd, block.data, piece, read.start * dtype.itemsize)
                if not read.whole:
                    read.put(block.view(dtype))
            self._check(fd, piece, view, target)

    def _check(self, fd: int, piece: Piece, view: View, target: NDArray[Any]) -> None:
        """Read a few elements one by one, at places computed in another way: index by index.

        Raises
        ------
        VerificationError
            If one has other bytes.
        """
        shape, axes = self.view.shape, range(len(self.view.shape))
        for number in range(CHECKED):
            place = np.unravel_index((target.size - 1) * number // (CHECKED - 1), target.shape)
            position = 0
            for axis in reversed(axes) if self.fortran else axes:
                position = position * shape[axis] + view.ranges[axis][place[axis]]
            element = np.empty(1, target.dtype)
            fill(fd, element.view(np.uint8).data, piece, (position - self.start) * target.itemsize)
            if element.tobytes() != target[tuple(slice(at, at + 1) for at in place)].tobytes():
                raise VerificationError(f"{piece.path}: expected the element {position} of the array in a slice of it, "
                                        "got another one; report this")  # fmt: skip

    def _arrived(self, piece: Piece, stored: Iterator[Read]) -> None:
        stored, asked = tee(stored)
        cuts = (piece.cut(read.start * read.target.itemsize, read.samples * read.target.itemsize) for read in asked)
        for read, data in zip(stored, stored_bytes(cuts), strict=True):
            read.put(np.frombuffer(data, read.target.dtype))

    def _filled(self, piece: FilledPiece, stored: Iterator[Read]) -> None:
        for read in stored:
            samples = np.empty(read.samples, read.target.dtype)
            piece.filler.fill(piece.start + read.start, samples)
            read.put(samples)


@dataclass(frozen=True)
class PickedBlock:
    """Elements of a view in a block of samples that is decoded whole.

    Attributes
    ----------
    piece, dtype
    start
        Position of the block's first sample in the array.
    view
    first, stop
        Which elements of the view these are.
    """

    piece: WholePiece
    dtype: np.dtype[Any]
    start: int
    view: View
    first: int
    stop: int

    def read(self) -> NDArray[Any]:
        """All of them."""
        samples = decode_whole(self.piece, self.dtype)[self.piece.first // self.dtype.itemsize :]
        picked = np.empty(self.stop - self.first, self.dtype)
        for first in range(self.first, self.stop, STEP):
            numbers = np.arange(first, min(first + STEP, self.stop))
            places = np.full(len(numbers), -self.start)
            # NumPy has no indices without axes, as of a single number.
            indices = np.unravel_index(numbers, self.view.lengths) if self.view.lengths else ()
            for index, one, stride in zip(indices, self.view.ranges, self.view.strides, strict=True):
                places += (one.start + index * one.step) * stride
            picked[numbers - self.first] = samples[places]
        return picked
