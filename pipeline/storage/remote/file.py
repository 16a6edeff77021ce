"""A remote object as a file that can be read and searched, for what reads headers."""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from typing import Any, BinaryIO, cast

from pipeline.storage.pieces import Piece
from pipeline.storage.remote.address import ObjectIdentity, Url
from pipeline.storage.remote.ahead import cut, read_ahead
from pipeline.storage.remote.objects import look, read

BLOCK_BYTES = 2**17
KEPT = 64  # blocks, the last ones that were read


class RemoteFile(io.RawIOBase):
    """An object that is read in blocks; all of them of the version that was planned.

    Parameters
    ----------
    identity
    head
        Its first bytes, if they are known.
    """

    def __init__(self, identity: ObjectIdentity, head: bytes = b"") -> None:
        super().__init__()
        self._identity, self._head, self._at = identity, head, 0
        self._blocks: OrderedDict[int, memoryview] = OrderedDict()

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._identity.size}[whence]
        if at < 0:
            raise ValueError(f"a place before the beginning: {at}")
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; none only at the end."""
        target, at = memoryview(buffer).cast("B"), self._at
        if at >= self._identity.size or not len(target):
            return 0
        if len(target) >= 2 * BLOCK_BYTES:
            return self._read_parts(target[: self._identity.size - at])
        if at < len(self._head):
            part = memoryview(self._head)[at:]
        else:
            part = self._block(at // BLOCK_BYTES)[at % BLOCK_BYTES :]
        got = min(len(part), len(target))
        target[:got] = part[:got]
        self._at += got
        return got

    def _read_parts(self, target: memoryview) -> int:
        """Fill a large buffer, through several requests at once."""
        done = 0
        for part in read_ahead(cut(Piece(self._identity.url, self._at, len(target), self._identity), 1)):
            target[done : done + len(part)] = part
            done += len(part)
        self._at += done
        return done

    def _block(self, number: int) -> memoryview:
        if number not in self._blocks:
            start = number * BLOCK_BYTES
            self._blocks[number] = read(self._identity, start, min(BLOCK_BYTES, self._identity.size - start))
            if len(self._blocks) > KEPT:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return self._blocks[number]


def open_object(url: Url) -> tuple[BinaryIO, ObjectIdentity]:
    """Open an object that is not empty; errors as of `look`."""
    identity, head = look(url)
    return as_file(identity, head), identity


def as_file(identity: ObjectIdentity, head: bytes = b"") -> BinaryIO:
    """An object as a file."""
    return cast(BinaryIO, io.BufferedReader(RemoteFile(identity, head), BLOCK_BYTES))
