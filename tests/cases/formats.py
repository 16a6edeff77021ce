"""Three formats for tests only, each the minimum for a new one: a source, a picklable reader, a `Format`."""

from __future__ import annotations

import gzip
import os
import select
import stat
import threading
import zlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.array_source import keep
from pipeline.storage.files import open_regular
from pipeline.storage.identity import Identity
from pipeline.storage.pieces import EncodedPiece, FilledPiece, Piece
from pipeline.storage.protocol import Format, Opening, Source

# --- packed 12-bit samples: encoded blocks of known length ------------------------------------------------------------

PACKED_BLOCK = 3 * 2**10  # bytes; two samples in three
UINT16 = np.dtype(np.uint16)


def unpack(stored: memoryview) -> NDArray[Any]:
    """The first sample of a pair has the first byte and the upper half of the second one."""
    bits = np.frombuffer(stored, np.uint8).reshape(-1, 3).astype(np.uint16)
    first, second = bits[:, 0] << 4 | bits[:, 1] >> 4, (bits[:, 1] & 15) << 8 | bits[:, 2]
    return np.stack([first, second], axis=1).reshape(-1)


def pack(samples: NDArray[np.uint16]) -> bytes:
    """An even number of samples."""
    a, b = samples[::2], samples[1::2]
    return np.stack([a >> 4, (a & 15) << 4 | b >> 8, b & 255], axis=1).astype(np.uint8).tobytes()


@dataclass(frozen=True)
class PackedSource(Source):
    """A file of nothing but packed samples."""

    path: str
    state: Identity
    dtype: np.dtype[Any] = UINT16

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.state.size // 3 * 2,)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def identity(self) -> Hashable:
        return self.path, self.state

    def pieces(self) -> Iterator[EncodedPiece]:
        for offset in range(0, self.state.size, PACKED_BLOCK):
            nbytes = min(PACKED_BLOCK, self.state.size - offset)
            decoded = nbytes // 3 * 2 * 2
            yield EncodedPiece(Piece(self.path, offset, nbytes, self.state), unpack, decoded, 0, decoded)


def open_packed(path: str, opening: Opening) -> PackedSource:
    file, state = open_regular(path)
    file.close()
    if state.size % 3:
        raise UsageError(f"{path}: expected pairs of samples in 3 bytes each, got {state.size % 3} left over")
    source = PackedSource(path, state)
    opening.check(path, source.dtype, source.shape)
    return source


PACKED = Format("packed", open_packed, lambda path, head: False, (".p12",))


# --- gzip: encoded blocks, one per member, whose lengths are known only after a scan ----------------------------------

READ_BYTES = 2**16
MEMBER_BYTES = 2**26  # a worker decodes a member whole


@dataclass(frozen=True)
class Inflate:
    """Decodes a member on a worker."""

    dtype: np.dtype[Any]

    def __call__(self, stored: memoryview) -> NDArray[Any]:
        return np.frombuffer(zlib.decompress(stored, 31), self.dtype)


@dataclass(frozen=True)
class GzipSource(Source):
    """The client finds the members by decoding them, in bounded memory; workers decode them again."""

    path: str
    state: Identity
    dtype: np.dtype[Any]

    @property
    def shape(self) -> None:
        return None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def identity(self) -> Hashable:
        return self.path, self.state

    def pieces(self) -> Iterator[EncodedPiece]:
        offset = 0
        with open(self.path, "rb") as file:
            while offset < self.state.size:
                file.seek(offset)
                stored, decoded = self._member(file)
                piece = Piece(self.path, offset, stored, self.state)
                yield EncodedPiece(piece, Inflate(self.dtype), decoded, 0, decoded)
                offset += stored

    def _member(self, file: Any) -> tuple[int, int]:
        """Encoded and decoded bytes of a member."""
        inflating, stored, decoded = zlib.decompressobj(31), 0, 0
        while not inflating.eof:
            data = inflating.unconsumed_tail
            if not data:
                data = file.read(READ_BYTES)
                stored += len(data)
            if not data:
                raise PipelineError(f"{self.path}: expected a complete gzip file, got one that ends early; copy it")
            try:
                decoded += len(inflating.decompress(data, READ_BYTES))
            except zlib.error as error:
                raise PipelineError(f"{self.path}: expected gzip data, got {error}; copy the file again") from None
            if decoded > MEMBER_BYTES:
                raise PipelineError(f"{self.path}: expected gzip members of at most {MEMBER_BYTES} bytes decoded, got "
                                    "a longer one; write the file with bgzip")  # fmt: skip
        return stored - len(inflating.unused_data), decoded


