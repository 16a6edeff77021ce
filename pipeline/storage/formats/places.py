"""Where the chunks of an array are stored: a table of numbers, since there may be millions of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import GAP_BYTES, RUN_BYTES, fill, open_planned
from pipeline.storage.scratch import aligned_empty

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

    def read(
        self, chosen: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]]:
        """Bytes of chunks of local files; chunks close to one another are read at once.

        Yields
        ------
        numbers of chunks, bytes, which are valid until the next ones are requested, and where each chunk begins there

        Raises
        ------
        PipelineError
            If a file cannot be read or is no longer the one that was planned.
        """
        table = self.table
        order = chosen[np.lexsort((table[chosen, 1], table[chosen, 0]))]
        numbers, offsets, sizes = table[order].T
        gaps = offsets[1:] - (offsets + sizes)[:-1]
        apart = (numbers[1:] != numbers[:-1]) | (gaps < 0) | (gaps > GAP_BYTES)
        run = np.concatenate([[0], np.cumsum(apart)])
        part = (offsets - offsets[np.searchsorted(run, run)]) // RUN_BYTES
        buffer = aligned_empty(0)
        cuts = 1 + np.flatnonzero(apart | (part[1:] != part[:-1]))
        for number, near in groupby(np.split(order, cuts), lambda rows: int(table[rows[0], 0])):
            with open_planned(file := self.files[number]) as fd:
                for rows in near:
                    _, begin, _ = table[rows[0]].tolist()
                    end = int(table[rows[-1], 1:].sum())
                    buffer = buffer if len(buffer) >= end - begin else aligned_empty(end - begin)
                    stored = buffer[: end - begin]
                    fill(fd, stored.data, file.cut(begin, end - begin), 0)
                    yield rows, stored, table[rows, 1] - begin


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
        self._last: tuple[list[int], tuple[Piece, ...]] = [-1], ()
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
        """Places of the chunks in a range along each axis, in C order."""
        return self._stored(self.table[tuple(along)])

    def at(self, along: Sequence[Sequence[int]]) -> Stored:
        """Places of the chunks at the products of indices."""
        return self._stored(self.table[np.ix_(*along)] if along else self.table)

    def other(self, nbytes: int) -> Piece | None:
        """The first chunk that has another number of bytes, if any."""
        rows = self.table.reshape(-1, 3)
        others = np.flatnonzero((rows[:, 0] >= 0) & (rows[:, 2] != nbytes))
        return self.piece(np.unravel_index(others[0], self.table.shape[:-1])) if len(others) else None

    def _stored(self, table: NDArray[Any]) -> Stored:
        rows = table.reshape(math.prod(table.shape[:-1]), 3).copy()
        numbers = rows[:, 0]
        used = sorted({*numbers.tolist(), -1})  # the first one is that of missing chunks
        rows[:, 0] = np.searchsorted(used, numbers) - 1
        before, files = self._last
        if used != before:  # slabs that follow one another often have them in common, and share them
            files = tuple(self.files[number] for number in used[1:])
            self._last = used, files
        return Stored(files, rows.tobytes())
