"""WAV, RF64 and BW64 files: PCM of 8, 16, 24 and 32 bits, and floats; frames × channels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, open_regular
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import EncodedPiece, Piece
from pipeline.storage.protocol import Opening, Source

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
DTYPES = {(PCM, 8): "u1", (PCM, 16): "<i2", (PCM, 24): "<i4", (PCM, 32): "<i4", (FLOAT, 32): "<f4", (FLOAT, 64): "<f8"}
RIFFS = (b"RIFF", b"RF64", b"BW64")
# What follows the kind of samples in an extensible format: of all kinds that have a number, and of ambisonic ones.
GUIDS = (bytes.fromhex("000000001000800000aa00389b71"), bytes.fromhex("00002107d3118644c8c1ca000000"))
UNKNOWN = 2**32 - 1  # size in a header that has none: as in `ds64`, or to the end of the file
BLOCK = 3 * 2**20  # bytes of packed 24-bit samples that are decoded at once
MOST_CHUNKS = 1000  # before the samples


@dataclass(frozen=True)
class Header:
    """What a WAV file says: kind and bits of samples, channels, and where they lie."""

    kind: int
    bits: int
    channels: int
    offset: int
    nbytes: int


def _header(file: BinaryIO, size: int) -> Header:
    """Header of a file of a size; ValueError says what is wrong."""
    riff = file.read(12)
    if riff[:4] not in RIFFS or riff[8:] != b"WAVE":
        raise ValueError("another header; is the file complete?")
    kind = bits = channels = 0
    long = None
    for _ in range(MOST_CHUNKS):
        head = file.read(8)
        if len(head) < 8:
            raise ValueError("no samples; is the file complete?")
        name, length = head[:4], int.from_bytes(head[4:], "little")
        start = file.tell()
        if name == b"ds64":
            long = int.from_bytes(file.read(16)[8:], "little")
        elif name == b"fmt ":
            text = file.read(min(length, 40))
            if len(text) < 16:
                raise ValueError("a format that is too short; is the file complete?")
            kind, channels, bits = (int.from_bytes(text[at : at + 2], "little") for at in (0, 2, 14))
            frame = int.from_bytes(text[12:14], "little")
            if kind == EXTENSIBLE:
                kind, valid = int.from_bytes(text[24:26], "little"), int.from_bytes(text[18:20], "little")
                if text[26:40] not in GUIDS or valid != bits:
                    raise ValueError(f"samples of {valid} bits in {bits}, {text[24:40].hex()}; convert it to PCM")
            if (kind, bits) not in DTYPES or not channels or frame != channels * bits // 8:
                raise ValueError(f"samples of kind {kind} with {bits} bits in frames of {frame} bytes, {channels} "
                                 "channels; convert it to PCM")  # fmt: skip
        elif name == b"data":
            if not channels:
                raise ValueError("samples before their format; is the file complete?")
            nbytes = size - start if length == UNKNOWN and long is None else length if length != UNKNOWN else long
            assert nbytes is not None
            if nbytes > size - start:
                raise ValueError(f"{size - start} bytes where {nbytes} of samples were expected; is the file complete?")
            if nbytes % frame:
                raise ValueError(f"{nbytes} bytes of samples in frames of {frame}; is the file complete?")
            if not nbytes and size > start and not _is_chunk(file.read(8), size - start):
                raise ValueError(f"no length, and {size - start} bytes; was the recording finished?")
            return Header(kind, bits, channels, start, nbytes)
        file.seek(start + length + length % 2, os.SEEK_SET)
    raise ValueError("no samples; is the file complete?")


def _is_chunk(head: bytes, room: int) -> bool:
    """Whether another chunk begins here, where there are so many bytes."""
    named = len(head) == 8 and all(32 <= byte < 127 for byte in head[:4])
    return named and int.from_bytes(head[4:], "little") <= room - 8


def unpack_24(stored: memoryview) -> NDArray[Any]:
    """Packed 24-bit samples, little endian, as int32 of the same values."""
    packed = np.frombuffer(stored, np.uint8).reshape(-1, 3)
    wide = np.empty((len(packed), 4), np.uint8)
    wide[:, 1:] = packed
    wide[:, 0] = 0
    return (wide.view("<i4") >> 8).reshape(-1)


def open_wav(path: str, opening: Opening) -> Source:
    """The samples of a WAV file, shape (frames, channels) if there are several channels.

    Raises
    ------
    UsageError
        If its header cannot be read.
    """
    file, identity = open_regular(path)
    whole_file = Piece(path, 0, identity.size, identity)
    try:
        with file:
            header = _header(file, whole_file.nbytes)
    except (ValueError, OSError) as error:
        raise UsageError(f"{path}: expected a WAV file of PCM or floats, got {error}") from None
    dtype = np.dtype(DTYPES[header.kind, header.bits])
    samples = header.nbytes * 8 // header.bits
    shape = (samples // header.channels, header.channels) if header.channels > 1 else (samples,)
    opening.check(path, dtype, shape)
    if header.bits != 24:
        return Files((SourceFile(path, header.offset, header.nbytes, identity, shape),), dtype)
    pieces = []
    for start in range(0, header.nbytes, BLOCK):
        stored = whole_file.cut(header.offset + start, min(BLOCK, header.nbytes - start))
        decoded = stored.nbytes // 3 * 4
        pieces.append(EncodedPiece(stored, unpack_24, decoded, 0, decoded))
    return PieceSource(path, dtype, shape, tuple(pieces), (whole_file,))
