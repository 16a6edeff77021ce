"""Exact sums of samples and of their squares as Python integers, and results rounded once from them.

Sums are integers in units so small that every finite float64, and its square, is an integer multiple. No addition here
rounds, so neither order nor grouping matters; only `quotient` and `square_root` round, once, to nearest.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bits after the binary point of a sum and of a sum of squares, multiples of 64; a float64 is a multiple of 2**-1074.
SUM_BITS = 1088
SQUARE_BITS = 2 * SUM_BITS
# 64-bit words of two's complement that hold the sums of 2**63 samples of any dtype.
SUM_WORDS = (SUM_BITS + 1024 + 63 + 1) // 64
SQUARE_WORDS = (SQUARE_BITS + 2048 + 63 + 1) // 64

_LITTLE = np.dtype("<i8")

# Samples added at a time: few enough that no addition below rounds or wraps, and that as float64 they take less than
# 128 KiB, above which malloc maps fresh pages for every array.
STEP = 12288
_SPREAD = 17  # log2 of the samples that the bounds below allow
_PASSES = 4  # enough for ordinary numbers; a remainder means that exponents are far apart
_BAND = 32  # exponents that are then summed together
_TINY, _HUGE, _SHIFT = 2.0**-400, 2.0**500, 600  # between these a square neither under- nor overflows


def sum_floats(values: NDArray[np.float64]) -> int:
    """Exact sum of finite numbers, at most 2**17, in units of 2**-SUM_BITS."""
    total, rest = _add_up(values, _PASSES)
    if not len(rest):
        return total
    # Exponents are far apart: numbers with close exponents are summed together, each group in few passes.
    exponents = np.frexp(rest)[1]
    bands = ((exponents + 1080) // _BAND).astype(np.uint8)
    order = np.argsort(bands, kind="stable")
    ends = np.cumsum(np.bincount(bands))
    for start, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
        if start < end:
            total += _add_up(rest[order[start:end]], 2000)[0]
    return total


def _add_up(values: NDArray[np.float64], passes: int) -> tuple[int, NDArray[np.float64]]:
    """Sum of the parts that so many passes take off the numbers, and the nonzero remainders."""
    total, rest = 0, values
    for _ in range(passes):
        top = max(float(rest.max(initial=0)), -float(rest.min(initial=0)))
        if not top:
            return total, rest[:0]
        _, exponent = math.frexp(top)
        if exponent > 1000:  # adding 2**_SPREAD times the largest number would overflow
            near = np.abs(rest) >= 2.0**900
            scaled, more = _add_up(rest[near] * 2.0**-200, 2000)
            assert not len(more)
            total += scaled << 200
            rest = np.where(near, 0.0, rest)
            continue
        # Near `large` float64 numbers are at least 2**(exponent - 36) apart: adding and subtracting it leaves at most
        # 2**36 such steps of a number, 2**53 of 2**17 numbers, which float64 sums without rounding.
        large = math.ldexp(1.0, exponent + _SPREAD)
        high = rest + large
        high -= large
        total += whole(float(high.sum()), SUM_BITS)
        rest = rest - high
    return total, rest[rest != 0]


def sum_squares_of_floats(values: NDArray[np.float64], narrow: bool) -> int:
    """Exact sum of the squares of finite numbers, at most 2**17, in units of 2**-SQUARE_BITS.

    Parameters
    ----------
    values
    narrow
        Whether they come from float16 or float32, so that their squares are exact in float64.
    """
    if narrow:
        return sum_floats(values * values) << SUM_BITS
    size = np.abs(values)
    tiny, huge = (size < _TINY) & (size > 0), size >= _HUGE
    total = 0
    if tiny.any():
        total += _split_squares(values[tiny] * 2.0**_SHIFT) >> 2 * _SHIFT
    if huge.any():
        total += _split_squares(values[huge] * 2.0**-_SHIFT) << 2 * _SHIFT
    if total:
        values = values[~(tiny | huge)]
    return total + _split_squares(values)


def _split_squares(values: NDArray[np.float64]) -> int:
    """The same, in two halves of 26 bits, whose products are exact in float64."""
    high = ((values.view(np.int64) + 2**26) & -(2**27)).view(np.float64)
    low = values - high
    return (sum_floats(high * high) + 2 * sum_floats(high * low) + sum_floats(low * low)) << SUM_BITS


def sum_integers(values: NDArray[Any]) -> int:
    """Exact sum of at most 2**15 integers of any dtype."""
    if values.itemsize < 8:
        return int(values.sum(dtype=np.int64))
    low = values & values.dtype.type(2**32 - 1)
    return (int((values >> values.dtype.type(32)).sum(dtype=np.int64)) << 32) + int(low.sum())


def sum_squares_of_integers(values: NDArray[Any]) -> int:
    """Exact sum of the squares of at most 2**15 integers of any dtype."""
    if values.itemsize == 1:
        bytes_ = values.astype(np.int32)
        return int(np.einsum("i,i->", bytes_, bytes_))
    # Pieces narrow enough that 2**15 products of two stay below 2**63; the highest one carries the sign.
    pieces, width = {2: (1, 0), 4: (2, 16), 8: (3, 22)}[values.itemsize]
    kind = values.dtype.type
    shifted = [values >> kind(width * i) for i in range(pieces)]
    parts = [(piece & kind(2**width - 1)).astype(np.int64) for piece in shifted[:-1]] + [shifted[-1].astype(np.int64)]
    total = 0
    for i, a in enumerate(parts):
        for j, b in enumerate(parts[i:], i):
            total += int(np.einsum("i,i->", a, b)) * (1 + (i != j)) << width * (i + j)
    return total


def whole(value: float, bits: int) -> int:
    """A finite number in units of 2**-bits; it must be a multiple of that unit."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (bits - denominator.bit_length() + 1)


def to_words(value: int, words: int) -> NDArray[np.int64]:
    """Two's complement, lowest word first."""
    return np.frombuffer(value.to_bytes(8 * words, "little", signed=True), _LITTLE).astype(np.int64)


def from_words(words: NDArray[np.int64]) -> int:
    """The integer that `to_words` split."""
    return int.from_bytes(words.astype(_LITTLE, copy=False).tobytes(), "little", signed=True)


def quotient(value: Fraction) -> float:
    """A rational number rounded to nearest, ties to even; infinite beyond the range of float64."""
    try:
        return value.numerator / value.denominator  # Python's integer division rounds once
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def square_root(value: Fraction) -> float:
    """Square root of a rational number >= 0, rounded to nearest."""
    # At least 64 bits of the root and a sticky bit: rounding these rounds the root itself.
    shift = max(0, 66 - (value.numerator.bit_length() - value.denominator.bit_length()) // 2)
    scaled, remainder = divmod(value.numerator << 2 * shift, value.denominator)
    root = math.isqrt(scaled)
    sticky = bool(remainder) or root * root != scaled
    return quotient(Fraction(2 * root + sticky, 1 << (shift + 1)))
