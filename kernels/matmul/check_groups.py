"""Random groups of columns with random signs, in which errors of a product are unlikely to cancel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

ESCAPE = 2.0**-20  # probability that wrong elements of a row escape all rounds, at most
SMALL_FACTOR = 4096 * 4096  # elements of B; larger ones have larger groups
# Columns in a group, and groups at most: small ones admit smaller errors, and take more sums.
GROUPS = {"float32": (2048, 8), "float64": (256, 64)}
LARGE_GROUP = 768  # columns of those of large factors, at least: sums of smaller ones take longer than a GPU's product
# Of float16, whose roundings are large, groups of so many columns for each round: the first number up to a B of 4096²,
# beyond that more, so that sums do not take much longer than reading the matrices. An element is in one group of every
# round; the mean of its sums has the error of a group of this size.
COLUMNS_OF_ROUND = 4, 48
# Columns in a group of `signed_groups`, at most. For float64, in which the check computes, too: its own bound is the
# larger part of what it admits.
SIGNED_COLUMNS = {"float32": 4096, "float64": 512}


@dataclass(frozen=True)
class Groups:
    """In each round every column of a matrix is in one group, and is added to its sum or subtracted from it.

    Attributes
    ----------
    sums : int array, shape (rounds, columns)
        Number of the sum that a column belongs to; each round has sums of its own.
    signs : float64 array of -1 and 1, shape (rounds, columns)
    size
        Columns in a group, at most.
    escape
        Upper bound on the probability that errors in a row escape, each of which exceeds what its sums may be off by
        and what the check admits: one that is alone in its group never does, and several are in one group with a small
        probability only.
    """

    sums: NDArray[np.int64]
    signs: NDArray[np.float64]
    size: int
    escape: float

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.sums)

    @property
    def are_small(self) -> bool:
        """Whether float16 hides few errors as large as its elements in these groups."""
        return self.size <= COLUMNS_OF_ROUND[0] * self.rounds

    def are_large(self, dtype: str) -> bool:
        """Whether they are those of large factors."""
        return not self.are_small if dtype == "float16" else self.size > GROUPS[dtype][0]

    @cached_property
    def number(self) -> int:
        """Number of sums, of all rounds."""
        return int(self.sums.max(initial=-1)) + 1

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The signs as a matrix, shape (columns, sums): products with it are the sums."""
        matrix = np.zeros((self.sums.shape[1], self.number))
        for places, signs in zip(self.sums, self.signs, strict=True):
            matrix[np.arange(len(places)), places] = signs
        return matrix

    def members(self, width: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The columns of each sum, in blocks of so many columns: those that it adds, then those that it subtracts.

        Returns
        -------
        columns, starts : int32 arrays, shapes (rounds × columns,) and (blocks, 2 × sums + 1)
            Columns of a block count from its first. In each block starts has where these and those begin, and the end.
        """
        every = np.arange(self.sums.shape[1])
        runs = 2 * self.sums + (self.signs < 0) + every // width * 2 * self.number
        order = np.argsort(runs, axis=None, kind="stable")
        blocks = -(-len(every) // width)
        ends = np.searchsorted(runs.reshape(-1)[order], np.arange(2 * self.number * blocks + 1))
        starts = np.concatenate([ends[:-1].reshape(blocks, -1), ends[2 * self.number :: 2 * self.number, None]], axis=1)
        return (order % len(every) % width).astype(np.int32), starts.astype(np.int32)

    def elements(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows and columns of the elements of sums, each given by row and number: int array, shape (n, 2)."""
        of_rows = [np.flatnonzero((self.sums == number).any(0)) for number in sums[:, 1].tolist()]
        rows = np.repeat(sums[:, 0], [len(columns) for columns in of_rows])
        return np.stack([rows, np.concatenate([np.empty(0, np.int64), *of_rows])], axis=-1)


def groups_and_rounds(inner: int, columns: int, dtype: str) -> tuple[int, int]:
    """Groups in a round, and rounds that keep `ESCAPE`, for a dtype and a B of so many rows and columns."""
    if dtype in GROUPS:
        size, most = GROUPS[dtype]
        size = max(size, LARGE_GROUP) if inner * columns > SMALL_FACTOR else size
        groups = min(max(2, -(-columns // size)), most)
        return groups, ceil(log2(ESCAPE) / log2(hidden(groups, -(-columns // groups))))
    least, most = COLUMNS_OF_ROUND
    of_round = min(max(1, inner * columns // SMALL_FACTOR) * least, most)
    for rounds in count(2):
        groups = max(2, -(-columns // (of_round * rounds)))
        if hidden(groups, -(-columns // groups)) ** rounds <= ESCAPE:
            break
    return groups, rounds


def random_groups(inner: int, columns: int, dtype: str, random: np.random.Generator) -> Groups:
    """Groups for products of a dtype whose B has so many rows and columns."""
    groups, rounds = groups_and_rounds(inner, columns, dtype)
    return _drawn(columns, groups, rounds, hidden(groups, -(-columns // groups)) ** rounds, random)


def signed_groups(columns: int, dtype: str, random: np.random.Generator) -> Groups:
    """Few large groups, for products whose roundings nothing bounds closely: a round hides an error with a chance of
    1/2 at most, whatever the other elements are off by."""
    groups, rounds = signed_groups_and_rounds(columns, dtype)
    return _drawn(columns, groups, rounds, 2.0**-rounds, random)


def signed_groups_and_rounds(columns: int, dtype: str) -> tuple[int, int]:
    """Groups in a round, and rounds that keep `ESCAPE`, of `signed_groups`."""
    return max(1, -(-columns // SIGNED_COLUMNS[dtype])), round(-log2(ESCAPE))


def _drawn(columns: int, groups: int, rounds: int, escape: float, random: np.random.Generator) -> Groups:
    size = -(-columns // groups)
    places = [random.permutation(groups * size)[:columns] // size + number * groups for number in range(rounds)]
    signs = random.choice([-1.0, 1.0], (rounds, columns))
    return Groups(np.array(places), signs, size, escape)


def single_columns(columns: int) -> Groups:
    """Every column in a group of its own: elements are checked one by one."""
    return Groups(np.arange(columns)[None], np.ones((1, columns)), 1, 0.0)


def hidden(groups: int, size: int) -> float:
    """Upper bound on the probability that a round hides errors of a row; docs/verification.md derives it."""
    if groups == 2:
        return 0.25
    together: Any = (size - 1) / (groups * size - 1)  # two errors are in the same group
    return float(together / 2 if size >= 4 else together)
