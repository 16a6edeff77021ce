"""Checks products of floats: sums of groups of columns with random signs, or element by element.

By definition (docs/matmul.md) an element is the exact product of a row and a column, each rounded to integers, and is
rounded once, unless it is uncertain. A check that rounds rows and columns likewise, with code of its own, has to allow
for one rounding of each element and for its own arithmetic only. Where that is exceeded, elements are examined one by
one. docs/verification.md derives the bounds.
"""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np

from kernels.common.tiles import on_tiles
from kernels.matmul.check_elements import LOOSE, ElementCheck
from kernels.matmul.check_lines import (
    INNER,
    UNDERFLOW,
    UPWARDS,
    Array,
    Batch,
    add_product,
    gamma_of,
    row_tiles,
    sizes_of,
    squares_of,
)
from kernels.matmul.formats import Format
from kernels.matmul.reference import Slabs

ESCAPE = 2.0**-20  # probability that wrong elements of a row escape all rounds, at most
# Columns in a group: fewer let smaller errors be found, and take longer.
GROUP = {"float16": 16, "float32": 1024, "float64": 64}
MOST_GROUPS = {"float16": 64, "float32": 8, "float64": 64}  # products with more columns have larger groups
# Products of float16 are checked element by element up to this many multiplications: their roundings are so large that
# a few elements in a group hide one that was set to zero.
SINGLY = 2**36
PRODUCTS = 3  # products with the matrix of signs that sums of groups take: more columns than these make them worth it
BUDGET, SHARE = 2**33, 8  # multiplications to examine elements: this many, or that fraction of the product's


