"""Chunks that are right, but not as zarr writes them: of several members or frames, or without their size."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tests.cases.format_case import package_of

SKIPPED = struct.pack("<II", 0x184D2A57, 3) + b"abc"  # a skippable frame (RFC 8878, 3.1.2)


def frame(content: bytes, sized: bool) -> bytes:
    """A Zstandard frame of one raw block, which says how many bytes it has, or does not."""
    head = struct.pack("<BI", 0xA0, len(content)) if sized else b"\0\x58"
    return b"\x28\xb5\x2f\xfd" + head + (len(content) << 3 | 1).to_bytes(3, "little") + content


def _members(content: bytes) -> bytes:
    return b"".join(gzip.compress(content[first : first + 100]) for first in range(0, len(content), 100))


def _named(content: bytes) -> bytes:
    """With the name of a file in the header, as gzip itself writes it."""
    file = BytesIO()
    with gzip.GzipFile("name", "wb", fileobj=file) as writer:
        writer.write(content)
    return file.getvalue()


def _frames(content: bytes) -> bytes:
    compress = package_of("numcodecs.zstd").compress
    return b"".join(bytes(compress(part)) for part in (content[:100], content[100:]))


# Codec, and how a chunk is encoded.
ENCODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip, members": ("gzip", _members),
    "gzip, a name": ("gzip", _named),
    "gzip, stored": ("gzip", lambda content: gzip.compress(content, 0)),
    "zstd, frames": ("zstd", _frames),
    "zstd, without a size": ("zstd", lambda content: frame(content, False)),
    "zstd, behind a frame to skip": ("zstd", lambda content: SKIPPED + frame(content, True)),
}


def odd_zarr(folder: Path, name: str, array: NDArray[Any], chunks: tuple[int, ...], version: int) -> str:
    """A Zarr array whose chunks are encoded in one of these ways."""
    zarr, numcodecs, path = package_of("zarr"), package_of("numcodecs"), folder / "a.zarr"
    codec, encode = ENCODINGS[name]
    codecs = {2: {"gzip": numcodecs.GZip(), "zstd": numcodecs.Zstd()},
              3: {"gzip": zarr.codecs.GzipCodec(), "zstd": zarr.codecs.ZstdCodec()}}  # fmt: skip
    made = zarr.create_array(
        str(path), shape=array.shape, dtype=array.dtype, chunks=chunks, zarr_format=version,
        compressors=codecs[version][codec],
    )  # fmt: skip
    made[...] = array
    decode = {"gzip": gzip.decompress, "zstd": lambda stored: bytes(numcodecs.Zstd().decode(stored))}[codec]
    for file in [file for file in path.rglob("*") if file.is_file() and file.name[0].isdigit()]:
        file.write_bytes(encode(decode(file.read_bytes())))
    return str(path)
