"""Members of `.npz` files: byte runs within the file if they are stored, else deflated and decoded whole."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from kernels.transpose.cpu import transpose_cpu
from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, open_regular, whole
from pipeline.storage.formats.codecs import RAW_DEFLATE, Inflate
from pipeline.storage.formats.common import MOST_REASON, check_block, choose, readable
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import EncodedPiece, Piece
from pipeline.storage.protocol import Member, Opening, Source
from workflows.npy_header import Header, read_header

LOCAL_HEADER = struct.Struct("<4s22sHH")
WHAT = "a .npz file"
MOST_MEMBERS = 10_000


def _headers(path: str) -> list[tuple[zipfile.ZipInfo, Header | str]]:
    """Each `.npy` member with its header, or why it cannot be read."""
    with readable(path, WHAT), open_regular(path)[0] as file, zipfile.ZipFile(file) as archive:
        infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        if len(infos) > MOST_MEMBERS:
            raise ValueError(f"{len(infos)} members")
        return [(info, _header(archive, info)) for info in infos]


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header | str:
    if info.flag_bits & 1:
        return "expected samples, got an encrypted member; decrypt it"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "expected a stored or deflated member, got another compression; write it with numpy.savez"
    try:
        with archive.open(info) as file:
            return read_header(cast(BinaryIO, file))
    except Exception as error:  # of zlib, of the zip file, of the header
        return f"expected a .npy header, got {str(error)[:MOST_REASON]}; is the file complete?"


def _member(info: zipfile.ZipInfo, header: Header | str) -> Member:
    name = info.filename.removesuffix(".npy")
    if isinstance(header, str):
        return Member(name, None, (), stored=info.compress_size, problem=header)
    how = "" if info.compress_type == zipfile.ZIP_STORED else "deflate"
    return Member(name, header.dtype, header.shape, None, how, info.compress_size)


def members_of(path: str) -> list[Member]:
    """Arrays of a `.npz` file."""
    whole(path)
    return [_member(*item) for item in _headers(path)]


@dataclass(frozen=True)
class _Array:
    """Decodes a deflated member on a worker."""

    header: Header
    checksum: int

    def __call__(self, stored: memoryview) -> NDArray[Any]:
        shape, fortran, dtype, offset = self.header
        data = Inflate(RAW_DEFLATE)(stored, offset + math.prod(shape) * dtype.itemsize)
        if zlib.crc32(data) != self.checksum:
            raise ValueError("a wrong checksum")
        samples = np.frombuffer(data, dtype, offset=offset)
        return transpose_cpu(samples.reshape(shape[::-1])).reshape(-1) if fortran else samples


def open_npz(path: str, opening: Opening) -> Source:
    """A member of a `.npz` file.

    Raises
    ------
    UsageError
        If it cannot be read, or the user has to choose a member.
    """
    file = whole(path)
    items = {info.filename.removesuffix(".npy"): (info, header) for info, header in _headers(path)}
    member = choose(path, [_member(*item) for item in items.values()], opening)
    info, header = items[member.name]
    assert isinstance(header, Header)
    header = header._replace(dtype=opening.counted(header.dtype))
    name = f"{path}::{member.name}"
    opening.check(name, header.dtype, header.shape)
    nbytes = math.prod(header.shape) * header.dtype.itemsize
    if info.file_size != header.offset + nbytes:
        raise UsageError(f"{name}: expected {nbytes} bytes of data as its header says, got "
                         f"{info.file_size - header.offset}; the file is damaged")  # fmt: skip
    start = _start(path, info, file)
    if info.compress_type == zipfile.ZIP_STORED:
        if info.compress_size != info.file_size:
            raise UsageError(f"{name}: expected {info.file_size} stored bytes, got {info.compress_size}; the file is "
                             "damaged")  # fmt: skip
        shape, fortran, dtype, offset = header
        assert file.identity is not None
        return Files((SourceFile(path, start + offset, nbytes, file.identity, shape, fortran, name),), dtype)
    check_block(name, info.file_size)
    piece = EncodedPiece(file.cut(start, info.compress_size), _Array(header, info.CRC), nbytes, 0, nbytes)
    return PieceSource(name, header.dtype, header.shape, (piece,) if nbytes else (), (file,))


def _start(path: str, info: zipfile.ZipInfo, file: Piece) -> int:
    """First byte of a member's data: its local header may have other extra fields than the central one."""
    with open_regular(path)[0] as opened:
        opened.seek(info.header_offset)
        header = opened.read(LOCAL_HEADER.size)
    if len(header) == LOCAL_HEADER.size:
        magic, _, name, extra = LOCAL_HEADER.unpack(header)
        start: int = info.header_offset + LOCAL_HEADER.size + name + extra
        if magic == b"PK\3\4" and start + info.compress_size <= file.nbytes:
            return start
    raise UsageError(f"{path}: expected {WHAT}, got a member beyond its end; is the file complete?")
