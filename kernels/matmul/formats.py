"""Formats, scales and moduli that define an exact matrix product on every device; docs/matmul.md has the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common.constants import constant, constant_array

NUMBERS = Path(__file__).with_name("numbers.cuh")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

# Pairwise coprime; the product of the first N is as large as possible for eight-bit numbers.
MODULI = constant_array(NUMBERS, "MODULI")
# The top BITS bits of the magnitudes in a scaled row or column give a lower bound of sums of products. How far rounding
# moved a number is kept as an exponent above -LOST, in the unit of these bits.
BITS, LOST = constant(NUMBERS, "BITS"), constant(NUMBERS, "LOST")
HALF_WAY = constant(NUMBERS, "HALF_WAY")  # factors below 2**HALF_WAY: no sum of products overflows in float64
MOST_TOTAL = 2**32 - 1  # where sums of products of such bits saturate
MOST_PRODUCTS = 2**28  # in a sum: keeps the sums of 64-bit integers below the product of all moduli


@dataclass(frozen=True)
class Format:
    """A binary floating-point format, and how many bits of its numbers a product keeps.

    Attributes
    ----------
    dtype
        Its name.
    precision
        Bits of the significand, including the hidden one.
    least
        The smallest number above zero is 2**least.
    kept
        Bits of the integers that rows and columns are rounded to; the largest magnitude of each uses all of them.
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
        """The n for which elements, sums of `inner` products, are within gamma(n) of the sum of their magnitudes."""
        return min(inner, (1 << (self.precision - 3)) + 1)

    def share(self, inner: int) -> float:
        """Error that elements may have before they are rounded: a share of that sum, in units of 2**-precision."""
        return (self.gamma_terms(inner) - 1) / 2

    def enough(self, inner: int) -> int:
        """The sum of products of top bits (L in docs/matmul.md) from which an element is certain, whatever rounding
        has moved: assumes that all numbers moved by half a unit, in lines of the largest numbers."""
        units = 2.0 ** (BITS - self.kept + self.precision)  # of a line, that a number moves by
        moved = inner * units * (2 * 2**BITS + 2.0 ** (BITS - self.kept))
        share = self.share(inner)
        return min(MOST_TOTAL, ceil(1.01 * moved / share)) if share else MOST_TOTAL


def _format(bits: int) -> Format:
    info = np.finfo(f"float{bits}")
    kept = constant(NUMBERS, f"KEPT_{bits}")
    return Format(f"float{bits}", int(info.nmant) + 1, int(info.minexp) - int(info.nmant), kept)


FORMATS = {format.dtype: format for format in map(_format, (16, 32, 64))}
DTYPES = (*INTEGERS, *FORMATS)


def result_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Dtype of the product: int64 for integers of any width, else NumPy's.

    Raises
    ------
    TypeError
        If a dtype is not one of `DTYPES`.
    """
    for dtype in dtypes:
        if dtype.name not in DTYPES:
            raise TypeError(f"expected matrices of integers, float16, float32 or float64, got {dtype.name}")
    return np.dtype("int64") if all(dtype.kind in "iu" for dtype in dtypes) else np.result_type(*dtypes)


def bits_of(dtype: np.dtype[Any]) -> int:
    """Bits of the magnitudes of the integers that represent this dtype in a product."""
    return FORMATS[dtype.name].kept if dtype.kind == "f" else 8 * dtype.itemsize - (dtype.kind == "i")


def multiplied(product: Any, parts: Callable[[], Iterable[tuple[Any, Any]]]) -> Any:
    """The product of matrices in parts, columns of A and rows of B, that each call of `parts` yields anew."""
    for a, b in parts():
        product.measure(a, b)
    for a, b in parts():
        product.add(a, b)
    result = product.finish()
    while product.needs_recompute():
        for a, b in parts():
            product.recompute(a, b)
    return result


def moduli_for(bits: int, products: int) -> int:
    """Number of moduli that represent all sums of so many products of magnitudes up to 2**bits.

    A 64th of the product of the moduli is left over, so that the kernel can find the multiple of it to subtract from
    the leading bits alone.

    Raises
    ------
    ValueError
        If all moduli are not enough.
    """
    needed = 2 * max(1, products) * 2**bits
    for count, product in enumerate(accumulate(MODULI, mul), 1):
        if 64 * product > 65 * needed:
            return count
    raise ValueError(f"expected at most {MOST_PRODUCTS} products in a sum, got {products}")
