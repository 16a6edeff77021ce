"""Byte runs of files on their way to a device, and how they become samples there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.common.stored_samples import unpack
from pipeline.errors import PipelineError
from pipeline.gpu.pinned import Checks
from pipeline.gpu.transfer import PINNED, Arriving, Transfer, gather, opened, transfer, transfer_path
from pipeline.storage.packed import PackedFiller
from pipeline.storage.pieces import AnyPiece, FilledPiece, Piece

DECODED = 2  # blocks of a chunk that are decoded on a device: while one is counted, the next one is decoded


class Made(Protocol):
    """A block of samples that is made of bytes that have arrived."""

    @property
    def began(self) -> Any:
        """The event with which the device began to decode it, into memory of its own; None if it does not."""

    @property
    def decoded(self) -> Any:
        """The event with which it ended."""

    def get(self) -> None:
        """Wait until it is decoded."""

    def samples(self) -> Any:
        """The samples, in native byte order, on the current stream; once."""


@dataclass(frozen=True)
class Arrived:
    """A block whose bytes are not decoded ahead."""

    samples: Callable[[], Any]
    began: ClassVar[None] = None
    decoded: ClassVar[None] = None

    def get(self) -> None:
        """Nothing was started."""


Begun = tuple[Arriving, Callable[[Any], Made]]  # what is on its way to a buffer, and what makes a block of it


class CheckedBeside(Protocol):
    """Checks samples of a chunk beside their read."""

    checks: Checks

    def piece(self, start: int) -> Piece:
        """The piece that a sample of the chunk lies in."""

    def runs(self, start: int, samples: int) -> NDArray[np.int64]:
        """What to check of these samples of the chunk, all in one piece, as `pipeline.gpu.pinned.Beside` takes it."""


MOST_FILES = 64  # that a block has open at a time: a process may often have no more than 1,024


class Loading:
    """Transfers from several files to one block, each of which stays open until its own has ended."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._under_way: deque[tuple[ExitStack, Transfer]] = deque()

    def add(
        self, file: Piece, first: int, runs: NDArray[np.int64], target: Any, order: int, checked: Checked | None = None
    ) -> None:
        """Start to read runs of a file as `transfer` does, and what is checked of them if they are one; waits for an
        earlier transfer if too many files are open."""
        if len(self._under_way) == MOST_FILES:
            self._end_first()
        with ExitStack() as stack:
            reading = stack.enter_context(opened(file, checked.where() if checked else None, order))
            checks = checked.runs(first, len(target)) if checked else None
            started = transfer(reading, file, first, runs, target, checks)
            self._under_way.append((stack.pop_all(), started))

    def _end_first(self) -> None:
        stack, first = self._under_way.popleft()
        with stack:
            first.result()

    def result(self) -> Any:
        """The memory, once all bytes have arrived and the files are as they were; errors as of `Transfer`."""
        try:
            while self._under_way:
                self._end_first()
        finally:
            self.get()
        return self._block

    @property
    def future(self) -> Any:
        """Itself."""
        return self

    def get(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            with suppress(PipelineError, OSError, RuntimeError):
                self._end_first()


class _Part(NamedTuple):
    """A part of a byte run: its first byte there, and its bytes; sample of the chunk with which the run begins."""

    piece: Piece
    first: int
    nbytes: int
    start: int


def loads_of(
    pieces: Iterable[Piece], dtype: np.dtype[Any], nbytes: int, beside: CheckedBeside | None, order: int
) -> Iterator[Callable[[Any], Begun]]:
    """What begins to read each block of byte runs, joined to as few blocks as possible, into a buffer on the device.

    Parameters
    ----------
    pieces, dtype
    nbytes
        Of a block at most.
    beside
        What is checked beside it, if anything: then these are all pieces of the chunk.
    order
        As `pipeline.gpu.transfer.opened` has it.
    """
    most, parts, filled, start = nbytes // dtype.itemsize * dtype.itemsize, list[_Part](), 0, 0
    for piece in pieces:
        done = 0
        while done < piece.nbytes:
            length = min(piece.nbytes - done, most - filled)
            parts.append(_Part(piece, done, length, start))
            done, filled = done + length, filled + length
            if filled == most:
                yield partial(_begin, parts, dtype, beside, order)
                parts, filled = [], 0
        start += piece.nbytes // dtype.itemsize
    if parts:
        yield partial(_begin, parts, dtype, beside, order)


def _begin(
    parts: Sequence[_Part], dtype: np.dtype[Any], beside: CheckedBeside | None, order: int, slot: Any
) -> Begun:  # fmt: skip
    checked = [Checked(beside, part.start, dtype) for part in parts] if beside else []
    arriving = _started(parts, slot[: sum(part.nbytes for part in parts)], order, checked)
    native = dtype.newbyteorder("=")
    return arriving, lambda raw: Arrived(lambda: to_native(raw.view(native), dtype))


def _started(parts: Sequence[_Part], block: Any, order: int, checked: Sequence[Checked] = ()) -> Arriving:
    """Reads of parts to a block, one after another: one for all of them if nothing is checked beside it."""
    if transfer_path() == PINNED and not checked:
        runs = [(number, part.piece.offset + part.first, part.nbytes) for number, part in enumerate(parts)]
        return gather([part.piece for part in parts], np.array(runs), block, order)
    loading, filled = Loading(block), 0
    try:
        for part, of_part in zip_longest(parts, checked):
            target = block[filled : filled + part.nbytes]
            loading.add(part.piece, part.first, np.array([[0, part.nbytes]]), target, order, of_part)
            filled += part.nbytes
    except BaseException:
        loading.get()
        raise
    return loading


def is_packed(piece: AnyPiece) -> bool:
    """Whether samples are packed in a file, and can be unpacked on a device."""
    filler = piece.filler if isinstance(piece, FilledPiece) else None
    return isinstance(filler, PackedFiller) and not filler.stored.remote


def packed_loads(piece: FilledPiece, nbytes: int, order: int) -> Iterator[Callable[[Any], Begun]]:
    """What begins to read each block of packed samples, which have at most so many bytes once they are unpacked, into
    a buffer on the device."""
    assert isinstance(piece.filler, PackedFiller)
    samples, packing = piece.samples, piece.filler.packing
    stored, skipped = piece.filler.run(piece.start, samples)
    step = nbytes // (packing.group * packing.dtype.itemsize) * packing.group_bytes

    def begin(first: int, slot: Any) -> Begun:
        length = min(step, stored.nbytes - first)
        before = first // packing.group_bytes * packing.group - skipped  # samples of the piece before the block
        inside = slice(max(-before, 0), samples - before)
        arriving = _started([_Part(stored, first, length, 0)], slot[:length], order)
        return arriving, lambda raw: Arrived(lambda: unpack(raw, packing.bits, packing.signed, packing.big)[inside])

    return (partial(begin, first) for first in range(0, stored.nbytes, step))


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
        """The runs of a block, by its place in the run of samples."""
        return self.beside.runs(self.start + first // self.dtype.itemsize, nbytes // self.dtype.itemsize)


def to_native(block: Any, dtype: np.dtype[Any]) -> Any:
    """Swap the bytes of each sample on the device if the file has the other byte order."""
    import cupy

    if dtype.isnative:
        return block
    swapped = block.view(cupy.uint8).reshape(-1, dtype.itemsize)[:, ::-1]
    return cupy.ascontiguousarray(swapped).reshape(-1).view(block.dtype)
