"""Keys of many short rows: lines, each a partial of cells (`kernels.quantile.cells`), gathered ones or of 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.row_places import as_matrix
from kernels.quantile.keys import to_keys, to_samples

Lines = NDArray[np.int64]


def gather_rows(samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], gathered: int) -> Lines:
    """The keys of each row, ascending.

    Parameters
    ----------
    samples : array of any integer or float dtype, native byte order, shape (n,)
    begins, ends : arrays, shape (rows,)
        A row may be empty.
    gathered
        Room for keys in a line.

    Returns
    -------
    int64 array, shape (rows, 1 + gathered)
    """
    keys = to_keys(samples)
    matrix, inside = as_matrix(keys, begins, ends, np.iinfo(keys.dtype).max)
    matrix.sort(axis=1)
    lines = np.full((len(begins), 1 + gathered), -1, np.int64)
    lines[:, 0] -= ends - begins
    lines[:, 1 : 1 + matrix.shape[1]] = np.where(inside, matrix.astype(np.uint64), np.uint64(2**64 - 1)).view(np.int64)
    return lines


def count_keys(samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Lines:
    """How often each row has each key, int64 array, shape (rows, 256), of samples of 8 bits."""
    matrix, inside = as_matrix(to_keys(samples), begins, ends, 0)
    slots = (256 * np.arange(len(matrix))[:, None] + matrix)[inside]
    return np.bincount(slots, minlength=256 * len(matrix)).reshape(-1, 256)


class Ordered:
    """The numbers of rows, in ascending order.

    Parameters
    ----------
    lines
        At least one.
    numbers : int64 array, shape (rows,)
        How many samples of each row count: others have greater keys.
    dtype
        Of the samples, native.

    Attributes
    ----------
    all, rows
        How many rows there are, and which of them have numbers.
    distinct, which
        How many numbers they have, ascending, and which of these counts each of `rows` has.
    """

    def __init__(self, lines: Lines, numbers: NDArray[np.int64], dtype: np.dtype[Any]) -> None:
        self.dtype, self.all, self._lines = dtype, len(lines), lines
        self.rows = np.flatnonzero(numbers)
        self.distinct, self.which = np.unique(numbers[self.rows], return_inverse=True)
        self._ends = None if lines[0, 0] < 0 else np.cumsum(lines[self.rows], axis=1)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """How many numbers each of `rows` has."""
        return self.distinct[self.which]

    @property
    def counts(self) -> NDArray[np.int64] | None:
        """How many samples of each of `rows` have at most each of the 256 keys; None if keys were gathered."""
        return self._ends

    def keys(self, ranks: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The key of one rank of each of `rows`, counted from 0."""
        if self._ends is None:
            return np.asarray(self._lines[self.rows, 1 + ranks].view(np.uint64))
        return np.asarray(np.count_nonzero(self._ends <= ranks[:, None], axis=1), np.uint64)

    def samples(self, ranks: Sequence[int]) -> NDArray[Any]:
        """The sample of one rank of each of `rows`: ranks are those of rows that have so many numbers as `distinct`."""
        return to_samples(self.keys(np.array(ranks, np.int64)[self.which]), self.dtype)


def combine(a: Lines, b: Lines) -> Lines:
    """`kernels.quantile.cells.combined` of each line with its counterpart, at least one."""
    if a[0, 0] >= 0:
        return a + b
    keys = np.concatenate((a[:, 1:], b[:, 1:]), axis=1).view(np.uint64)  # what is left of a line is the greatest
    keys.sort(axis=1)
    return np.concatenate((1 + a[:, :1] + b[:, :1], keys[:, : a.shape[1] - 1].view(np.int64)), axis=1)
