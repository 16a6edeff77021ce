"""Checks products of floats that a library has rounded: its order of summation is unknown, and its bits differ.

Every element has to keep the conventional bound, |c - ab| <= gamma_K |a||b| (Higham, Accuracy and Stability of
Numerical Algorithms, 2002, ch. 3). All that it allows would hide whole elements in a sum of many. So sums of columns
with random signs are held against what rounding is likely to do; where they exceed that, elements are compared one by
one. docs/verification.md derives both.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from math import sqrt
from typing import Any, NamedTuple, cast

import numpy as np

from kernels.common.row_tiles import on_tiles
from kernels.matmul.check_defined import functions, sums_and_sizes
from kernels.matmul.check_floats import ADDITION, FloatCheck, Side
from kernels.matmul.check_groups import Groups, signed_groups, signed_groups_and_rounds
from kernels.matmul.check_limits import Limits, Sums, share_of
from kernels.matmul.check_lines import UNDERFLOW, UPWARDS, Array, Batch, Lines, gamma_of, scaled_back
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS, Format

# Bits that the check keeps of factors, whose numbers it does not round: all of float16 and float32, and of float64 what
# is above 2^-400 of the largest number of its line.
KEPT = {"float16": 64, "float32": 400, "float64": 400}
FEW = 64  # elements that need no compiled code
LIKELY = 6.0  # times the root of the sum of the squares of what each rounding may be


class FiniteLines(Lines):
    """Lines of which only infinities and NaN count as zero: the magnitudes of the others say whether sums overflow."""

    def finite(self, lines: Array, batch: Batch, which: Any) -> Array:
        """These lines, with zeros in place of infinities and NaN."""
        nonfinite = self.some(self.nonfinite, batch, which)
        return np.where(np.isfinite(lines), lines, lines.dtype.type(0)) if nonfinite.any() else lines


class LibraryLimits(Limits):
    """From where on sums are examined: `likely` if terms cancel, as most do, and `most` if all round in one direction.

    Attributes
    ----------
    check : shape (..., 1, sums)
        The check's own rounding for rows of A of norm 1, at most.
    """

    def __init__(self, check: LibraryCheck, sums: Sums, groups: Groups) -> None:
        super().__init__(check, sums, groups)
        self.check = 2 * self.own  # once for sums of columns of C
        of_columns = np.sqrt(sums.grouped(sums.squares_of_columns))
        each = LIKELY * check.unit
        growing = each * max(1.0, sqrt(check.inner / 3))  # partial sums that grow evenly up to the element
        self.likely, self.own = self.likely + each * of_columns, self.own + growing * of_columns
        final = 2.0**-check.format.precision if check.is_half else 0.0
        self.roundings = final * (1.0 if groups.size == 1 else LIKELY) + 2 * growing
        self.powers += 2 * growing
        self.halves = self.halves * check.halves


class Judged(NamedTuple):
    """What the sums of a tile say: places of those to examine; which of them are wide; what the others admit.

    `part` are its rows, `small` places of elements that the sums could hide, or None if they are many.
    """

    part: slice
    small: Array | None
    off: Array
    wide: Array
    admitted: float
    most_admitted: float


class LibraryCheck(FloatCheck):
    """Checks a stack of products C of factors A and B, rounded by a library; parameters are those of `FloatCheck`.

    Attributes
    ----------
    escape
        Upper bound on the probability that an error above `undetected` goes unnoticed.
    unit
        A sum of the library is rounded by at most this share of it.
    is_half
        Whether sums are rounded once more, to float16.
    """

    lines = FiniteLines

    def __init__(
        self, factors: Factors, shape: tuple[int, ...], format: Format, random: np.random.Generator,
        side: Side | None = None,
    ) -> None:  # fmt: skip
        self.is_half = format.dtype == "float16"
        self._sums_format = FORMATS["float32"] if self.is_half else format
        self.unit = 2.0**-self._sums_format.precision
        super().__init__(factors, shape, replace(format, kept=KEPT[format.dtype]), random, side)

    def _worth_it(self, rows: int, inner: int, columns: int) -> bool:
        """Whether sums take less time than elements. Those of float16 are rounded so much that they hide elements."""
        if self.is_half:
            return False
        groups, rounds = signed_groups_and_rounds(columns, self.format.dtype)
        addition = ADDITION * rounds if self._library else groups * rounds
        return groups * rounds * rows * inner + addition * columns * (rows + inner) < 2 * rows * inner * columns

    def _random_groups(self, columns: int, random: np.random.Generator) -> Groups:
        return signed_groups(columns, self.format.dtype, random)

    def wrong(self, product: Array) -> list[str]:
        """Errors in a product, shape (..., M, N); sets `undetected`."""
        self.take(product, measure=not self._library)
        if self._singly:
            return self.wrong_singly()
        sums, limits = self._sums, cast("LibraryLimits", self._limits)
        judged = on_tiles(lambda number: self._tile(sums, limits, number), range(len(sums.parts)))
        off, wide = (np.concatenate([getattr(tile, name) for tile in judged]) for name in ("off", "wide"))
        for places, admitted in ((off, "admitted"), (off[wide], "most_admitted")):
            if (lines := self._examined(places, self.groups)) is not None:
                self.undetected = max(self.undetected, *(getattr(tile, admitted) for tile in judged))
                lines += self._wrong_small(sums, self.groups, [(tile.part, tile.small) for tile in judged])
                return lines + self.wrong_elsewhere()
        return self.wrong_singly()

    def limits_of(self, sums: Sums, groups: Groups) -> LibraryLimits:
        """How much these sums may be off by."""
        return LibraryLimits(self, sums, groups)

    def _tile(self, sums: Sums, limits: LibraryLimits, number: int) -> Judged:
        part, compared = sums.parts[number], sums.compared(number, limits)
        differences = np.abs(compared.differences)
        elsewhere = self.rows.some(self.rows.nonfinite | self.overflowed_rows, None, part)
        finite = differences < np.inf  # scaling may overflow
        off = ~((differences <= compared.likely) & finite) & ~elsewhere
        wide = off & ~((differences <= compared.most) & finite)
        # With either sign of an element a sum is off by what the element is off by, or more.
        errors = (differences + compared.norms * limits.check + limits.underflow) * UPWARDS
        admitted = (share_of(np.where(some | elsewhere, 0, errors), compared.sizes) for some in (off, wide))
        places = np.argwhere(off)
        places[:, -2] += part.start
        return Judged(part, self._small(sums, self.groups, number, errors), places, wide[off], *admitted)

    def _wrong_places(self, sums: Sums, groups: Groups, places: Array) -> list[str]:
        """Errors beyond the bound in elements that sums could hide."""
        library = functions() if places.shape[1] == 2 and len(places) > FEW else None
        if not library:
            stacks, which = np.unique(places[:, :-2], axis=0, return_inverse=True)
            return [
                line
                for number, batch in enumerate(map(tuple, stacks.tolist()))
                for line in self._wrong_conventionally(
                    batch or None, *map(np.unique, places[which.reshape(-1) == number, -2:].T)
                )
            ]
        return [
            f"element {place} of the region: got {self.product[*place]}, which is not the sum of its products"
            for place in places[self.beyond(library, places)][:3].tolist()
        ]

    def beyond(self, library: ctypes.CDLL, places: Array) -> Array:
        """Which elements of a matrix, given by row and column, are beyond their bound."""
        scales = self.rows.scales.reshape(-1), self.columns.scales.reshape(-1)
        product, magnitudes = sums_and_sizes(library, self.factors, scales, places)
        rows, columns = places.T
        scaled, bound = self._bounds(self.product[rows, columns], scales[0][rows] + scales[1][columns], magnitudes)
        return np.asarray(~(np.abs(scaled - product) <= bound))

    def _bounds(self, got: Array, scales: Array, magnitudes: Array) -> tuple[Array, Array]:
        """Elements in the scale of their rows and columns, and how far they may be from sums of these magnitudes."""
        scaled = scaled_back(got.astype(np.float64), scales)
        bound = (self.conventional + gamma_of(self.inner + self.chunks)) * magnitudes
        if self.is_half:
            bound += np.where(np.isfinite(scaled), 2.0**-self.format.precision * np.abs(scaled), 0)
        bound += np.ldexp(self.halves, self.format.least - 1 - scales) + UNDERFLOW * (self.inner + 1)
        bound *= UPWARDS
        return scaled, bound

    def wrong_block(self, batch: Batch, rows: Any, columns: Any) -> list[str]:
        """Errors in some rows and columns beyond the bound, element by element."""
        return self._wrong_conventionally(batch, rows, columns)

    def _compare_conventionally(
        self, batch: Batch, rows: Array, columns: Any, got: Any, product: Any, magnitudes: Any, terms: Any
    ) -> tuple[Array, Array, Array, Array]:
        """Like that of `ElementCheck`, but sums may overflow on the way: to infinities of both signs, thus to NaN."""
        scales = self.rows.some(self.rows.scales, batch, rows) + self.columns.some(self.columns.scales, batch, columns)
        scaled, bound = self._bounds(got, scales, magnitudes)
        largest, of_sums = (
            np.ldexp(1 - 2.0 ** -(format.precision + 1), format.top - scales)
            for format in (self.format, self._sums_format)
        )
        overflows = magnitudes + bound >= of_sums
        finite = np.isfinite(got)
        right = np.abs(scaled - product) <= bound
        right |= np.isinf(got) & (np.sign(got) * product + bound >= largest)
        right |= ~finite & overflows
        # Where all terms are zero, far below the largest numbers of the row and the column, so is the element.
        right &= ~self._disjoint(right & (got != 0) & (magnitudes <= UNDERFLOW), (batch, rows, columns))
        if terms is not None:
            plus, minus, undefined = np.asarray(terms > 0)
            undefined |= plus & minus
            right = np.where(undefined, np.isnan(got), right)
            for one, infinity in ((plus, np.inf), (minus, -np.inf)):
                right = np.where(~undefined & one, (got == infinity) | (np.isnan(got) & overflows), right)
            finite &= ~(plus | minus | undefined)
        return *self.admitted(np.where(finite, 2 * bound, 0), batch, rows), ~right, np.zeros_like(right)

    @property
    def conventional(self) -> float:
        """Error of an element, as a share of the sum of the magnitudes of its terms: gamma_K, in any order."""
        return gamma_of(self.inner, self.unit) * (1 + 2.0**-self.format.precision)

    @property
    def halves(self) -> float:
        """Halves of the least number that it may be off by besides: every product may underflow."""
        return float(self.inner + 1)
