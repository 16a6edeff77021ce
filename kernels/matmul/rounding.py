"""Converts wide integers, in 64-bit words, to a dtype on the CPU: exactly, or rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.formats import Format

WORDS = 3  # of an integer in two's complement, the lowest first

Words = list[NDArray[np.uint64]]


def to_integer(words: Words, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The lowest word as integers.

    Raises
    ------
    OverflowError
        If one does not fit; names the first.
    """
    low = words[0].view(np.int64)
    info = np.iinfo(dtype)
    fits = (low >= info.min) & (low <= info.max)
    for word in words[1:]:
        fits &= word.view(np.int64) == low >> 63
    if not fits.all():
        place = tuple(np.argwhere(~fits)[0].tolist())
        value = sum(int(word[place]) << 64 * number for number, word in enumerate(words))
        value -= (value >> (64 * WORDS - 1)) << 64 * WORDS
        raise OverflowError(too_large(value, dtype))
    return low.astype(dtype)


def too_large(value: int | None, dtype: np.dtype[Any]) -> str:
    """Message for a product that does not fit, with the value if it is known."""
    got = "a sum" if value is None else f"the sum {value},"
    info, wide = np.iinfo(dtype), np.iinfo(np.int64)
    would_fit = dtype != wide.dtype and (value is None or wide.min <= value <= wide.max)
    remedy = "ask for int64" if would_fit else "convert the matrices to float64"
    return f"expected sums of products from {info.min} to {info.max}, got {got} outside of {dtype}; {remedy}"


def to_float(words: Words, exponents: NDArray[np.int64], format: Format) -> NDArray[Any]:
    """Integers times powers of two, rounded once to nearest, ties to even; infinity if too large.

    Parameters
    ----------
    words
        The integers.
    exponents
        Of the powers of two; their shape broadcasts.
    format
        Of the result. Subnormal results are rounded as such, and only once.
    """
    negative = words[-1] >> np.uint64(63)
    head, more, length = _leading(_magnitude(words, negative))
    # The number is head * 2**last, and a little more where `more` says so.
    last = length + exponents - 64
    quantum = np.maximum(last + 64 - format.precision, format.least)
    dropped = np.minimum(quantum - last, 65)
    kept, up = _halved(head, more, dropped)
    kept += up
    bits = (np.maximum(quantum - format.least, 0).astype(np.uint64) << np.uint64(format.precision - 1)) + kept
    infinity = np.array(np.inf, format.dtype)
    most = np.uint64(infinity.view(f"u{infinity.itemsize}"))
    bits = np.where((last + 64 > format.top) & (head != 0), most, np.minimum(bits, most))
    bits = np.where(head == 0, np.uint64(0), bits)
    bits |= np.where(head == 0, np.uint64(0), negative) << np.uint64(8 * infinity.itemsize - 1)
    return bits.astype(f"u{infinity.itemsize}").view(format.dtype)


def _magnitude(words: Words, negative: NDArray[np.uint64]) -> Words:
    flip, carry = np.uint64(0) - negative, negative
    magnitude = []
    for word in words:
        magnitude.append((word ^ flip) + carry)
        carry = carry & (magnitude[-1] == 0).astype(np.uint64)
    return magnitude


def _leading(words: Words) -> tuple[NDArray[np.uint64], NDArray[np.bool_], NDArray[np.int64]]:
    """The 64 bits from the first set bit on, whether bits below them are set, and the length in bits."""
    words = list(words)
    length = np.full(words[0].shape, 64 * len(words), np.int64)
    for _ in range(len(words) - 1):
        empty = words[-1] == 0
        for number in range(len(words) - 1, 0, -1):
            words[number] = np.where(empty, words[number - 1], words[number])
        words[0] = np.where(empty, np.uint64(0), words[0])
        length -= 64 * empty
    top = words[-1]
    # The second bit cleared: float64 must not round up to the next power of two.
    zeros = 64 - np.frexp((top & ~(top >> np.uint64(1))).astype(np.float64))[1].astype(np.int64)
    shift = np.minimum(zeros, 63).astype(np.uint64)
    below = np.where(shift == 0, np.uint64(0), words[-2] >> (np.uint64(64) - np.maximum(shift, np.uint64(1))))
    more = (words[-2] << shift) != 0
    for word in words[:-2]:
        more |= word != 0
    return (top << shift) | below, more, length - zeros


def _halved(
    head: NDArray[np.uint64], more: NDArray[np.bool_], dropped: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """`head` without its last `dropped` bits, at least 11, and 1 where it must be rounded up."""
    all_of_it = dropped > 63
    shift = np.minimum(dropped, 63).astype(np.uint64)
    kept = np.where(all_of_it, np.uint64(0), head >> shift)
    rest = np.where(all_of_it, head, head << (np.uint64(64) - shift))
    half = np.uint64(2**63)
    up = (rest > half) | ((rest == half) & (more | (kept & np.uint64(1) != 0)))
    return kept, (up & (dropped < 65)).astype(np.uint64)
