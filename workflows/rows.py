"""Rows of samples, each a result of its own: channels, segments, files, or what is left of an array without an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.transpose.cpu import transpose_cpu

# Samples of a row, on average, from which on rows are computed, and checked, one by one: calls of Python are then a
# small part of the time, and the functions for one row are faster.
LONG = 2**12


class Run(NamedTuple):
    """Samples of one row within a block: the row, their indices in the source, and where they are in the block."""

    row: int
    indices: range
    place: slice


class Stretch(NamedTuple):
    """Samples of successive rows within a block: where they are, the first row, the number of rows.

    bounds : int64 array, shape (number + 1,)
        Where each row begins in the stretch, and its length, if rows follow each other; some may be empty. None if rows
        take turns: then `first` is the one that the first sample belongs to, of the `number`.
    """

    place: slice
    row: int
    number: int
    first: int
    bounds: NDArray[np.int64] | None

    @property
    def long(self) -> bool:
        """Whether rows are better taken one by one."""
        return bool(self.place.stop - self.place.start >= LONG * self.number)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows."""
        return self.row + np.arange(self.number)

    def firsts(self) -> NDArray[np.int64]:
        """Which sample of the stretch is the first of each row; past the end if a row has none."""
        return (np.arange(self.number) - self.first) % self.number if self.bounds is None else self.bounds[:-1]

    def samples(self) -> NDArray[np.int64]:
        """Samples of each row."""
        if self.bounds is not None:
            return self.bounds[1:] - self.bounds[:-1]
        return np.asarray((self.place.stop - self.place.start - self.firsts() + self.number - 1) // self.number)

    def one_after_another(
        self, samples: NDArray[Any], transposed: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """The samples of a stretch, those of each row together, where each row begins, and where it ends."""
        if self.bounds is not None:
            return samples, self.bounds[:-1], self.bounds[1:]
        turns = -(-len(samples) // self.number)
        whole = np.zeros((turns, self.number), samples.dtype)
        whole.reshape(-1)[: len(samples)] = samples
        begins = turns * self.firsts()
        return transposed(whole).reshape(-1), begins, begins + self.samples()


@dataclass(frozen=True)
class Rows:
    """Which row a sample belongs to.

    Rows of equal lengths are told apart by arithmetic: sample i is the (i // inner % length)-th of row
    ``i // (inner * length) * inner + i % inner``. Others, such as files, follow each other.

    Attributes
    ----------
    by
        What a row is: ``"channel"``, ``"segment"``, ``"file"``, or ``"row"`` of an array.
    shape
        Numbers of rows along the axes of the result; None for a source of unknown length whose rows are counted when it
        ends.
    length
        Samples of a row that follow each other, `inner` apart; None for rows that end where the source does.
    inner
        Rows that take turns, sample by sample.
    sizes
        Samples of each row, of rows that differ.
    names
        Of each row; none for those that are numbered.
    """

    by: str
    shape: tuple[int, ...] | None
    length: int | None
    inner: int = 1
    sizes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def number(self) -> int | None:
        """How many rows there are; None if that is not known yet."""
        return None if self.shape is None else prod(self.shape)

    @property
    def longest(self) -> int | None:
        """Samples of a row at most; None if that is not known yet."""
        return max(self.sizes) if self.sizes else self.length

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.array(list(accumulate(self.sizes)), np.int64)

    def name(self, row: int) -> str:
        """What to call a row in a message or a table."""
        return self.names_of(range(row, row + 1))[0]

    def names_of(self, rows: range) -> list[str]:
        """What to call successive rows."""
        if self.names:
            return list(self.names[rows.start : rows.stop])
        if self.shape is not None and len(self.shape) > 1 and len(rows):
            places = np.transpose(np.unravel_index(np.arange(rows.start, rows.stop), self.shape)).tolist()
            return [", ".join(map(str, place)) for place in places]
        return list(map(str, rows))

    def runs(self, indices: range) -> Iterator[Run]:
        """The rows of successive samples: each its run, or, where rows take turns, one run for each row and group."""
        start, stop = indices.start, indices.stop
        if self.sizes:
            row = int(np.searchsorted(self._ends, start, "right"))
            while start < stop:
                end = min(int(self._ends[row]), stop)
                if end > start:
                    yield Run(row, range(start, end), slice(start - indices.start, end - indices.start))
                row, start = row + 1, max(end, start)
            return
        group = stop if self.length is None else self.inner * self.length
        while start < stop:
            base = start // group
            end = min((base + 1) * group, stop)
            for first in range(start, min(start + self.inner, end)):
                row = base * self.inner + (first - base * group) % self.inner
                yield Run(row, range(first, end, self.inner), slice(first - indices.start, end - indices.start,
                                                                    self.inner))  # fmt: skip
            start = end

    def stretches(self, indices: range) -> Iterator[Stretch]:
        """The rows of successive samples: those that follow each other together, others group by group."""
        start, stop = indices.start, indices.stop
        if self.inner == 1:
            if self.sizes:
                row, last = (int(np.searchsorted(self._ends, index, "right")) for index in (start, stop - 1))
                ends = self._ends[row:last]
            else:
                length = stop if self.length is None else self.length
                row, last = start // length, (stop - 1) // length
                ends = np.arange(row + 1, last + 1) * length
            bounds = np.concatenate([[start], ends, [stop]]) - start
            yield Stretch(slice(0, stop - start), row, last - row + 1, 0, bounds)
            return
        group = stop if self.length is None else self.inner * self.length
        for base in range(start // group, -(-stop // group)):
            first, end = max(start, base * group), min(stop, (base + 1) * group)
            place = slice(first - indices.start, end - indices.start)
            yield Stretch(place, base * self.inner, self.inner, (first - base * group) % self.inner, None)

    def rows_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each index, by arithmetic of its own: `runs` is checked with it."""
        if self.sizes:
            starts = np.cumsum([0, *self.sizes[:-1]])
            return np.asarray(np.searchsorted(starts, indices, "right") - 1, np.int64)
        if self.length is None:
            return np.remainder(indices, self.inner)
        turn, position = np.divmod(indices, np.int64(self.inner))
        rows: NDArray[np.int64] = np.floor_divide(turn, np.int64(self.length)) * self.inner + position
        return rows

    def position_of(self, index: int, row: int) -> int:
        """Which of the samples of its row it is, by arithmetic of its own: `within` is checked with it."""
        if self.sizes:
            return index - sum(self.sizes[:row])
        groups, turn = divmod(row, self.inner)
        return (index - turn) // self.inner - groups * (self.length or 0)

    def within(self, index: int) -> int:
        """Which of the samples of its row it is."""
        return int(self.turns(np.array([index]))[0])

    def turns(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of the samples of its row each is."""
        if self.sizes:
            starts = np.concatenate([[0], self._ends])
            return np.asarray(indices - starts[np.searchsorted(self._ends, indices, "right")])
        turns = indices // self.inner
        return turns if self.length is None else turns % max(self.length, 1)  # none of rows without samples

    def counted(self, indices: range, within: bool) -> range:
        """The indices of samples of one row that follow each other there; `within`: counted in the row."""
        first = self.within(indices.start)
        return range(first, first + len(indices)) if within else indices


def split(rows: Rows, block: Any, start: int) -> Iterator[tuple[int, range, Any]]:
    """The contiguous samples of each row of a block whose first sample has the index `start`, on its device.

    Where rows take turns the block is transposed, which is faster than to gather them one by one. A row may come twice.
    """
    inner = rows.inner
    if inner == 1:
        for row, indices, place in rows.runs(range(start, start + len(block))):
            yield row, indices, block[place]
        return
    group = start + len(block) if rows.length is None else inner * rows.length
    while len(block):
        part = block[: (start // group + 1) * group - start]
        turns = len(part) // inner
        lines = _transposed(part[: turns * inner].reshape(turns, inner)) if turns else None
        for row, indices, place in rows.runs(range(start, start + len(part))):
            first = place.start
            if lines is not None:
                yield row, indices[:turns], lines[first]
            if turns < len(indices):
                yield row, indices[turns:], part[turns * inner + first :][:1]
        block, start = block[len(part) :], start + len(part)


def _transposed(matrix: Any) -> Any:
    return transpose_cpu(matrix) if isinstance(matrix, np.ndarray) else matrix.T.copy()


@dataclass(frozen=True, eq=False)
class RowsOptions:
    """Options of a job that is run on every row by itself.

    Attributes
    ----------
    rows
    dtype
        Of the samples, native.
    options
        Of each row, or one for all.
    """

    rows: Rows
    dtype: np.dtype[Any]
    options: tuple[Any, ...] = field(default=())

    def of(self, row: int) -> Any:
        """Options of a row."""
        return self.options[row if len(self.options) > 1 else 0]

    def described(self) -> dict[str, Any]:
        """What a row is, for the JSON object of a run."""
        shape = self.rows.shape
        return {"by": self.rows.by, "shape": None if shape is None else list(shape), "length": self.rows.length,
                "inner": self.rows.inner}  # fmt: skip
