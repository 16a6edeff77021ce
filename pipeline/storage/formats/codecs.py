"""Decoders of stored chunks: none makes more bytes than the chunk is declared to have."""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

INFLATED_BYTES = 2**20  # at a time
STORED_BYTES = 2**16  # at a time: zlib copies what follows the end of a stream
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_HEAD = 18  # bytes of a Zstandard frame that have its size
ZLIB, GZIP, RAW_DEFLATE = 15, 31, -15  # window bits, which say what surrounds the deflated bytes

# Encoded bytes, size of what they decode to -> decoded bytes.
Step = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Inflate:
    """Deflated bytes, with the header and checksum that the window bits say; at most `size`, or exactly.

    gzip may have several members. A part at a time: zlib would have what it makes twice in memory, and a chunk may have
    a GiB.
    """

    bits: int
    exact: bool = True

    def __call__(self, data: Any, size: int, out: Any = None) -> Any:
        out = np.empty(size, np.uint8) if out is None else out
        at, done = self._stream(data, 0, out, 0)
        while self.bits == GZIP and bytes(data[at : at + 2]) == GZIP_MAGIC:  # a further member (RFC 1952, 2.2)
            at, done = self._stream(data, at, out, done)
        if self.exact and done < size:
            raise ValueError(f"{done} bytes where {size} were expected")
        return out[:done]

    def _stream(self, data: Any, at: int, out: Any, done: int) -> tuple[int, int]:
        """Inflate from a byte on, after what was decoded so far; returns where both end."""
        inflating, size = zlib.decompressobj(self.bits), len(out)
        for first in range(at, len(data), STORED_BYTES):
            part = data[first : first + STORED_BYTES]
            end = first + len(part)
            while part is not None:
                most = min(size - done + 1, INFLATED_BYTES)
                decoded = inflating.decompress(part, most)
                if done + len(decoded) > size:
                    raise ValueError(f"more than {size} bytes where {size} were expected")
                out[done : done + len(decoded)] = np.frombuffer(decoded, np.uint8)
                done += len(decoded)
                part = inflating.unconsumed_tail if len(decoded) == most and not inflating.eof else None
            if inflating.eof:
                return end - len(inflating.unused_data), done
        raise ValueError("deflated bytes without their end")


@dataclass(frozen=True)
class Unshuffle:
    """Bytes that were sorted by their place in an item."""

    itemsize: int

    def __call__(self, data: Any, size: int) -> Any:
        items = size // self.itemsize
        shuffled = np.frombuffer(data, np.uint8)
        sorted_ = shuffled[: items * self.itemsize].reshape(self.itemsize, items)
        return np.concatenate([sorted_.T.reshape(-1), shuffled[items * self.itemsize :]])


def zstd(data: Any, size: int, out: Any = None) -> Any:
    """Zstandard frames, into a buffer of the declared size, which they have to fill."""
    stored, out = np.frombuffer(data, np.uint8), np.empty(size, np.uint8) if out is None else out
    if (library := _zstd_library()) is None:
        return _zstd_by_numcodecs(data, size, out)
    # The first of several frames, or one that is skipped, does not say how much all of them have: the library does.
    done = library.ZSTD_decompress(out.ctypes.data, size, stored.ctypes.data, len(stored))
    if library.ZSTD_isError(done):
        if (declared := zstd_size(bytes(data[:ZSTD_HEAD]))) is not None and declared > size:
            raise ValueError(f"{declared} bytes where {size} were expected")
        raise ValueError(f"Zstandard: {library.ZSTD_getErrorName(done).decode().lower()}, {size} bytes were expected")
    if done != size:
        raise ValueError(f"{done} bytes where {size} were expected")
    return out


@cache
def _zstd_library() -> ctypes.CDLL | None:
    """The Zstandard library inside numcodecs; None if its functions are hidden."""
    try:
        library = numcodecs_library("zstd")
        functions = library.ZSTD_decompress, library.ZSTD_isError, library.ZSTD_getErrorName
    except (OSError, AttributeError):
        return None
    address, number = ctypes.c_void_p, ctypes.c_size_t
    for function, arguments, result in zip(
        functions, ((address, number, address, number), (number,), (number,)),
        (number, ctypes.c_uint, ctypes.c_char_p), strict=True,
    ):  # fmt: skip
        function.argtypes, function.restype = arguments, result
    return library


def numcodecs_library(module: str) -> ctypes.CDLL:
    """The library that a module of numcodecs is, with the functions of the codec; ImportError without numcodecs."""
    return ctypes.CDLL(str(import_module(f"numcodecs.{module}").__file__))


