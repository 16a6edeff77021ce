"""Samples as byte runs of files: raw and `.npy` files."""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.identity import Identity, identify, open_to_read
from pipeline.storage.pieces import AnyPiece, Piece, as_read
from pipeline.storage.planned_file import open_planned
from pipeline.storage.protocol import Source
from pipeline.storage.remote.address import ObjectIdentity, Url


@dataclass(frozen=True)
class SourceFile:
    """Samples of one file: `nbytes` from `offset`; its identity tells whether it has changed since.

    `shape` comes from the header, or is one-dimensional for a raw file; `fortran`: the first index varies fastest;
    `label`: what it is called, if not by its path; `follows`: the samples go on with the array of the one before.
    """

    path: str
    offset: int
    nbytes: int
    identity: Identity | ObjectIdentity
    shape: tuple[int, ...]
    fortran: bool = False
    label: str = ""
    follows: bool = False

    def piece(self) -> Piece:
        """The whole file's samples."""
        return Piece(self.path, self.offset, self.nbytes, self.identity)


@dataclass(frozen=True)
class Files(Source):
    """Samples of one or several files, in order, all of one dtype (with byte order)."""

    files: tuple[SourceFile, ...]
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a single file; of several files, one dimension."""
        return self.files[0].shape if len(self.files) == 1 else (self.samples,)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.nbytes // self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of samples."""
        return sum(file.nbytes for file in self.files)

    @property
    def names(self) -> tuple[str, ...]:
        """Paths, or what files are called."""
        return tuple(name for name, _ in self.lengths)

    @property
    def lengths(self) -> tuple[tuple[str, int], ...]:
        """Name and number of samples of each array."""
        found: list[tuple[str, int]] = []
        for file in self.files:
            samples = file.nbytes // self.dtype.itemsize
            if file.follows:
                name, before = found.pop()
                found.append((name, before + samples))
            else:
                found.append((file.label or str(file.path), samples))
        return tuple(found)

    @property
    def identity(self) -> Hashable:
        """Path and identity of every file."""
        return tuple((file.path, file.identity) for file in self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        """Those of this machine."""
        return tuple(file.path for file in self.files if not file.follows and not file.piece().remote)

    @property
    def fortran(self) -> bool:
        """Whether the first index varies fastest, of one of them."""
        return any(file.fortran for file in self.files)

    def pieces(self) -> Iterator[AnyPiece]:
        """One for each file."""
        return (as_read(file.piece()) for file in self.files)

    def check_unchanged(self) -> None:
        """Look at every file once more, under its name; answers of servers have all been compared."""
        for piece in (file.piece() for file in self.files):
            if not piece.remote:
                with open_planned(piece):
                    pass


def open_regular(path: str) -> tuple[BinaryIO, Identity | ObjectIdentity]:
    """Open a file or a remote object that is not empty; return it and its identity.

    Raises
    ------
    UsageError
        If it is missing, empty or not a regular file.
    PipelineError
        If it cannot be read, or something keeps writing to it.
    """
    if isinstance(path, Url):
        from pipeline.storage.remote.file import open_object

        return open_object(path)
    try:
        # Looked at first, because opening a device may have effects.
        fd = open_to_read(path) if stat.S_ISREG(os.stat(path).st_mode) else -1
    except FileNotFoundError:
        raise UsageError(f"{path}: expected a file of samples, found none there; check the path") from None
    except ValueError as error:  # a null byte
        raise UsageError(f"{path!r}: expected a path, got {error}") from None
    except OSError as error:
        raise PipelineError(
            f"{path}: expected a readable file, got {error.strerror!r}; check its permissions"
        ) from None
    if fd < 0:
        kind = "a directory" if os.path.isdir(path) else "no regular file"
        raise UsageError(f"{path}: expected a file of samples, got {kind}; name a file or a pattern like '*.bin', "
                         "say --recursive for all files below a folder, or - for what is piped into it")  # fmt: skip
    file = os.fdopen(fd, "rb")
    try:
        identity = identify(path, fd)
        if not identity.size:
            raise UsageError(f"{path}: expected samples, got an empty file, as a failed recording or copy leaves it; "
                             "leave it out, or give an empty .npy array if there are no samples")  # fmt: skip
    except PipelineError:
        file.close()
        raise
    return file, identity


def whole(path: str) -> Piece:
    """A file as it is now.

    Raises
    ------
    UsageError
        If it is missing, empty or not a regular file; PipelineError if it cannot be read.
    """
    file, identity = open_regular(path)
    file.close()
    return Piece(path, 0, identity.size, identity)
