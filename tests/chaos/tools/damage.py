"""Errors of memory, buses and kernels, as they are planted into arrays: single bits, several, lanes, tiles."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

LANES = 32  # of a warp
TILE = 16  # rows and columns; a run has as many elements as a tile

Bytes = NDArray[np.uint8]  # (elements, bytes of an element)


def _bits(elements: Bytes, random: Random, number: int) -> None:
    """Flip so many bits of an element."""
    element = elements[random.randrange(len(elements))]
    for bit in random.sample(range(8 * len(element)), min(number, 8 * len(element))):
        element[bit // 8] ^= 1 << bit % 8


def _one(elements: Bytes, columns: int, random: Random) -> None:
    _bits(elements, random, 1)


def _several(elements: Bytes, columns: int, random: Random) -> None:
    _bits(elements, random, random.randint(2, 8))


def _lanes(elements: Bytes, columns: int, random: Random) -> None:
    """Flip the same bit of neighbouring elements."""
    first, bit = random.randrange(max(1, len(elements) - LANES + 1)), random.randrange(8 * elements.shape[1])
    elements[first : first + LANES, bit // 8] ^= 1 << bit % 8


def _tile(elements: Bytes, columns: int, random: Random) -> None:
    """Replace a tile of a matrix with so many columns, or a run of elements, by zeros or by anything else."""
    rows = len(elements) // columns
    if rows >= TILE and columns >= TILE and random.random() < 0.5:
        row, column = random.randrange(rows - TILE + 1), random.randrange(columns - TILE + 1)
        matrix = elements[: rows * columns].reshape(rows, columns, -1)
        part = matrix[row : row + TILE, column : column + TILE]
    else:
        first = random.randrange(max(1, len(elements) - TILE * TILE + 1))
        part = elements[first : first + TILE * TILE]
    if part.any() and random.random() < 0.5:
        part[:] = 0
    else:
        noise = np.frombuffer(random.randbytes(part.size), np.uint8).reshape(part.shape)
        part ^= noise | (noise == 0)


KINDS: dict[str, Callable[[Bytes, int, Random], None]] = {
    "1 bit": _one, "2 to 8 bits": _several, "32 lanes": _lanes, "tile": _tile,
}  # fmt: skip


def damaged(array: NDArray[Any], kind: str, random: Random) -> NDArray[Any]:
    """A copy of an array, of at least one element, that differs in at least one bit."""
    copy = np.array(array, order="C")
    elements = copy.reshape(-1).view(np.uint8).reshape(copy.size, copy.itemsize)
    KINDS[kind](elements, copy.shape[-1] if copy.ndim > 1 else 64, random)
    if copy.tobytes() == array.tobytes():
        raise AssertionError(f"expected {kind} to change something")
    return copy
