"""Which elements the threads of a variant touch, by the same expressions as in its source: for pictures and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

BANKS = 32  # of shared memory, each 4 bytes wide: words lie in them in turns
WARP = 32

Step = list[tuple[int, int]]  # (thread, the neighbour whose value it adds to its own)


def _modulo(size: int) -> Iterator[Step]:
    offset = 1
    while offset < size:
        yield [(tid, tid + offset) for tid in range(size) if tid % (offset * 2) == 0 and tid + offset < size]
        offset *= 2


def _sequential(size: int) -> Iterator[Step]:
    offset = size // 2
    while offset > 0:
        yield [(tid, tid + offset) for tid in range(size) if tid < offset]
        offset //= 2


def _any_size(size: int) -> Iterator[Step]:
    s, b = (size - 1) // 2 + 1, size // 2
    while b > 0:
        yield [(tid, tid + s) for tid in range(size) if tid < b]
        b, s = s // 2, (s - 1) // 2 + 1


REDUCTIONS: Mapping[str, Callable[[int], Iterator[Step]]] = {
    "modulo": _modulo, "sequential": _sequential, "any_size": _any_size,
}  # fmt: skip
# Words between the rows of the tile of a transpose, beyond its width.
PADDING = {"shared_tile": 0, "padded_tile": 1}


def reduced(variant: str, values: list[int]) -> list[list[int]]:
    """The array before the first step of a reduction and after each."""
    arrays = [values]
    for step in REDUCTIONS[variant](len(values)):
        before = arrays[-1]
        after = list(before)
        for thread, neighbour in step:
            after[thread] = before[thread] + before[neighbour]
        arrays.append(after)
    return arrays


def bank_map(variant: str, tile: int = 32) -> NDArray[np.int64]:
    """Bank of each element of a transpose's tile of 4-byte elements, shape (tile, tile)."""
    rows, columns = np.indices((tile, tile))
    return np.asarray((rows * (tile + PADDING[variant]) + columns) % BANKS)


def conflicts(variant: str, tile: int = 32) -> dict[str, int]:
    """How many threads of a warp meet in one bank at most, when it stores along a row and when it loads along a column.

    A warp has threads (x, y), x first: it stores tile[y][x] and loads tile[x][y]. Two that want the same word do not
    wait for each other.
    """
    banks = bank_map(variant, tile)
    lanes = [divmod(lane, tile) for lane in range(WARP)]  # (y, x)
    return {"store": _most_in_one_bank([(y, x) for y, x in lanes], banks),
            "load": _most_in_one_bank([(x, y) for y, x in lanes], banks)}  # fmt: skip


def _most_in_one_bank(places: list[tuple[int, int]], banks: NDArray[np.int64]) -> int:
    return max(Counter(int(banks[place]) for place in set(places)).values())
