"""Checks products of floats: sums of groups of columns with random signs, or element by element.

By definition (docs/matmul.md) an element is the exact product of a row and a column, each rounded to integers, and is
rounded once, unless it is uncertain. A check that rounds rows and columns likewise, with code of its own, has to allow
for one rounding of each element and for its own arithmetic only. Where that is exceeded, elements are examined one by
one. docs/verification.md derives the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.tiles import HEIGHT, on_tiles, tiles
from kernels.matmul.formats import Format
from kernels.matmul.reference import Slabs, of_batch, wrong_elements

ESCAPE = 2.0**-20  # probability that wrong elements of a row escape all rounds, at most
# Columns in a group: fewer let smaller errors be found, and take longer.
GROUP = {"float16": 16, "float32": 1024, "float64": 64}
MOST_GROUPS = {"float16": 64, "float32": 8, "float64": 64}  # products with more columns have larger groups
# Products of float16 are checked element by element up to this many multiplications: their roundings are so large that
# a few elements in a group hide one that was set to zero.
SINGLY = 2**36
PRODUCTS = 3  # products with the matrix of signs that sums of groups take: more columns than these make them worth it

INNER = 128  # products that BLAS adds up at a time: the error of a sum grows with this and with their number
# Rows and columns are scaled by powers of two to magnitudes of 1/2 to 1, so that nothing overflows. Lines below this
# exponent are scaled as if they had it, so that scaling back the elements of C does not overflow either.
LEAST_EXPONENT = -500
# UNDERFLOW exceeds the sum of all underflows of the check; UPWARDS covers the rounding of the bound itself.
UNDERFLOW, UPWARDS = 2.0**-1000, 1 + 2.0**-20
# What the check's own rounding may amount to, beside the elements of a row, before it is bounded more closely.
LOOSE = {"float16": 2.0**-7, "float32": 2.0**-12, "float64": 2.0**-32}
HELD = 2**24  # elements that are examined at a time
EXAMINED, EXAMINED_PRODUCTS = 64, 2**18  # elements recomputed in exact integers; their multiplications, at most
BUDGET, SHARE = 2**33, 8  # multiplications to examine elements: this many, or that fraction of the product's

Array = NDArray[Any]
Batch = tuple[int, ...] | None  # a matrix of the stack; None for all of them


class Lines:
    """The rows of A (axis -1 runs along them), or the columns of B (axis -2).

    Attributes
    ----------
    exponents
        The least powers of two above their finite magnitudes.
    scales
        The same, but at least LEAST_EXPONENT.
    nonfinite
        Whether they have infinities or NaN.
    """

    def __init__(self, axis: int, kept: int) -> None:
        self.axis, self.kept = axis, kept
        self.largest: Any = 0.0
        self.nonfinite: Any = np.False_

    def measure(self, block: Array) -> None:
        """Take the next part into account."""
        parts = on_tiles(lambda part: self._measured(block[..., part, :]), _tiles(block.shape[:-2], block.shape[-2]))
        together: Any = np.concatenate if self.axis == -1 else np.maximum.reduce
        largest, nonfinite = (together(some, axis=-2 if self.axis == -1 else 0) for some in zip(*parts, strict=True))
        self.nonfinite = self.nonfinite | nonfinite
        self.largest = np.maximum(self.largest, largest)

    def _measured(self, block: Array) -> tuple[Array, Array]:
        most, least = (of(self.axis, keepdims=True, initial=0) for of in (block.max, block.min))
        largest = np.maximum(most, -least)
        finite = np.isfinite(largest)
        if not finite.all():
            largest = np.max(np.abs(block), self.axis, keepdims=True, initial=0, where=np.isfinite(block))
        return largest, ~finite

    @property
    def exponents(self) -> Array:
        return np.asarray(np.frexp(np.asarray(self.largest, np.float64))[1])

    @property
    def scales(self) -> Array:
        scales: Array = np.maximum(self.exponents, LEAST_EXPONENT)
        return scales

    def some(self, lines: Array, batch: Batch, which: Any) -> Array:
        """Some of the lines, by their places."""
        if batch is not None:
            lines = of_batch(lines, batch)
        some: Array = lines[..., which, :] if self.axis == -1 else lines[..., which]
        return some

    def rounded(self, block: Array, batch: Batch, which: Any) -> Array:
        """Some lines of a part, rounded as the definition says and scaled; zero in lines with infinities or NaN."""
        shifts = self.kept - self.some(self.exponents, batch, which)
        half = shifts // 2  # in two steps, because the power may overflow; what underflows would vanish anyway
        whole: Array = self._finite(block, batch, which) * np.ldexp(1.0, half)
        whole *= np.ldexp(1.0, shifts - half)
        np.rint(whole, out=whole)
        whole *= np.ldexp(1.0, -shifts - self.some(self.scales, batch, which))
        return whole

    def scaled(self, block: Array, batch: Batch, which: Any) -> Array:
        """The same, not rounded."""
        return self._finite(block, batch, which) * np.ldexp(1.0, -self.some(self.scales, batch, which))

    def _finite(self, block: Array, batch: Batch, which: Any) -> Array:
        block = self.some(block, batch, which)
        nonfinite = self.some(self.nonfinite, batch, which)
        return np.where(nonfinite, 0, block) if nonfinite.any() else block


class FloatCheck:
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
    undetected
        In units of the root mean square of the element's row; set by `wrong`.
    """

    def __init__(
        self, slabs: Slabs, product: Array, format: Format, random: np.random.Generator, products: int
    ) -> None:
        self.slabs, self.format, self.product = slabs, format, product
        self.rows, self.columns = Lines(-1, format.kept), Lines(-2, format.kept)
        self.inner = self.chunks = 0
        for a, b in slabs():
            self.inner += a.shape[-1]
            self.chunks += -(-a.shape[-1] // INNER)
            self.rows.measure(a)
            self.columns.measure(b)
        overflowed = ~np.isfinite(product)
        if overflowed.any():
            overflowed &= ~(self.rows.nonfinite | self.columns.nonfinite)
        self.overflowed_rows = overflowed.any(-1, keepdims=True) & ~self.rows.nonfinite
        self.undetected = 0.0
        self.signs, self.group, self.escape = random_signs(
            product.shape[-1], GROUP[format.dtype], MOST_GROUPS[format.dtype], random
        )
        self.singly = PRODUCTS * self.signs.shape[-1] >= product.shape[-1] or (
            format.dtype == "float16" and products <= SINGLY
        )
        if self.singly:
            self.escape = 0.0

    def wrong(self) -> list[str]:
        """Errors; sets `undetected`."""
        return (self._wrong_singly() if self.singly else self._wrong_sums()) + self._wrong_elsewhere()

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
            return [line for block in blocks for line in self._wrong_block(*block)]
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
            of_sums = of_sums + _squares(signed, -2)
            of_columns = of_columns + squares

            def add(part: slice, a: Array = a, signed: Array = signed) -> None:
                tile = self.rows.rounded(a, None, part)
                _add_product(sums[..., part, :], tile, signed)
                norms[..., part, :] += _squares(tile, -1)

            on_tiles(add, _tiles(batch, rows))
        bound, self.sizes = np.zeros_like(sums), np.empty_like(norms)
        unit = 2.0**-self.format.precision + _gamma(self.group)
        by_norm = unit * np.sqrt(self.group)  # of a row of C, by Cauchy and Schwarz

        def compare(part: slice) -> None:
            tile = self._scaled_product(None, part, slice(None))
            sums[..., part, :] -= tile @ self.signs
            self.sizes[..., part, :] = _sizes(tile, self.columns.scales)
            if by_norm * np.sqrt(columns) < LOOSE[self.format.dtype]:
                bound[..., part, :] = by_norm * np.sqrt(_squares(tile, -1))
            else:
                np.matmul(np.abs(tile, out=tile), unit * ones, out=bound[..., part, :])

        on_tiles(compare, _tiles(batch, rows))
        subnormal = np.ldexp(1.0, -self.columns.scales) @ ones  # results that are subnormal, rounded
        bound += np.ldexp(subnormal, self.format.least - 1 - self.rows.scales)
        bound += columns * UNDERFLOW * (self.inner + 1)
        # The error of A (B r), by Cauchy and Schwarz: no sum is larger than the product of these.
        of_groups = np.sqrt(self.group * (of_columns @ ones))
        own = np.sqrt(norms) * (self._gamma * np.sqrt(of_sums) + _gamma(self.group) * of_groups)
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
            return _squares(tile, -2)

        return signed, sum(on_tiles(add, _tiles(b.shape[:-2], b.shape[-2], INNER)), np.zeros(1))

    def _own_bound(self, batch: Batch, rows: Any) -> Array:
        """The error of A (B r) for some rows, from the magnitudes of all terms."""
        own: Any = 0.0
        for a, b in self.slabs():
            a = np.abs(self.rows.rounded(a, batch, rows))
            b = self.columns.rounded(b, batch, slice(None))
            signed = self._gamma * np.abs(b @ self.signs)
            own = own + a @ (signed + _gamma(self.group) * (np.abs(b) @ np.abs(self.signs)))
        return np.asarray(own)

    def _is_loose(self, bound: Array, sizes: Array) -> Array:
        """Rows, shape (..., M), of a bound that is too large beside their elements to be of use."""
        with_zeros = bound.max(-1, initial=0) > LOOSE[self.format.dtype] * sizes[..., 0]
        loose: Array = with_zeros & (bound.max(-1, initial=0) > 0)
        return loose

    def _compare_conventionally(self) -> tuple[Array, Array]:
        """The same if all elements may be uncertain: of factors that are not rounded, with a wider bound."""
        *batch, rows, _ = self.product.shape
        ones = np.abs(self.signs)
        sums, magnitudes = np.zeros((2, *batch, rows, self.signs.shape[-1]))
        for a, b in self.slabs():
            b = self.columns.scaled(b, None, slice(None))
            signed, of_groups = b @ self.signs, np.abs(b) @ ones
            for part in _tiles(batch, rows):
                tile = self.rows.scaled(a, None, part)
                _add_product(sums[..., part, :], tile, signed)
                _add_product(magnitudes[..., part, :], np.abs(tile, out=tile), of_groups)
        for part in _tiles(batch, rows):
            sums[..., part, :] -= self._scaled_product(None, part, slice(None)) @ self.signs
        bound = (self._conventional + self._gamma + 2 * _gamma(self.group)) * magnitudes
        underflow = np.ldexp(1.0, -self.columns.scales) @ ones * self._halves
        bound += np.ldexp(underflow, self.format.least - 1 - self.rows.scales)
        bound += self.group * UNDERFLOW * (self.inner + 1)
        bound *= UPWARDS
        return np.abs(sums, out=sums), bound

    @property
    def _gamma(self) -> float:
        """Of a sum of products in float64, as `_add_product` computes it."""
        return _gamma(INNER + self.chunks + 1)

    @property
    def _conventional(self) -> float:
        """Error of an uncertain element, as a share of the sum of the magnitudes of its terms."""
        return _gamma(self.format.gamma_terms(self.inner), 2.0**-self.format.precision)

    @property
    def _halves(self) -> float:
        """Halves of the least number that it may be off by besides; only products of float64 underflow."""
        return float(max(1, self.inner)) if self.format.precision == 53 else 1.0

    def _scaled_product(self, batch: Batch, rows: Any, columns: Any) -> Array:
        """Some rows and columns of C, scaled, with zeros for those that are compared elsewhere."""
        product = self.columns.some(self.rows.some(self.product, batch, rows), None, columns)
        scales = self.rows.some(self.rows.scales, batch, rows), self.columns.some(self.columns.scales, batch, columns)
        if self.format.precision < 53:  # neither step overflows or underflows
            scaled = np.multiply(product, np.ldexp(1.0, -scales[0]), dtype=np.float64)
            scaled *= np.ldexp(1.0, -scales[1])
        else:
            scaled = _scaled_back(product, scales[0] + scales[1])
        elsewhere = self._elsewhere(batch, rows, columns)
        return np.where(elsewhere, 0, scaled) if elsewhere.any() else scaled

    def _elsewhere(self, batch: Batch, rows: Any, columns: Any) -> Array:
        of_rows = (self.rows.some(lines, batch, rows) for lines in (self.rows.nonfinite, self.overflowed_rows))
        elsewhere: Array = np.logical_or(*of_rows) | self.columns.some(self.columns.nonfinite, batch, columns)
        return elsewhere

    def _note(self, bound: Array, sizes: Array) -> None:
        """Note errors that pass: twice a bound, shape (..., rows, n), where all else may be off by as much."""
        errors = 2 * bound.max(-1, keepdims=True, initial=0)
        shares = np.divide(errors, sizes, out=np.zeros_like(errors), where=np.isfinite(sizes) & (sizes > 0))
        self.undetected = max(self.undetected, float(shares.max(initial=0)))

    def _wrong_singly(self) -> list[str]:
        """Errors, element by element, some rows at a time."""
        rows = self.product.shape[-2]
        step = max(1, HELD * rows // max(1, self.product.size))
        lines: list[str] = []
        for start in range(0, rows, step):
            lines += self._wrong_block(None, slice(start, min(start + step, rows)), slice(None))
        return lines

    def _wrong_block(self, batch: Batch, rows: Any, columns: Any) -> list[str]:
        """Errors in some rows and columns, element by element."""
        dtype: Any = np.float64
        if self.format.dtype == "float16":  # its numbers are exact in float32, for which BLAS takes half the time
            dtype = np.float32
        shape = self.columns.some(self.rows.some(self.product, batch, rows), None, columns).shape
        product, norms = np.zeros(shape, dtype), [np.zeros(1), np.zeros(1)]
        parts = _tiles(shape[:-2], shape[-2])
        for a, b in self.slabs():
            a = self.rows.rounded(a, batch, rows).astype(dtype, copy=False)
            b = self.columns.rounded(b, batch, columns).astype(dtype, copy=False)
            norms = [norms[0] + _squares(a, -1), norms[1] + _squares(b, -2)]

            def add(part: slice, a: Array = a, b: Array = b) -> None:
                _add_product(product[..., part, :], a[..., part, :], b)

            on_tiles(add, parts)
        of_rows, of_columns = map(np.sqrt, norms)
        places = np.arange(self.product.shape[-2])[rows]

        def examine(part: slice, close: bool = False) -> tuple[Array, Array, Array]:
            lines = batch, places[part], columns
            return self._compare_tile(product[..., part, :], of_rows[..., part, :] * of_columns, lines, close)

        lines = []
        for part, (bound, sizes, wrong) in zip(parts, on_tiles(examine, parts), strict=True):
            if wrong.any():
                with np.errstate(all="ignore"):
                    bound, sizes, wrong = examine(part, close=True)
            if wrong.any():
                which = self._places(wrong, batch, places[part], columns)
                few = which[: max(1, min(EXAMINED, EXAMINED_PRODUCTS // max(1, self.inner)))]
                lines += (found := wrong_elements(self.slabs, self.product, few, self.format))
                if not found and len(which) > len(few):
                    lines += self._wrong_conventionally(batch, places[part], columns)
                bound = np.where(wrong, 0, bound)  # those are right to the last bit, or noted already
            self._note(bound, sizes)
        return lines

    def _compare_tile(
        self, product: Array, norms: Array, lines: tuple[Batch, Any, Any], close: bool
    ) -> tuple[Array, Array, Array]:
        """Compare a tile with its exact product but for the check's own rounding.

        Parameters
        ----------
        product
        norms
            Products of the norms of its rows and columns.
        lines
            Which tile.
        close
            Bound the check's own rounding by the magnitudes of all terms, where norms are of no use; otherwise all
            elements of such rows count as wrong.

        Returns
        -------
        bound
        sizes
            Root mean squares of rows.
        wrong
            Elements that are off by more than a rounding: wrong or uncertain.
        """
        got = self._scaled_product(*lines)
        sizes = _sizes(got, self.columns.some(self.columns.scales, lines[0], lines[2]))
        gamma = _gamma(INNER + self.chunks + 1, 2.0**-53 if product.dtype == np.float64 else 2.0**-24)
        own = gamma * norms
        loose = self._is_loose(own, sizes)
        if close and loose.any():
            own = np.where(loose[..., None], gamma * self._magnitudes(*lines), own)
        own += np.ldexp(np.ldexp(1.0, self.format.least - 1 - self.rows.some(self.rows.scales, *lines[:2])),
                        -self.columns.some(self.columns.scales, lines[0], lines[2]))  # fmt: skip
        own += UNDERFLOW * (self.inner + 1)
        off = np.abs(product - got)
        bound = np.abs(got, out=got)
        bound *= 2.0**-self.format.precision
        bound += own
        bound *= UPWARDS
        right = off <= bound
        if not close:
            right &= ~loose[..., None]
        return bound, sizes, ~(right | self._elsewhere(*lines))

    def _magnitudes(self, batch: Batch, rows: Any, columns: Any) -> Array:
        """Sums of the magnitudes of all products, of rounded numbers."""
        total: Any = 0.0
        for a, b in self.slabs():
            total = total + np.abs(self.rows.rounded(a, batch, rows)) @ np.abs(self.columns.rounded(b, batch, columns))
        return np.asarray(total)

    def _places(self, off: Array, batch: Batch, rows: Any, columns: Any) -> list[tuple[int, ...]]:
        """Places in C of some elements of a block."""
        of_rows, of_columns = (np.arange(length)[which] for length, which in
                               zip(self.product.shape[-2:], (rows, columns), strict=True))  # fmt: skip
        return [
            (*(batch or of_stack), int(of_rows[i]), int(of_columns[j])) for *of_stack, i, j in np.argwhere(off).tolist()
        ]

    def _wrong_elsewhere(self) -> list[str]:
        """Errors in rows and columns with infinities or NaN, and in rows with overflows."""
        shape = self.product.shape
        rows = np.broadcast_to(self.rows.nonfinite | self.overflowed_rows, (*shape[:-1], 1))[..., 0]
        columns = np.broadcast_to(self.columns.nonfinite, (*shape[:-2], 1, shape[-1]))[..., 0, :]
        lines: list[str] = []
        for batch in np.argwhere(rows.any(-1) | columns.any(-1)).tolist():
            for parts in ((np.flatnonzero(rows[*batch]), slice(None)), (slice(None), np.flatnonzero(columns[*batch]))):
                lines += self._wrong_conventionally(tuple(batch), *parts)
        return lines

    def _wrong_conventionally(self, batch: Batch, rows: Any, columns: Any) -> list[str]:
        """Errors beyond the bound of a conventional dot product; infinities and NaN are compared by their kind."""
        got = self.columns.some(self.rows.some(self.product, batch, rows), None, columns).astype(np.float64)
        if not got.size:
            return []
        product, magnitudes = np.zeros(got.shape), np.zeros(got.shape)
        terms = np.zeros((3, *got.shape))
        for blocks in self.slabs():
            lines = (self.rows, batch, rows), (self.columns, batch, columns)
            terms += _directions(*(of.some(block, *which) for block, (of, *which) in zip(blocks, lines, strict=True)))
            a, b = (of.scaled(block, *which) for block, (of, *which) in zip(blocks, lines, strict=True))
            product, magnitudes = product + a @ b, magnitudes + np.abs(a) @ np.abs(b)
        scales = self.rows.some(self.rows.scales, batch, rows) + self.columns.some(self.columns.scales, batch, columns)
        bound = (self._conventional + _gamma(self.inner + self.chunks)) * magnitudes
        bound += np.ldexp(self._halves, self.format.least - 1 - scales) + UNDERFLOW * (self.inner + 1)
        bound *= UPWARDS
        largest = np.ldexp(1 - 2.0 ** -(self.format.precision + 1), self.format.top - scales)
        right = np.abs(_scaled_back(got, scales) - product) <= bound
        right |= np.isinf(got) & (np.sign(got) * product + bound >= largest)
        plus, minus, undefined = np.asarray(terms > 0)
        undefined |= plus & minus
        right = np.where(undefined, np.isnan(got), right)
        right = np.where(~undefined & plus, got == np.inf, right)
        right = np.where(~undefined & minus, got == -np.inf, right)
        finite = np.isfinite(got) & ~(plus | minus | undefined)
        sizes = _sizes(_scaled_back(got, scales), self.columns.some(self.columns.scales, batch, columns))
        self._note(np.where(finite, bound, 0), sizes)
        return [
            f"element {list(place)} of the region: got {self.product[place]}, which is not the sum of its products"
            for place in self._places(~right, batch, rows, columns)[:3]
        ]


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


def _add_product(total: Array, a: Array, b: Array) -> None:
    """Add A B to a total, INNER products at a time."""
    for first in range(0, a.shape[-1], INNER):
        total += a[..., first : first + INNER] @ b[..., first : first + INNER, :]


def _sizes(product: Array, scales: Array) -> Array:
    """Root mean square of rows of C, which are scaled, in the scale of the row and of the largest column."""
    largest = np.ldexp(1.0, scales - scales.max(initial=LEAST_EXPONENT))
    sizes: Array = np.sqrt(_squares(product * largest, -1) / max(1, product.shape[-1]))
    return sizes


def _squares(values: Array, axis: int) -> Array:
    """Sums of squares along an axis, in float64."""
    squares: Array = np.sum(np.square(values, dtype=np.float64), axis, keepdims=True)
    return squares


def _gamma(count: int, unit: float = 2.0**-53) -> float:
    """Bound on the error of a sum of so many products in any order, as a share of the sum of their magnitudes."""
    return count * unit / (1 - count * unit)


def _tiles(batch: Sequence[int], rows: int, height: int = HEIGHT) -> list[slice]:
    """Some rows of a matrix at a time; stacks as they are."""
    return [slice(rows)] if batch or not rows else tiles(rows, height)


def _scaled_back(values: Array, scales: Array) -> Array:
    """Numbers divided by powers of two, in two steps that overflow only if the result does."""
    half = scales // 2
    scaled: Array = values * np.ldexp(1.0, -half) * np.ldexp(1.0, half - scales)
    return scaled


def _directions(a: Array, b: Array) -> Array:
    """Whether each sum has terms that are +inf, -inf or undefined: positive numbers if it has."""
    ones = np.float32
    up_a, down_a, up_b, down_b = ((x == inf).astype(ones) for x in (a, b) for inf in (np.inf, -np.inf))
    more_a, less_a = ((np.isfinite(a) & sign).astype(ones) for sign in (a > 0, a < 0))
    more_b, less_b = ((b > 0).astype(ones), (b < 0).astype(ones))
    plus = up_a @ more_b + down_a @ less_b + more_a @ up_b + less_a @ down_b
    minus = up_a @ less_b + down_a @ more_b + more_a @ down_b + less_a @ up_b
    zero_a, zero_b = (a == 0).astype(ones), (b == 0).astype(ones)
    undefined = (up_a + down_a) @ zero_b + zero_a @ (up_b + down_b)
    undefined += np.isnan(a).any(-1, keepdims=True)
    undefined += np.isnan(b).any(-2, keepdims=True)
    return np.stack((plus, minus, undefined))
