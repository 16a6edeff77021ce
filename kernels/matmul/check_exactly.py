"""Elements of a product of floats that bounds say nothing about: computed from their definition, to the last bit."""

from __future__ import annotations

import ctypes
import math
from functools import cached_property
from typing import Any

import numpy as np

from kernels.common.row_tiles import tiles
from kernels.matmul.check_defined import Support, defined, functions
from kernels.matmul.check_lines import Array, Batch, Lines
from kernels.matmul.check_measured import Measured
from kernels.matmul.check_sample import wrong_elements
from kernels.matmul.factors import Factors, of_batch
from kernels.matmul.formats import Format

EXAMINED, EXAMINED_PRODUCTS = 64, 2**18  # elements recomputed in Python's integers; their multiplications, at most
WORDS = 2**27  # of bits that say which numbers are not zero, at most
DEFINED = 64  # multiplications that take as long as one of an element that is computed from its definition


class DefinedCheck(Measured):
    """Computes elements of a stack of products from their definition, as many as there is time for."""

    def __init__(
        self, factors: Factors, shape: tuple[int, ...], format: Format, columns: Lines | None = None,
        library: ctypes.CDLL | None = None,
    ) -> None:  # fmt: skip
        super().__init__(factors, shape, format, columns, library)
        self.inner, self._library = factors.inner, library
        self._left = self.budget // DEFINED  # products for such elements

    @property
    def budget(self) -> int:
        """Multiplications to examine elements."""
        raise NotImplementedError

    def _wrong_conventionally(self, batch: Batch, rows: Any, columns: Any) -> list[str]:
        """Errors in some rows and columns beyond the bound of a conventional dot product."""
        raise NotImplementedError

    def wrong_exactly(self, places: Array, bounded: bool = False) -> list[str]:
        """Errors among some elements, which have to equal the definition to the last bit: as many as there is time for.

        Parameters
        ----------
        places : int array, shape (n, dimensions)
        bounded
            Whether others are known to keep the bound of a conventional dot product. If not, they are compared with it.
        """
        if not len(places):
            return []
        few = places[: max(1, min(EXAMINED, EXAMINED_PRODUCTS // max(1, self.inner)))]
        library = functions() if len(places) > len(few) else None
        if library is None:
            lines = wrong_elements(self.factors, self.product, list(map(tuple, few.tolist())), self.format)
        else:
            few = places[: self._left // max(1, self.inner)]
            self._left -= len(few) * self.inner
            lines = self._wrong_by_definition(library, few)
        if not lines and not bounded and len(places) > len(few):
            rest = places[len(few) :]
            for *batch, number in np.unique(rest[:, :-1], axis=0).tolist() if rest.shape[1] > 2 else ():
                which = (rest[:, :-1] == [*batch, number]).all(-1)
                lines += self._wrong_conventionally(tuple(batch), np.array([number]), np.unique(rest[which, -1]))
            if rest.shape[1] == 2:
                rows, columns = map(np.unique, rest.T)
                for part in tiles(len(rows)):
                    lines += self._wrong_conventionally(None, rows[part], columns)
        return lines

    def _wrong_by_definition(self, library: ctypes.CDLL, places: Array) -> list[str]:
        lines: list[str] = []
        stacks, which = np.unique(places[:, :-2], axis=0, return_inverse=True)
        for number, batch in enumerate(map(tuple, stacks.tolist())):
            own = places[which.reshape(-1) == number]
            exponents = [of_batch(of.exponents, batch).reshape(-1) for of in (self.rows, self.columns)]
            right = defined(library, self.factors, exponents, own[:, -2:], self.format, batch)
            got = self.product[tuple(own.T)]
            of_bits = f"u{got.itemsize}"
            for at in np.flatnonzero(right.view(of_bits) != got.view(of_bits))[:3]:
                lines.append(f"element {own[at].tolist()} of the region: expected {right[at]}, got {got[at]}")
        return lines

    def moved(self, of_rows: Array, of_columns: Array) -> Array:
        """How far the rounding of rows and columns of these norms moves sums of their products, at most."""
        unit, root = 2.0**-self.format.kept, math.sqrt(self.inner)
        moved: Array = unit * root * (of_rows + of_columns + unit * root)
        return moved

    def _without_terms(self, small: Array, lines: tuple[Batch, Any, Any]) -> Array:
        """Some elements of a block but those that are +0, and whose terms all have a factor that is zero."""
        got = self.columns.some(self.rows.some(self.product, *lines[:2]), None, lines[2])
        return small & ~self._disjoint(small & (got == 0) & ~np.signbit(got), lines)

    def _disjoint(self, which: Array, lines: tuple[Batch, Any, Any]) -> Array:
        """Those of some elements of a block whose terms all have a factor that is zero."""
        if not which.any():
            return which
        if self._library and self.support:
            return self.support.disjoint(*lines[1:], which)
        total: Any = 0.0
        for a, b in self.factors.slabs():
            some = self.rows.some(a, *lines[:2]), self.columns.some(b, lines[0], lines[2])
            nonzero = ((of != 0).astype(np.float32) for of in some)
            total = total + np.matmul(*nonzero)
        disjoint: Array = which & (total == 0)
        return disjoint

    @cached_property
    def support(self) -> Support | None:
        """Which numbers of a matrix are not zero; None if that would take too much memory."""
        words = (self.factors.rows + self.factors.columns) * -(-self.inner // 64)
        return Support(self.factors) if words <= self.factors.within(WORDS) else None

    def _places(self, off: Array, batch: Batch, rows: Any, columns: Any) -> Array:
        """Places in C of some elements of a block."""
        *of_stack, i, j = off.nonzero()
        of_rows, of_columns = (np.arange(length)[which] for length, which in
                               zip(self.product.shape[-2:], (rows, columns), strict=True))  # fmt: skip
        stack = [np.full(len(i), index) for index in batch] if batch else of_stack
        return np.stack([*stack, of_rows[i], of_columns[j]], axis=-1)
