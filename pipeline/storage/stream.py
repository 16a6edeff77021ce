"""Standard input as a source: this process reads it, once, in blocks that stay in memory until they are checked."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import select
import stat
import sys
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.array_source import keep
from pipeline.storage.packed import Packing
from pipeline.storage.pieces import FilledPiece
from pipeline.storage.protocol import Opening, Source
from pipeline.storage.scratch import aligned_empty
from workflows.npy_header import read_header

NAME = "standard input"
BLOCK_BYTES = 2**20  # also asked for as the capacity of the pipe, which is 64 KiB otherwise
TICK_SECONDS = 1.0  # longer between two looks: this process was suspended, and that counts for nobody
RETRY_SECONDS = 0.01


class Stream:
    """The bytes of a descriptor, each read once.

    Parameters
    ----------
    fd
    seconds
        How long it may bring nothing.

    Raises
    ------
    UsageError
        If it is closed or a terminal.
    """

    def __init__(self, fd: int, seconds: float) -> None:
        try:
            self._nowait = stat.S_ISFIFO(os.fstat(fd).st_mode)
        except OSError as error:
            raise UsageError(
                f"{NAME}: expected samples, got {error.strerror!r}; name a file, or pipe them in"
            ) from None
        if os.isatty(fd):
            raise UsageError(f"{NAME}: expected samples from another program or a file, got a terminal; pipe them in "
                             "with |, or name a file instead of -")  # fmt: skip
        if self._nowait:
            with suppress(OSError):  # not allowed to have so much
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, BLOCK_BYTES)
        self._fd, self._seconds, self._ahead, self._poll = fd, seconds, b"", select.poll()
        self._poll.register(fd, select.POLLIN)
        self.done = 0

    def peek(self, nbytes: int) -> bytes:
        """The next bytes, which are still to be read; fewer only at the end."""
        head = self.read(nbytes)
        self._ahead, self.done = head + self._ahead, self.done - len(head)
        return head

    def read(self, nbytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        block = np.empty(nbytes, np.uint8)
        return block[: self.fill(block)].tobytes()

    def fill(self, block: NDArray[np.uint8]) -> int:
        """Fill a block with the next bytes; returns their number, which is less only at the end.

        Raises
        ------
        PipelineError
            If they cannot be read, or none come for too long.
        """
        buffer, filled = block.data, min(len(self._ahead), len(block))
        buffer[:filled], self._ahead = self._ahead[:filled], self._ahead[filled:]
        self.done += filled
        while filled < len(block) and (got := self._read(buffer[filled:])):
            filled += got
            self.done += got
        return filled

    def _read(self, buffer: memoryview) -> int:
        waited, before = 0.0, monotonic()
        while waited < self._seconds:
            if self._poll.poll(1000 * min(TICK_SECONDS, self._seconds)):
                try:
                    # Another process may have taken what was there; a plain read would wait for more without a limit.
                    return os.preadv(self._fd, [buffer], -1, os.RWF_NOWAIT if self._nowait else 0)
                except BlockingIOError:
                    sleep(RETRY_SECONDS)
                except OSError as error:
                    if self._nowait and error.errno == errno.EOPNOTSUPP:  # an old kernel
                        self._nowait = False
                        continue
                    raise PipelineError(f"{NAME}: reading after byte {self.done} failed: {error.strerror}; check where "
                                        "it comes from") from None  # fmt: skip
            now = monotonic()
            waited, before = waited + min(now - before, 2 * TICK_SECONDS), now
        raise PipelineError(f"{NAME}: expected more samples or the end within {self._seconds:g} s, got nothing after "
                            f"byte {self.done}; is its writer still running? --stall-timeout allows more")  # fmt: skip


@dataclass(frozen=True, eq=False)
class StreamSource(Source):
    """Samples of a stream.

    Attributes
    ----------
    stream
    dtype
    packing
        How they are packed, if they are.
    expected
        Bytes of samples, as a header says; None without one.
    described
        The shape that it says, and whether the first index varies fastest.
    begun
        Something, once it is read.
    """

    stream: Stream
    dtype: np.dtype[Any]
    packing: Packing | None = None
    expected: int | None = None
    described: tuple[tuple[int, ...] | None, bool] = None, False
    begun: list[bool] = field(default_factory=list)
    names = (NAME,)
    paths = ()
    local = True
    read_once = True

    @property
    def shape(self) -> None:
        """Unknown, even after a header: the stream is planned while it is read."""

    @property
    def shape_once_read(self) -> tuple[int, ...] | None:
        """As the header says."""
        return self.described[0]

    @property
    def fortran(self) -> bool:
        """As the header says."""
        return self.described[1]

    @property
    def identity(self) -> Hashable:
        """The identity of the object."""
        return id(self.stream)

    def pieces(self) -> Iterator[FilledPiece]:
        """Blocks of samples, in memory.

        Raises
        ------
        PipelineError
            If the samples end early, within a sample, or not where the header says.
        """
        if self.begun:
            raise PipelineError(f"{NAME}: expected to be read once, got a second pass; report this")
        self.begun.append(True)
        unit = self.packing.group_bytes if self.packing else self.dtype.itemsize
        left = sys.maxsize if self.expected is None else self.expected
        filled = step = BLOCK_BYTES // unit * unit
        while filled == step and left:
            block, before = aligned_empty(min(step, left)), self.stream.done
            filled = self.stream.fill(block)
            left -= filled
            if left_over := filled % unit:
                raise PipelineError(f"{NAME}: expected a multiple of {unit} bytes, got {left_over} left over at byte "
                                    f"{self.stream.done}; check --dtype and its writer")  # fmt: skip
            if filled:
                yield keep(self._samples(block[:filled]), f"{NAME} from byte {before}")
        more = self.expected is not None and len(self.stream.peek(1))
        if self.expected is not None and (left or more):
            got = "more" if more else f"{self.expected - left}"
            raise PipelineError(f"{NAME}: expected {self.expected} bytes of samples as its .npy header says, got "
                                f"{got}; did its writer fail?")  # fmt: skip

    def _samples(self, stored: NDArray[np.uint8]) -> NDArray[Any]:
        if self.packing is None:
            return stored.view(self.dtype)
        samples = np.empty(len(stored) // self.packing.group_bytes * self.packing.group, self.dtype)
        self.packing.unpack(stored, samples)
        return samples


def open_npy_stream(stream: Stream, opening: Opening) -> StreamSource:
    """The samples after a `.npy` header, in the order in which they come.

    Raises
    ------
    UsageError
        If the header cannot be read, contradicts the user, or has a dtype that the job does not accept.
    """
    try:
        shape, fortran, dtype, _ = read_header(cast(BinaryIO, stream))
    except ValueError as error:
        raise UsageError(f"{NAME}: expected a .npy header, got {error}; did its writer fail?") from None
    dtype = opening.counted(dtype)
    opening.check(NAME, dtype, shape)
    nbytes = math.prod(shape) * dtype.itemsize
    return StreamSource(stream, dtype, expected=nbytes, described=(shape, fortran))
