"""Rows and columns of factors, scaled and rounded as the definition of a product says, by code of the check's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.tiles import HEIGHT, on_tiles, tiles
from kernels.matmul.reference import of_batch

INNER = 128  # products that BLAS adds up at a time: the error of a sum grows with this and with their number
# Rows and columns are scaled by powers of two to magnitudes of 1/2 to 1, so that nothing overflows. Lines below this
# exponent are scaled as if they had it, so that scaling back the elements of C does not overflow either.
LEAST_EXPONENT = -500
# UNDERFLOW exceeds the sum of all underflows of the check; UPWARDS covers the rounding of the bound itself.
UNDERFLOW, UPWARDS = 2.0**-1000, 1 + 2.0**-20

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
        parts = on_tiles(lambda part: self._measured(block[..., part, :]), row_tiles(block.shape[:-2], block.shape[-2]))
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


def add_product(total: Array, a: Array, b: Array) -> None:
    """Add A B to a total, INNER products at a time."""
    for first in range(0, a.shape[-1], INNER):
        total += a[..., first : first + INNER] @ b[..., first : first + INNER, :]


def sizes_of(product: Array, scales: Array) -> Array:
    """Root mean square of rows of C, which are scaled, in the scale of the row and of the largest column."""
    largest = np.ldexp(1.0, scales - scales.max(initial=LEAST_EXPONENT))
    sizes: Array = np.sqrt(squares_of(product * largest, -1) / max(1, product.shape[-1]))
    return sizes


def squares_of(values: Array, axis: int) -> Array:
    """Sums of squares along an axis, in float64."""
    squares: Array = np.sum(np.square(values, dtype=np.float64), axis, keepdims=True)
    return squares


def gamma_of(count: int, unit: float = 2.0**-53) -> float:
    """Bound on the error of a sum of so many products in any order, as a share of the sum of their magnitudes."""
    return count * unit / (1 - count * unit)


def row_tiles(batch: Sequence[int], rows: int, height: int = HEIGHT) -> list[slice]:
    """Some rows of a matrix at a time; stacks as they are."""
    return [slice(rows)] if batch or not rows else tiles(rows, height)


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
