"""Packed samples of 10, 12 and 14 bits without gaps between them, as samples of 16 bits; unpacked here on the CPU.

Little bit order: the stream's bits are counted from the least significant one of each byte, and a sample begins with
its own least significant bit; so Mono10p, Mono12p and Mono14p of GenICam. Big: from the most significant one of each
byte, and a sample begins with its most significant bit; so TIFF, DNG and CoaXPress. Two samples of 12 bits in
hexadecimal digits, 0xABC and 0xDEF, are the bytes BC FA DE or AB CD EF.
"""

from __future__ import annotations

import ctypes
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from pipeline.errors import UsageError, VerificationError
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import FilledPiece, Piece
from pipeline.storage.planned_file import stored_bytes
from pipeline.storage.protocol import PACKED, Opening

SOURCE = Path(__file__).with_suffix(".cpp")

COMPARED = 64  # groups, at a random place and at the end, that NumPy unpacks, too


@dataclass(frozen=True)
class Packing:
    """How samples are packed: bits of one, whether they are two's complements, and whether the bit order is big."""

    bits: int
    signed: bool
    big: bool

    @staticmethod
    def of(opening: Opening) -> Packing | None:
        """What a dtype in `PACKED` and the byte order say; None for any other dtype."""
        if opening.dtype is None or opening.dtype not in PACKED:
            return None
        return Packing(int(opening.dtype[1:3]), opening.dtype[0] == "i", opening.byteorder == "big")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the unpacked samples."""
        return np.dtype(np.int16 if self.signed else np.uint16)

    @property
    def group(self) -> int:
        """Samples of a group, the fewest that end with a byte."""
        return 2 if self.bits == 12 else 4

    @property
    def group_bytes(self) -> int:
        """Bytes of a group."""
        return self.group * self.bits // 8

    def unpack(self, stored: NDArray[np.uint8], samples: NDArray[Any]) -> None:
        """Unpack whole groups.

        Parameters
        ----------
        stored : uint8 array, contiguous, `group_bytes` for each group
        samples : array of `dtype`, contiguous
            Gets `group` samples of each.

        Raises
        ------
        VerificationError
            If compiled code does not give NumPy's samples: on a CPU a check would read the same ones.
        """
        groups = len(stored) // self.group_bytes
        library = cxx.library(SOURCE)
        if library is None:
            self._unpack(stored.reshape(groups, self.group_bytes), samples.reshape(groups, self.group))
            return
        function, address = library.unpack_groups, ctypes.c_void_p
        function.argtypes = ctypes.c_int, ctypes.c_bool, ctypes.c_bool, address, ctypes.c_size_t, address
        function.restype = None
        function(self.bits, self.big, self.signed, stored.ctypes.data, groups, samples.ctypes.data)
        some = np.empty((min(groups, COMPARED), self.group), self.dtype)
        for first in {secrets.randbelow(groups - len(some) + 1), groups - len(some)}:
            part = slice(first, first + len(some))
            self._unpack(stored.reshape(groups, self.group_bytes)[part], some)
            if not np.array_equal(some, samples.reshape(groups, self.group)[part]):
                raise VerificationError(f"samples of {self.bits} bits are unpacked wrongly on this CPU; there is no "
                                        "result; run again, and test the memory")  # fmt: skip

    def _unpack(self, stored: NDArray[np.uint8], samples: NDArray[Any]) -> None:
        words = np.zeros((len(stored), 8), np.uint8)
        words[:, : self.group_bytes] = stored[:, ::-1] if self.big else stored
        bits, spare = words.view("<u8")[:, 0], 16 - self.bits
        for place in range(self.group):
            shift = self.bits * (self.group - 1 - place if self.big else place)
            samples[:, place] = (bits >> np.uint64(shift) << np.uint64(spare)).astype(self.dtype) >> spare

    def check(self, name: str, nbytes: int) -> None:
        """Raise UsageError unless so many bytes are whole groups."""
        if left_over := nbytes % self.group_bytes:
            raise UsageError(f"{name}: expected a multiple of {self.group_bytes} bytes ({self.group} samples of "
                             f"{self.bits} bits), got {nbytes}, {left_over} too many; check --dtype and "
                             "--offset")  # fmt: skip


@dataclass(frozen=True)
class PackedFiller:
    """Unpacks any samples of a byte run on a worker."""

    stored: Piece
    packing: Packing

    def run(self, start: int, samples: int) -> tuple[Piece, int]:
        """The groups in which some samples lie, and the number of samples in them before the first of these."""
        packing = self.packing
        first, last = start // packing.group, -(-(start + samples) // packing.group)
        run = self.stored.cut(first * packing.group_bytes, (last - first) * packing.group_bytes)
        return run, start - first * packing.group

    def fill(self, start: int, buffer: NDArray[Any]) -> None:
        """The samples from an index on; groups at both ends are unpacked whole."""
        packing = self.packing
        run, skipped = self.run(start, len(buffer))
        stored = np.frombuffer(next(stored_bytes((run,))), np.uint8)
        number = run.nbytes // packing.group_bytes * packing.group
        samples = buffer if number == len(buffer) else np.empty(number, packing.dtype)
        packing.unpack(stored, samples)
        if samples is not buffer:
            buffer[...] = samples[skipped : skipped + len(buffer)]


def open_packed(stored: Piece, packing: Packing) -> PieceSource:
    """The packed samples of a byte run, one dimension.

    Raises
    ------
    UsageError
        If it does not hold whole groups.
    """
    packing.check(stored.path, stored.nbytes)
    samples = stored.nbytes // packing.group_bytes * packing.group
    piece = FilledPiece(PackedFiller(stored, packing), 0, samples, packing.dtype.itemsize, stored.path)
    return PieceSource(stored.path, packing.dtype, (samples,), (piece,), (stored,))
