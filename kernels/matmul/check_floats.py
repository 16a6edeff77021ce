"""Checks products of floats: sums of groups of columns with random signs, or element by element.

By definition (docs/matmul.md) an element is the exact product of a row and a column, each rounded to integers, and is
rounded once, unless it is uncertain. A check that rounds rows and columns likewise, with code of its own, has to allow
for one rounding of each element and for its own arithmetic only. Where that is exceeded, elements are examined one by
one. docs/verification.md derives the bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernels.common.row_tiles import on_tiles
from kernels.matmul.check_compiled import functions
from kernels.matmul.check_dense import DenseSums
from kernels.matmul.check_groups import Groups, groups_and_rounds, random_groups, single_columns
from kernels.matmul.check_hidden import HiddenCheck
from kernels.matmul.check_limits import Compared, Limits, OfColumns, Sums, share_of
from kernels.matmul.check_lines import (
    UNDERFLOW,
    UPWARDS,
    Array,
    Lines,
    add_product,
    gamma_of,
    row_tiles,
    sizes_of,
    work,
)
from kernels.matmul.check_sums import HEIGHT, TileSums
from kernels.matmul.factors import Factors
from kernels.matmul.formats import Format

ADDITION = 2  # multiplications that take as long as adding a number to a sum, compiled
COMPILED = 2**26  # `work` that makes it worth compiling
BUDGET, SHARE = 2**33, 8  # multiplications to examine elements: this many, or that fraction of the product's


@dataclass(frozen=True)
class Verdict:
    """What the sums of a tile of C say.

    Attributes
    ----------
    part
        Rows of the tile.
    off : int64 array, shape (n, 2 or more)
        Matrix, row and number of each sum that is not right for certain.
    wide : bool array, shape (n,)
        Whether it is off by more than any right one.
    admitted, most_admitted
        Errors that may hide in the sums that are not off, or not off widely: in units of the root mean square of a row.
    suspects : int64 array, shape (n, 2)
        Rows and columns of elements to examine besides; None if they are too many.
    small : int64 array, shape (n, 2 or more)
        Places of elements that their sums could hide; None if they are too many.
    """

    part: slice
    off: Array
    wide: Array
    admitted: float
    most_admitted: float
    suspects: Array | None
    small: Array | None


class Side(NamedTuple):
    """What checks of several products with the same B share; without `sums` they compute these themselves."""

    columns: Lines
    groups: Groups
    sums: OfColumns | None


class FloatCheck(HiddenCheck):
    """Checks a stack of products C of factors A and B. What does not need C is done when it is created.

    Rows with infinities or NaN in A or overflows in C, and columns with infinities or NaN in B, are compared element by
    element, within the bound of a conventional dot product.

    Parameters
    ----------
    factors
        In the dtype of the product.
    shape
        Of the product: (..., M, N).
    format
    random
    side
        Of a check of other rows with the same B.

    Attributes
    ----------
    side
        What checks of other rows with the same B can use.
    escape
        Upper bound on the probability that a wrong element goes unnoticed. "Wrong" is what is off by more than
        `undetected`.
    """

    def __init__(
        self, factors: Factors, shape: tuple[int, ...], format: Format, random: np.random.Generator,
        side: Side | None = None,
    ) -> None:  # fmt: skip
        rows, columns = shape[-2:]
        large = len(shape) == 2 and work(rows, factors.inner, columns) >= COMPILED
        self._library = functions() if large else None
        super().__init__(factors, shape, format, side.columns if side else None, self._library)
        if self._worth_it(rows, factors.inner, columns):
            self.groups = side.groups if side and side.groups.size > 1 else self._random_groups(columns, random)
        else:
            self.groups = single_columns(columns)
            if rows < HEIGHT // 2:  # of a tile
                self._library = None
        self.escape = self.groups.escape
        self._singly = self._library is None and self.groups.size == 1
        of_columns = side.sums if side and side.groups is self.groups and self._library else None
        if not self._singly:
            self._sums = self.sums_of(self.groups)
            of_columns = self._sums.run(of_columns)
            self._limits = self.limits_of(self._sums, self.groups)
        self.side = Side(self.columns, self.groups, of_columns)

    @property
    def budget(self) -> int:
        """Multiplications to examine elements."""
        return max(BUDGET, self.inner * math.prod(self.shape) // SHARE)

    def _worth_it(self, rows: int, inner: int, columns: int) -> bool:
        """Whether sums of groups take less time than the elements."""
        groups, rounds = groups_and_rounds(inner, columns, self.format.dtype)
        if self._library is None and self.format.dtype == "float16":
            return False  # its groups are small
        addition = ADDITION * rounds if self._library else groups * rounds
        return groups * rounds * rows * inner + addition * columns * (rows + inner) < rows * inner * columns

    def _random_groups(self, columns: int, random: np.random.Generator) -> Groups:
        return random_groups(self.factors.inner, columns, self.format.dtype, random)

    def wrong(self, product: Array) -> list[str]:
        """Errors in a product, shape (..., M, N); sets `undetected`."""
        self.take(product, measure=not self._library)
        if self._singly:
            return self.wrong_singly() + self.wrong_elsewhere()
        return self._wrong_sums(self._sums, self.groups, self._limits) + self.wrong_elsewhere()

    def limits_of(self, sums: Sums, groups: Groups) -> Limits:
        """How much these sums may be off by."""
        return Limits(self, sums, groups)

    def sums_of(self, groups: Groups, parts: list[slice] | None = None) -> Sums:
        """The sums of these groups, of all rows or some tiles."""
        return TileSums(self._library, self, groups, parts) if self._library else DenseSums(self, groups)

    def _wrong_sums(self, sums: Sums, groups: Groups, limits: Limits) -> list[str]:
        """Errors in sums: the elements of those that are off are examined one by one."""
        verdicts = self._judged(sums, groups, limits)
        crowded = [part for part, verdict in zip(sums.parts, verdicts, strict=True) if verdict.suspects is None]
        verdicts = [verdict for verdict in verdicts if verdict.suspects is not None]
        lines: list[str] = []
        if crowded:
            groups_of_one = single_columns(self.shape[-1])
            singles = self.sums_of(groups_of_one, crowded)
            singles.run()
            lines = self._wrong_sums(singles, groups_of_one, self.limits_of(singles, groups_of_one))
        if not verdicts:
            return lines
        lines += self._wrong_small(sums, groups, [(verdict.part, verdict.small) for verdict in verdicts])
        off, wide = (np.concatenate([getattr(verdict, name) for verdict in verdicts]) for name in ("off", "wide"))
        self.undetected = max(self.undetected, *(verdict.admitted for verdict in verdicts))
        if isinstance(sums, TileSums) and self._by_elements(groups):
            suspects = [verdict.suspects for verdict in verdicts if verdict.suspects is not None]
            return lines + self._wrong_suspects(sums, [*suspects, groups.elements(off)])
        if (errors := self._examined(off, groups)) is not None:
            return lines + errors
        # Too many: what right sums may be off by passes.
        self.undetected = max(self.undetected, *(verdict.most_admitted for verdict in verdicts))
        if (errors := self._examined(off[wide], groups)) is not None:
            return lines + errors
        return lines + self._wrong_conventional_sums(off[wide], groups)

    def _judged(self, sums: Sums, groups: Groups, limits: Limits) -> list[Verdict]:
        """Which sums are off, tile by tile."""

        def judge(number: int, own: Array | None = None) -> Verdict | None:
            compared = sums.compared(number, limits, own)
            if own is None and limits.are_loose(compared.norms, compared.sizes):
                return None
            return self._verdict(sums, groups, number, compared)

        verdicts = on_tiles(judge, range(len(sums.parts)))
        if loose := [number for number, verdict in enumerate(verdicts) if verdict is None]:
            for number, own in sums.own_bounds(loose).items():
                verdicts[number] = judge(number, own)
        return [verdict for verdict in verdicts if verdict]

    def _verdict(self, sums: Sums, groups: Groups, number: int, compared: Compared) -> Verdict:
        part = sums.parts[number]
        elsewhere = self.rows.some(self.rows.nonfinite, None, part) | self.rows.some(self.overflowed_rows, None, part)
        if isinstance(sums, TileSums):
            count, admitted, most_admitted = sums.judged(number, compared, elsewhere[:, 0])
            if not count:
                none = np.empty((0, 2), np.int64), np.empty(0, bool)
                suspects = self._suspects(sums, groups, number, compared, 0)
                small = self._small(sums, groups, number, self._hidden(sums, compared))
                return Verdict(part, *none, admitted, most_admitted, suspects, small)
        differences = np.abs(compared.differences)
        finite = differences < np.inf  # scaling may overflow
        off = ~((differences <= compared.likely) & finite)
        off &= ~elsewhere
        wide = off & ~((differences <= compared.most) & finite) if off.any() else off
        admitted, most_admitted = (
            share_of(np.where(some, 0, errors) if some.any() else errors, compared.sizes)
            for some, errors in ((off, compared.likely + compared.most), (wide, 2 * compared.most))
        )
        places = np.argwhere(off)
        places[:, -2] += part.start
        suspects = self._suspects(sums, groups, number, compared, len(places))
        small = self._small(sums, groups, number, self._hidden(sums, compared))
        return Verdict(part, places, wide[off], admitted, most_admitted, suspects, small)

    def _examined(self, off: Array, groups: Groups) -> list[str] | None:
        """Errors in the elements of sums, matrix by matrix; None if examining them would take too long."""
        blocks: list[tuple[tuple[int, ...], Array, Array]] = []
        for place in np.unique(off[:, :-2], axis=0) if len(off) else ():
            some = off[(off[:, :-2] == place).all(-1)]
            columns = np.isin(groups.sums, some[:, -1]).any(0)
            blocks.append((tuple(place.tolist()), np.unique(some[:, -2]), np.flatnonzero(columns)))
        multiplications = self.inner * sum(len(rows) * len(columns) for _, rows, columns in blocks)
        if multiplications > self.budget:
            return None
        return [line for block in blocks for line in self.wrong_block(*block)]

    def _wrong_conventional_sums(self, off: Array, groups: Groups) -> list[str]:
        """Errors in some sums beyond the bound of conventional dot products, of factors that are not rounded."""
        signs, ones = groups.matrix, np.abs(groups.matrix)
        *batch, rows, _ = self.product.shape
        sums, magnitudes = np.zeros((2, *batch, rows, groups.number))
        for a, b in self.factors.slabs():
            b = self.columns.scaled(b, None, slice(None))
            signed, of_groups = b @ signs, np.abs(b) @ ones
            for part in row_tiles(batch, rows):
                tile = self.rows.scaled(a, None, part)
                add_product(sums[..., part, :], tile, signed)
                add_product(magnitudes[..., part, :], np.abs(tile, out=tile), of_groups)
        for part in row_tiles(batch, rows):
            sums[..., part, :] -= self.scaled_product(None, part, slice(None)) @ signs
        bound = (self.conventional + self.own_gamma + 2 * gamma_of(groups.size)) * magnitudes
        underflow = np.ldexp(1.0, -self.columns.scales) @ ones * self.halves
        bound += np.ldexp(underflow, self.format.least - 1 - self.rows.scales)
        bound += groups.size * UNDERFLOW * (self.inner + 1)
        bound *= UPWARDS
        examined = np.zeros(sums.shape, bool)
        examined[tuple(off.T)] = True
        sizes = sizes_of(self.scaled_product(None, slice(None), slice(None)), self.columns.scales)
        self._note(np.where(examined, 2 * bound, 0), sizes)
        return [
            f"row {place} of the region: a sum of its elements with random signs is off by "
            f"{abs(sums[*place, number]):.3g} in its scale, expected {bound[*place, number]:.3g} at most"
            for *place, number in np.argwhere(examined & ~(np.abs(sums) <= bound))[:3].tolist()
        ]