class FloatCheck(ElementCheck):
    """Checks a stack of products C of factors A and B, which `slabs` reads part by part.

    Rows with infinities or NaN in A or overflows in C, and columns with infinities or NaN in B, are compared element by
    element, within the bound of a conventional dot product.

    Parameters
    ----------
    slabs
        Reads the factors, in the dtype of the product.
    product : float16, float32 or float64 array, shape (..., M, N)
    format
    random
    products
        Multiplications of the whole product, of which this may be a region.

    Attributes
    ----------
    escape
        Upper bound on the probability that a wrong element goes unnoticed. "Wrong" is what is off by more than
        `undetected`.
    """

    def __init__(
        self, slabs: Slabs, product: Array, format: Format, random: np.random.Generator, products: int
    ) -> None:
        super().__init__(slabs, product, format)
        dtype, columns = format.dtype, product.shape[-1]
        self.signs, self.group, self.escape = random_signs(columns, GROUP[dtype], MOST_GROUPS[dtype], random)
        few = dtype == "float16" and products <= SINGLY
        self.singly = few or PRODUCTS * self.signs.shape[-1] >= columns
        if self.singly:
            self.escape = 0.0

    def wrong(self) -> list[str]:
        """Errors; sets `undetected`."""
        return (self.wrong_singly() if self.singly else self._wrong_sums()) + self.wrong_elsewhere()

    def _wrong_sums(self) -> list[str]:
        """Errors in the sums with random signs: the elements of those that are off are examined one by one."""
        differences, bound = self.compare()
        off = ~(differences <= bound) & ~(self.rows.nonfinite | self.overflowed_rows)
        self._note(np.where(off, 0, bound), self.sizes)
        if not off.any():
            return []
        blocks = []
        for place in np.argwhere(off.any((-2, -1))).tolist():
            rows = np.flatnonzero(off[*place].any(-1))
            columns = np.flatnonzero(self.signs[:, off[*place].any(0)].any(-1))
            blocks.append((tuple(place), rows, columns))
        multiplications = self.inner * sum(len(rows) * len(columns) for _, rows, columns in blocks)
        if multiplications <= max(BUDGET, self.inner * self.product.size // SHARE):
            return [line for block in blocks for line in self.wrong_block(*block)]
        differences, bound = self._compare_conventionally()
        self._note(np.where(off, bound, 0), self.sizes)
        return [
            f"row {place} of the region: a sum of its elements with random signs is off by "
            f"{differences[*place, number]:.3g} in its scale, expected {bound[*place, number]:.3g} at most"
            for *place, number in np.argwhere(off & ~(differences <= bound))[:3].tolist()
        ]

    def compare(self) -> tuple[Array, Array]:
        """Differences and bounds of the sums, shape (..., M, sums of each row), in the scales of rows and columns."""
        *batch, rows, columns = self.product.shape
        ones = np.abs(self.signs)
        sums, norms = np.zeros((*batch, rows, self.signs.shape[-1])), np.zeros((*batch, rows, 1))
        of_sums: Any = 0.0  # squares of B r, added up
        of_columns: Any = 0.0  # likewise of B
        for a, b in self.slabs():
            signed, squares = self._signed(b)
            of_sums = of_sums + squares_of(signed, -2)
            of_columns = of_columns + squares

            def add(part: slice, a: Array = a, signed: Array = signed) -> None:
                tile = self.rows.rounded(a, None, part)
                add_product(sums[..., part, :], tile, signed)
                norms[..., part, :] += squares_of(tile, -1)

            on_tiles(add, row_tiles(batch, rows))
        bound, self.sizes = np.zeros_like(sums), np.empty_like(norms)
        unit = 2.0**-self.format.precision + gamma_of(self.group)
        by_norm = unit * np.sqrt(self.group)  # of a row of C, by Cauchy and Schwarz

        def compare(part: slice) -> None:
            tile = self._scaled_product(None, part, slice(None))
            sums[..., part, :] -= tile @ self.signs
            self.sizes[..., part, :] = sizes_of(tile, self.columns.scales)
            if by_norm * np.sqrt(columns) < LOOSE[self.format.dtype]:
                bound[..., part, :] = by_norm * np.sqrt(squares_of(tile, -1))
            else:
                np.matmul(np.abs(tile, out=tile), unit * ones, out=bound[..., part, :])

        on_tiles(compare, row_tiles(batch, rows))
        subnormal = np.ldexp(1.0, -self.columns.scales) @ ones  # results that are subnormal, rounded
        bound += np.ldexp(subnormal, self.format.least - 1 - self.rows.scales)
        bound += columns * UNDERFLOW * (self.inner + 1)
        # The error of A (B r), by Cauchy and Schwarz: no sum is larger than the product of these.
        of_groups = np.sqrt(self.group * (of_columns @ ones))
        own = np.sqrt(norms) * (self.own_gamma * np.sqrt(of_sums) + gamma_of(self.group) * of_groups)
        loose = self._is_loose(own, self.sizes)
        for place in np.argwhere(loose.any(-1)).tolist() if loose.any() else ():
            which = np.flatnonzero(loose[*place])
            own[*place, which] = self._own_bound(tuple(place), which)
        return np.abs(sums, out=sums), (bound + own) * UPWARDS

    def _signed(self, b: Array) -> tuple[Array, Array]:
        """B r for rows of B, and the sums of squares of these rows, by column."""
        signed = np.empty((*b.shape[:-1], self.signs.shape[-1]))

        def add(part: slice) -> Array:
            tile = self.columns.rounded(b[..., part, :], None, slice(None))
            np.matmul(tile, self.signs, out=signed[..., part, :])
            return squares_of(tile, -2)

        return signed, sum(on_tiles(add, row_tiles(b.shape[:-2], b.shape[-2], INNER)), np.zeros(1))

    def _own_bound(self, batch: Batch, rows: Any) -> Array:
        """The error of A (B r) for some rows, from the magnitudes of all terms."""
        own: Any = 0.0
        for a, b in self.slabs():
            a = np.abs(self.rows.rounded(a, batch, rows))
            b = self.columns.rounded(b, batch, slice(None))
            signed = self.own_gamma * np.abs(b @ self.signs)
            own = own + a @ (signed + gamma_of(self.group) * (np.abs(b) @ np.abs(self.signs)))
        return np.asarray(own)

    def _compare_conventionally(self) -> tuple[Array, Array]:
        """The same if all elements may be uncertain: of factors that are not rounded, with a wider bound."""
        *batch, rows, _ = self.product.shape
        ones = np.abs(self.signs)
        sums, magnitudes = np.zeros((2, *batch, rows, self.signs.shape[-1]))
        for a, b in self.slabs():
            b = self.columns.scaled(b, None, slice(None))
            signed, of_groups = b @ self.signs, np.abs(b) @ ones
            for part in row_tiles(batch, rows):
                tile = self.rows.scaled(a, None, part)
                add_product(sums[..., part, :], tile, signed)
                add_product(magnitudes[..., part, :], np.abs(tile, out=tile), of_groups)
        for part in row_tiles(batch, rows):
            sums[..., part, :] -= self._scaled_product(None, part, slice(None)) @ self.signs
        bound = (self._conventional + self.own_gamma + 2 * gamma_of(self.group)) * magnitudes
        underflow = np.ldexp(1.0, -self.columns.scales) @ ones * self._halves
        bound += np.ldexp(underflow, self.format.least - 1 - self.rows.scales)
        bound += self.group * UNDERFLOW * (self.inner + 1)
        bound *= UPWARDS
        return np.abs(sums, out=sums), bound


def random_signs(columns: int, group: int, most: int, random: np.random.Generator) -> tuple[Array, int, float]:
    """Random sums of columns: in each round every column belongs to one of several groups, with a random sign.

    Returns
    -------
    array of -1, 0 and 1, shape (columns, sums)
    Columns in a group, at most.
    Upper bound on the probability that errors in a row of C escape, each of which exceeds twice the bound of its sums:
    one that is alone in its group never does, and several are in one group with a small probability only.
    """
    groups = min(-(-columns // group), most)
    if groups <= 1:
        rounds, each = ceil(-log2(ESCAPE)), 0.5
        return random.choice([-1.0, 1.0], (columns, rounds)), columns, each**rounds
    group = -(-columns // groups)
    each = min(0.5, (group - 1) / (groups * group - 1))
    rounds = ceil(log2(ESCAPE) / log2(each))
    signs = np.zeros((columns, rounds * groups))
    for number in range(rounds):
        chosen = number * groups + random.permutation(groups * group)[:columns] // group
        signs[np.arange(columns), chosen] = random.choice([-1.0, 1.0], columns)
    return signs, group, each**rounds
