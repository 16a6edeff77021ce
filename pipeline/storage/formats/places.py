"""Where the chunks of an array are stored: a table of numbers, since there may be millions of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.pieces import Piece

Index = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """Where some chunks are stored; compact, since a slab may cross thousands of them and is pickled.

    Attributes
    ----------
    files
        All of them, whole.
    places
        Of each chunk the number of its file, offset and bytes there, as int64; -1 for the file of a missing one.
    """

    files: tuple[Piece, ...]
    places: bytes

    @property
    def table(self) -> NDArray[np.int64]:
        """The places, shape (chunks, 3)."""
        return np.frombuffer(self.places, np.int64).reshape(-1, 3)

    def pieces(self) -> Iterator[Piece | None]:
        """Stored bytes of each chunk; None for a missing one."""
        for number, offset, nbytes in self.table.tolist():
            yield None if number < 0 else self.files[number].cut(offset, nbytes)


MISSING = Stored((), np.array([[-1, 0, 0]], np.int64).tobytes())


class Places:
    """Where all chunks of a grid are stored.

    Parameters
    ----------
    counts
        Number of chunks along each axis; none of them is stored yet.

    Attributes
    ----------
    files
    table : int64 array, shape (*counts, 3)
        As of `Stored`.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self.files: list[Piece] = []
        self.table = np.full((*counts, 3), (-1, 0, 0), np.int64)

    def add(self, file: Piece) -> int:
        """The number of a file that has chunks."""
        self.files.append(file)
        return len(self.files) - 1

    def piece(self, index: Index) -> Piece | None:
        """Stored bytes of a chunk; None if it is missing."""
        number, offset, nbytes = self.table[index].tolist()
        return None if number < 0 else self.files[number].cut(offset, nbytes)

    def within(self, along: Sequence[slice]) -> Stored:
        """Of the chunks in a range along each axis, in C order."""
        return self._stored(self.table[tuple(along)])

    def at(self, along: Sequence[Sequence[int]]) -> Stored:
        """Of the chunks at the products of indices."""
        return self._stored(self.table[np.ix_(*along)] if along else self.table)

    def other(self, nbytes: int) -> Piece | None:
        """The first chunk that has another number of bytes, if any."""
        rows = self.table.reshape(-1, 3)
        others = np.flatnonzero((rows[:, 0] >= 0) & (rows[:, 2] != nbytes))
        return self.piece(np.unravel_index(others[0], self.table.shape[:-1])) if len(others) else None

    def _stored(self, table: NDArray[Any]) -> Stored:
        rows = table.reshape(math.prod(table.shape[:-1]), 3).copy()
        there = rows[:, 0] >= 0
        used = np.unique(rows[there, 0])
        rows[there, 0] = np.searchsorted(used, rows[there, 0])
        return Stored(tuple(self.files[number] for number in used.tolist()), rows.tobytes())