def open_gzip(path: str, opening: Opening) -> GzipSource:
    file, state = open_regular(path)
    file.close()
    dtype = np.dtype(opening.dtype or "int32").newbyteorder(opening.byteorder or "little")
    return GzipSource(path, state, dtype)


GZIP = Format("gzip", open_gzip, lambda path, head: head.startswith(b"\x1f\x8b"), (".gz",))


# --- a pipe: filled buffers of unknown length, which this process reads, once -----------------------------------------


@dataclass(frozen=True)
class PipeSource(Source):
    """Samples from a pipe, in blocks that stay in memory until they are computed and checked."""

    path: str
    dtype: np.dtype[Any]
    block_bytes: int = 2**16
    seconds: float = 30.0
    begun: list[bool] = field(default_factory=list)
    local = True
    read_once = True

    @property
    def shape(self) -> None:
        return None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.path,)

    @property
    def paths(self) -> tuple[str, ...]:
        return ()

    @property
    def identity(self) -> Hashable:
        return self.path

    def pieces(self) -> Iterator[FilledPiece]:
        if self.begun:
            raise PipelineError(f"{self.path}: expected to be read once, got a second pass; report this")
        self.begun.append(True)
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            done = 0
            while block := self._block(fd, done):
                yield keep(np.frombuffer(block, self.dtype), f"{self.path} from byte {done}")
                done += len(block)
        finally:
            os.close(fd)

    def _block(self, fd: int, done: int) -> bytearray:
        """A block of whole samples, shorter only at the end of the pipe."""
        block = bytearray(self.block_bytes // self.dtype.itemsize * self.dtype.itemsize)
        filled = 0
        while filled < len(block):
            if not select.select([fd], [], [], self.seconds)[0]:
                raise PipelineError(f"{self.path}: expected more samples or the end within {self.seconds:g} s, got "
                                    f"nothing after byte {done + filled}; is the writer still running?")  # fmt: skip
            got = os.readv(fd, [memoryview(block)[filled:]])
            if not got:
                break
            filled += got
        if left_over := filled % self.dtype.itemsize:
            raise PipelineError(f"{self.path}: expected whole samples of {self.dtype.itemsize} bytes, got {left_over} "
                                f"left over at byte {done + filled}; check --dtype and the writer")  # fmt: skip
        return block[:filled]


def open_pipe(path: str, opening: Opening) -> PipeSource:
    dtype = np.dtype(opening.dtype or "int32").newbyteorder(opening.byteorder or "little")
    return PipeSource(path, dtype)


def is_pipe(path: str, head: bytes) -> bool:
    return os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)


PIPE = Format("pipe", open_pipe, is_pipe)


# --- files and writers of them --------------------------------------------------------------------------------------

KINDS = ["array", "pipe", "gzip", "packed"]


class Writer(threading.Thread):
    """Writes to a FIFO as a process would: until the reader is gone."""

    def __init__(self, path: Path, data: bytes, then: threading.Event | None = None) -> None:
        super().__init__()
        self.path, self.data, self.then = path, data, then
        os.mkfifo(path)
        self.start()

    def run(self) -> None:
        with open(self.path, "wb", buffering=0) as file:
            view = memoryview(self.data)
            try:
                while view:
                    view = view[file.write(view) :]
                if self.then:
                    self.then.wait(60)
            except BrokenPipeError:
                pass


def written(kind: str, samples: NDArray[np.uint16], folder: Path) -> Any:
    """Samples in some format, as an input of `pipeline.run`."""
    path = folder / "samples"
    if kind == "array":
        return samples
    if kind == "pipe":
        Writer(path, samples.tobytes())
    elif kind == "gzip":  # two members, recognized by their content
        path.write_bytes(gzip.compress(samples[:20_001].tobytes()) + gzip.compress(samples[20_001:].tobytes()))
    else:
        path = folder / "samples.p12"
        path.write_bytes(pack(samples))
    return path
