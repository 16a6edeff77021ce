"""Rows and columns of factors, scaled and rounded as the definition of a product says, by code of the check's own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.row_tiles import HEIGHT, tiles
from kernels.matmul.factors import of_batch

NUMBER = 64  # multiplications that take NumPy as long as all it does to a number besides
INNER = 128  # products that BLAS adds up at a time: the error of a sum grows with this and with their number
# Rows and columns are scaled by powers of two to magnitudes of 1/2 to 1, so that nothing overflows. Lines below this
# exponent are scaled as if they had it, so that scaling back the elements of C does not overflow either.
LEAST_EXPONENT = -500
# UNDERFLOW exceeds the sum of all underflows of the check; UPWARDS covers the rounding of the bound itself.
UNDERFLOW, UPWARDS = 2.0**-1000, 1 + 2.0**-18

TYPES = ("float16", "float32", "float64")  # as in check_sums.cpp

Array = NDArray[Any]
Batch = tuple[int, ...] | None  # a matrix of the stack; None for all of them


class Lines:
    """The rows of A (axis -1 runs along them), or the columns of B (axis -2).

    Attributes
    ----------
    exponents
        The least powers of two above their finite magnitudes.
    scales
        The same, but at least LEAST_EXPONENT; of columns every second one: errors of columns of about one size then
        weigh the same in a sum.
    nonfinite
        Whether they have infinities or NaN.
    """

    # `library` has `check_compiled.functions`; without it NumPy measures.
    def __init__(self, axis: int, kept: int, library: ctypes.CDLL | None = None) -> None:
        self.axis, self.kept, self._library = axis, kept, library
        self.nonfinite = self.exponents = self.scales = np.zeros(0, np.int32)

    def measured(self, blocks: Iterable[Array]) -> tuple[Array, Array]:
        """Largest finite magnitudes of lines in several parts, and whether they have infinities or NaN."""
        largest, nonfinite = (list(some) for some in zip(*map(self._of_block, blocks), strict=True))
        return np.maximum.reduce(largest), np.logical_or.reduce(nonfinite)

    def _of_block(self, block: Array) -> tuple[Array, Array]:
        if self._library and block.ndim == 2 and block.strides[1] == block.itemsize:
            shape = (len(block), 1) if self.axis == -1 else (1, block.shape[1])
            largest, nonfinite = np.zeros(shape, block.dtype), np.zeros(shape, bool)
            self._library.measure(
                TYPES.index(block.dtype.name), block.ctypes.data, *block.shape, block.strides[0] // block.itemsize,
                self.axis == -1, largest.ctypes.data, nonfinite.ctypes.data,
            )  # fmt: skip
            return largest, nonfinite
        # As integers magnitudes have the same order, and NumPy takes a tenth of the time for those of float16.
        bits = block.view(f"u{block.itemsize}") & (2 ** (8 * block.itemsize - 1) - 1)
        infinity = np.array(np.inf, block.dtype).view(bits.dtype)
        largest = bits.max(self.axis, keepdims=True, initial=0)
        nonfinite = largest >= infinity
        if nonfinite.any():
            largest = bits.max(self.axis, keepdims=True, initial=0, where=bits < infinity)
        return largest.view(block.dtype), nonfinite

    def settle(self, largest: Array, nonfinite: Array) -> None:
        """Set what was measured of all lines."""
        self.nonfinite = nonfinite
        self.exponents = np.asarray(np.frexp(largest.astype(np.float64))[1])
        self.scales = np.maximum(self.exponents, LEAST_EXPONENT)
        if self.axis == -2 and self.scales.size:
            self.scales = _in_pairs(self.scales)

    def some(self, lines: Array, batch: Batch, which: Any) -> Array:
        """Some of the lines, by their places."""
        if batch is not None:
            lines = of_batch(lines, batch)
        some: Array = lines[..., which, :] if self.axis == -1 else lines[..., which]
        return some

    def powers(self, batch: Batch, which: Any) -> tuple[Array, Array, Array]:
        """Powers of two to multiply numbers by: two before they are rounded, because one may overflow, one after it."""
        shifts = self.kept - self.some(self.exponents, batch, which)
        half = shifts // 2
        powers = half, shifts - half, -shifts - self.some(self.scales, batch, which)
        first, second, last = (np.ldexp(1.0, power) for power in powers)
        return first, second, last

    def halves(self, batch: Batch, which: Any) -> tuple[Array, Array]:
        """Powers of two that scale elements of C, two for each line: in turns by row and by column none overflows."""
        scales = self.some(self.scales, batch, which)
        return np.ldexp(1.0, -(scales // 2)), np.ldexp(1.0, scales // 2 - scales)

    def rounded(self, block: Array, batch: Batch, which: Any) -> Array:
        """Some lines of a part, rounded as the definition says and scaled; zero in lines with infinities or NaN."""
        return self.round(self.some(block, batch, which), batch, which)

    def round(self, lines: Array, batch: Batch, which: Any) -> Array:
        """These lines, and no others, rounded in the same way."""
        first, second, last = self.powers(batch, which)
        whole: Array = self.finite(lines, batch, which) * first
        whole *= second  # what underflows would vanish anyway
        np.rint(whole, out=whole)
        whole *= last
        return whole

    def scaled(self, block: Array, batch: Batch, which: Any) -> Array:
        """The same, not rounded."""
        lines = self.finite(self.some(block, batch, which), batch, which)
        return lines * np.ldexp(1.0, -self.some(self.scales, batch, which))

    def finite(self, lines: Array, batch: Batch, which: Any) -> Array:
        """These lines, with zeros for those that have infinities or NaN."""
        nonfinite = self.some(self.nonfinite, batch, which)
        return np.where(nonfinite, lines.dtype.type(0), lines) if nonfinite.any() else lines


def _in_pairs(exponents: Array) -> Array:
    """The larger one of two neighbouring exponents for both; the most common ones are a pair."""
    values, counts = np.unique(exponents, return_counts=True)
    number = dict(zip(values.tolist(), counts.tolist(), strict=True))
    common = max(number, key=lambda exponent: number[exponent] + number.get(exponent - 1, 0))
    pairs: Array = exponents + (common - exponents) % 2
    return pairs


def work(rows: int, inner: int, columns: int) -> int:
    """How long NumPy takes to check a product of matrices, in multiplications."""
    return rows * inner * columns + NUMBER * (rows * inner + inner * columns + rows * columns)


def add_product(total: Array, a: Array, b: Array) -> None:
    """Add A B to a total, INNER products at a time."""
    for first in range(0, a.shape[-1], INNER):
        total += a[..., first : first + INNER] @ b[..., first : first + INNER, :]


def sizes_of(product: Array, scales: Array) -> Array:
    """Root mean square of rows of C, which are scaled, in the scale of the row and of the largest column."""
    sizes: Array = np.sqrt(squares_of(product * weights_of(scales), -1) / max(1, product.shape[-1]))
    return sizes


def weights_of(scales: Array) -> Array:
    """Columns in the scale of the largest one."""
    weights: Array = np.ldexp(1.0, scales - scales.max(initial=LEAST_EXPONENT))
    return weights


def squares_of(values: Array, axis: int) -> Array:
    """Sums of squares along an axis, in float64."""
    squares: Array = np.sum(np.square(values, dtype=np.float64), axis, keepdims=True)
    return squares


def gamma_of(count: int, unit: float = 2.0**-53) -> float:
    """Bound on the error of a sum of so many products in any order, as a share of the sum of their magnitudes."""
    return count * unit / (1 - count * unit)


def row_tiles(batch: Sequence[int], rows: int, height: int = HEIGHT) -> list[slice]:
    """Some rows of a matrix at a time; stacks as they are."""
    return [slice(0, rows)] if batch or not rows else tiles(rows, height)


def scaled_back(values: Array, scales: Array) -> Array:
    """Numbers divided by powers of two, in two steps that overflow only if the result does."""
    half = scales // 2
    scaled: Array = values * np.ldexp(1.0, -half) * np.ldexp(1.0, half - scales)
    return scaled


def directions(a: Array, b: Array) -> Array:
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