def _zstd_by_numcodecs(data: Any, size: int, out: Any) -> Any:
    """`zstd`, decoded up to three times: numcodecs does not say how many bytes there were."""
    from numcodecs.zstd import decompress  # not by its registry, which a thread may see half filled

    other = (declared := zstd_size(bytes(data[:ZSTD_HEAD]))) not in (None, size)
    if (declared != size and _fits(decompress, data, size - 1)) or (other and not _fits(decompress, data, size)):
        raise ValueError(f"{declared if other else 'fewer'} bytes where {size} were expected")
    return _into(decompress, data, size, out)


def _fits(decompress: Callable[[Any, Any], Any], data: Any, size: int) -> bool:
    """Whether a buffer has room for what is decoded: numcodecs leaves the rest of a larger one as it is."""
    try:
        decompress(np.frombuffer(data, np.uint8), np.empty(size, np.uint8))
    except (RuntimeError, ValueError):
        return False
    return True


def lz4(data: Any, size: int, out: Any = None) -> Any:
    """LZ4 after its size, in numcodecs' layout, into a buffer of the declared size."""
    from numcodecs.lz4 import decompress

    if (declared := int.from_bytes(data[:4], "little")) != size:
        raise ValueError(f"{declared} bytes where {size} were expected")
    return _into(decompress, data, size, out)


def _into(decompress: Callable[[Any, Any], Any], data: Any, size: int, out: Any) -> Any:
    out = np.empty(size, np.uint8) if out is None else out
    decompress(np.frombuffer(data, np.uint8), out)
    return out


def zstd_size(head: bytes) -> int | None:
    """Bytes that a Zstandard frame says it has (RFC 8878, 3.1.1.1); None if it does not say."""
    if len(head) < 6:
        return None
    flags = head[4]
    single, length = flags >> 5 & 1, (flags >> 6 and 1 << (flags >> 6)) or (flags >> 5 & 1)
    start = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    if head[:4] != b"\x28\xb5\x2f\xfd" or not length or len(head) < start + length:
        return None
    return int.from_bytes(head[start : start + length], "little") + (256 if length == 2 else 0)


def blosc(data: Any, size: int) -> Any:
    """Blosc, whose header says how much it decodes to."""
    from numcodecs.blosc import decompress

    header = bytes(data[:16])
    declared, stored = int.from_bytes(header[4:8], "little"), int.from_bytes(header[12:16], "little")
    if len(header) < 16 or declared != size or stored != len(data):
        raise ValueError(f"a Blosc header of {declared} bytes in {stored} where {size} in {len(data)} were expected")
    return decompress(np.frombuffer(data, np.uint8), np.empty(size, np.uint8))


def crc32c(data: Any, size: int) -> Any:
    """Bytes and their CRC-32C."""
    import google_crc32c

    body = bytes(data[:-4])
    if google_crc32c.value(body) != int.from_bytes(data[-4:], "little"):
        raise ValueError("a wrong checksum")
    return body


@dataclass(frozen=True)
class Decoder:
    """Stored bytes, shape of the chunk -> its samples in that shape.

    Attributes
    ----------
    steps
        In the order of decoding; each returns as many bytes as the chunk has.
    dtype
    order
        Axes in the order in which they are stored, the last one varying fastest; None for C order.
    """

    steps: tuple[Step, ...]
    dtype: np.dtype[Any]
    order: tuple[int, ...] | None = None

    def into(self, stored: memoryview, target: NDArray[Any]) -> bool:
        """Decode a chunk where its samples are to be; whether that is possible."""
        if self.order is not None or not self.steps or not target.flags.c_contiguous:
            return False
        last = self.steps[-1]
        if last not in (zstd, lz4) and not isinstance(last, Inflate):
            return False
        data: Any = stored
        for step in self.steps[:-1]:
            data = step(data, target.nbytes)
        last(data, target.nbytes, target.reshape(-1).view(np.uint8))
        return True

    def __call__(self, stored: memoryview, shape: tuple[int, ...]) -> NDArray[Any]:
        size = math.prod(shape) * self.dtype.itemsize
        data: Any = stored
        for step in self.steps:
            data = step(data, size)
        samples = np.frombuffer(data, self.dtype)
        if samples.nbytes != size:
            raise ValueError(f"{samples.nbytes} bytes where {size} were expected")
        if self.order is None:
            return samples.reshape(shape)
        return samples.reshape([shape[axis] for axis in self.order]).transpose(np.argsort(self.order))
