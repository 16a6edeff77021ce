"""Hash the elements of a matrix, each with a key of its row and column: equal in whatever order they are stored."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A word of 16 bits times a key below PRIME, 2048 of them added up, stays below 2**53: float64 holds it exactly, and a
# matrix product takes the words at the speed of memory, in any order of its sums.
PRIME = 2**26 - 5
WORDS = 2048
# Converted at a time: in the second-level cache, and not so few that threads mostly wait for the interpreter, for which
# each step has to ask again. On 16 cores two threads hash 5 GB/s, eight 3 GB/s; hence the semaphore.
BLOCK_WORDS = 2**17
_HASHING = threading.Semaphore(2)
FUNCTIONS = 3

# A hash is a polynomial of degree 3 in its keys. For two different matrices the difference of the polynomials is not
# zero, because words differ by less than PRIME; at random keys it is 0 with a probability of 3 / PRIME at most
# (Schwartz and Zippel), independently for each function. What differs, one bit or everything, does not matter, as long
# as it does not depend on the keys.
ESCAPE = (3 / PRIME) ** FUNCTIONS


@dataclass(frozen=True)
class Keys:
    """Random numbers below PRIME, for each function: of every row, column, and word of an element."""

    rows: NDArray[np.float64]
    columns: NDArray[np.float64]
    words: NDArray[np.float64]


def random_keys(rows: int, columns: int, dtype: np.dtype[Any], random: np.random.Generator) -> Keys:
    """Keys for matrices of a shape and dtype."""
    lengths = (rows, columns, dtype.itemsize // _word(dtype).itemsize)
    return Keys(*(random.integers(PRIME, size=(length, FUNCTIONS)).astype(np.float64) for length in lengths))


def position_hash(
    matrix: NDArray[Any], rows: NDArray[np.float64], columns: NDArray[np.float64], keys: Keys
) -> list[int]:
    """Sum of all words, each times the keys of its row, its column and its place in the element, modulo PRIME.

    Parameters
    ----------
    matrix : array of any dtype, shape (rows, columns), C-contiguous
        Its bits count, not its values.
    rows, columns
        Those of the keys, or of a transposed matrix the other way round.
    keys
        Of which those of the words are used.

    Returns
    -------
    One number for each function.
    """
    words = matrix.view(_word(matrix.dtype)).reshape(len(matrix), -1)
    factors = (columns[:, None] * keys.words % PRIME).reshape(-1, FUNCTIONS)
    sums = np.zeros((len(words), FUNCTIONS))
    with _HASHING:
        for first in range(0, len(factors), WORDS):
            factor = factors[first : first + WORDS]
            step = BLOCK_WORDS // len(factor)
            block = np.empty((step, len(factor)))
            for row in range(0, len(words), step):
                part = words[row : row + step, first : first + WORDS]
                np.copyto(block[: len(part)], part)
                sums[row : row + step] += block[: len(part)] @ factor % PRIME
    return [int(total) for total in (sums % PRIME * rows % PRIME).sum(axis=0) % PRIME]


def _word(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint8 if dtype.itemsize % 2 else np.uint16)
