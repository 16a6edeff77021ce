"""The factors of a region of a product, read part by part, by several threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from kernels.common.row_tiles import ahead, finish, tiles

HELD = 2**24  # approximate number of elements of A and B held at a time
READ = 2**21  # elements that a thread reads at a time; with a quarter of them Python makes more than twice the calls
ALIGNED = 16  # parts begin at multiples of this

Array = NDArray[Any]
Read = Callable[[int, slice, slice], Array]
See = Callable[[int, slice, slice, Array], None]


class Factors:
    """Reads parts of A and B; small factors are read once and kept.

    Parameters
    ----------
    read
        (0, rows, inner) -> these rows and columns of A; (1, columns, inner) -> these columns and rows of B. Both are
        matrices in their last two axes, or stacks of them that broadcast. Several threads call it at a time.
    rows, inner, columns
        Rows of A, products in a sum, columns of B.
    see
        Called with every part that is read: the arguments of `read`, and what it returned.
    most
        Elements of A and B, or numbers computed from them, that may be held at a time, if memory is limited.
    """

    def __init__(
        self, read: Read, rows: int, inner: int, columns: int, see: See = lambda *_: None, most: float = math.inf
    ) -> None:  # fmt: skip
        self.rows, self.inner, self.columns = rows, inner, columns
        self._most = most
        self._read, self._see = read, see
        self._kept: tuple[Array, Array] | None = None
        self.slices = tiles(inner, max(1, self.within(HELD) // max(1, rows + columns))) or [slice(0, 0)]
        if len(self.slices) == 1:
            self._kept = self.a(slice(0, rows), self.slices[0]), self.b(self.slices[0])

    @classmethod
    def of(cls, a: Array, b: Array) -> Factors:
        """Of arrays, whose parts are views."""
        return cls(lambda number, lines, inner: b[..., inner, lines] if number else a[..., lines, inner],
                   a.shape[-2], a.shape[-1], b.shape[-1])  # fmt: skip

    def a(self, rows: slice, inner: slice) -> Array:
        """Some rows and columns of A."""
        return self._kept[0][..., rows, inner] if self._kept else self._seen(0, rows, inner)

    def b(self, inner: slice) -> Array:
        """Some rows of B."""
        return self._kept[1][..., inner, :] if self._kept else self._seen(1, slice(0, self.columns), inner)

    def _seen(self, number: int, lines: slice, inner: slice) -> Array:
        block = self._read(number, lines, inner)
        self._see(number, lines, inner, block)
        return block

    def within(self, numbers: int, copies: int = 1) -> int:
        """So many numbers, or fewer, of which memory has room for this many copies."""
        return int(min(numbers, self._most / copies))

    def parts(self, lines: int, within: slice | None = None) -> list[slice]:
        """Parts of the sums that one thread reads at a time, of so many rows of A or columns of B."""
        start, stop, _ = (within or slice(self.inner)).indices(self.inner)
        step = max(1, self.within(READ) // max(1, lines) // ALIGNED) * ALIGNED
        return [slice(start + part.start, start + part.stop) for part in tiles(stop - start, step)] or [
            slice(start, stop)
        ]

    def slabs(self) -> Iterator[tuple[Array, Array]]:
        """All rows and columns, some products of a sum at a time; the next ones are read meanwhile."""
        if self._kept:
            yield self._kept
            return

        def load(inner: slice) -> tuple[Array, Array]:
            return self.a(slice(0, self.rows), inner), self.b(inner)

        following = ahead(load, self.slices[0])
        try:
            for inner in self.slices[1:]:
                slab, following = following.result(), ahead(load, inner)
                yield slab
            yield following.result()
        finally:
            finish([following])  # what it reads from is closed as soon as the check ends


def of_batch(block: Array, batch: Sequence[int]) -> Array:
    """The matrix of a stack that a matrix of the product is computed from."""
    own = batch[len(batch) - (block.ndim - 2) :]
    matrix: Array = block[tuple(0 if length == 1 else index for index, length in zip(own, block.shape, strict=False))]
    return matrix
