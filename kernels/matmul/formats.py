"""What an exact matrix product is, wherever it is computed: formats, scales, moduli. docs/matmul.md has the why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from operator import mul
from typing import Any

import numpy as np

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

# Pairwise coprime: the product of the first N of them is as large as it can be for numbers of eight bits.
MODULI = (
    256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173, 167,
)  # fmt: skip
# So many bits of the magnitudes in a scaled row or column tell how large a sum of products is at least. How far
# rounding moved a number is told by an exponent above -LOST, relative to their unit.
BITS, LOST = 7, 512
HALF_WAY = 497  # factors below 2**HALF_WAY: no sum of products overflows in float64
MOST_TOTAL = 2**32 - 1  # sums of products of such bits are not counted further
MOST_PRODUCTS = 2**28  # in a sum: keeps the sums of 64-bit integers below the product of all moduli


@dataclass(frozen=True)
class Format:
    """A binary floating-point format, and how many bits of its numbers a product keeps.

    Attributes
    ----------
    dtype
        Its name.
    precision
        Bits of a significand, the hidden one included.
    least
        The smallest number above zero is 2**least.
    kept
        Rows and columns are rounded to integers of so many bits: the largest magnitude of each needs all of them.
    """

    dtype: str
    precision: int
    least: int
    kept: int

    @property
    def top(self) -> int:
        """Every finite number is below 2**top."""
        return 3 - self.precision - self.least

    def gamma_terms(self, inner: int) -> int:
        """The n for which elements of sums of so many products are within gamma(n) of the sum of their magnitudes."""
        return min(inner, (1 << (self.precision - 3)) + 1)

    def share(self, inner: int) -> float:
        """How far off elements may be before they are rounded: a share of that sum, in units of 2**-precision."""
        return (self.gamma_terms(inner) - 1) / 2

    def enough(self, inner: int) -> int:
        """The sum of products of first bits (docs/matmul.md: L) from which an element of so many products is certain,
        whatever rounding has moved: no number by more than half a unit, and no line has larger ones than it can."""
        units = 2.0 ** (BITS - self.kept + self.precision)  # of a line, by which a number moves
        moved = inner * units * (2 * 2**BITS + 2.0 ** (BITS - self.kept))
        share = self.share(inner)
        return min(MOST_TOTAL, ceil(1.01 * moved / share)) if share else MOST_TOTAL


FORMATS = {
    format.dtype: format
    for format in (Format("float16", 11, -24, 31), Format("float32", 24, -149, 31), Format("float64", 53, -1074, 55))
}
DTYPES = (*INTEGERS, *FORMATS)


def result_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Dtype of the product: int64 for integers of any width, else NumPy's.

    Raises
    ------
    TypeError
        If a dtype is none of `DTYPES`.
    """
    for dtype in dtypes:
        if dtype.name not in DTYPES:
            raise TypeError(f"expected matrices of integers, float16, float32 or float64, got {dtype.name}")
    return np.dtype("int64") if all(dtype.kind in "iu" for dtype in dtypes) else np.result_type(*dtypes)


def bits_of(dtype: np.dtype[Any]) -> int:
    """Bits of the magnitude of the integers that a matrix of this dtype is multiplied as."""
    return FORMATS[dtype.name].kept if dtype.kind == "f" else 8 * dtype.itemsize - (dtype.kind == "i")


def multiplied(product: Any, parts: Callable[[], Iterable[tuple[Any, Any]]]) -> Any:
    """The product of matrices that come in parts, each time that `parts` is called: columns of A and rows of B."""
    for a, b in parts():
        product.measure(a, b)
    for a, b in parts():
        product.add(a, b)
    found = product.finish()
    while product.unsettled():
        for a, b in parts():
            product.redo(a, b)
    return found


def moduli_for(bits: int, products: int) -> int:
    """Number of moduli that tell apart all sums of so many products of magnitudes up to 2**bits.

    A 64th of the product of the moduli is kept free, so that the kernel may find the multiple of it to subtract in
    float32.

    Raises
    ------
    ValueError
        If all of them are too few.
    """
    needed = 2 * max(1, products) * 2**bits
    for count, product in enumerate(accumulate(MODULI, mul), 1):
        if 64 * product > 65 * needed:
            return count
    raise ValueError(f"expected at most {MOST_PRODUCTS} products in a sum, got {products}")
