"""Reference implementation of reduce: splits samples into sign, exponent and digits and sums the digits; plain, slow.

It shares the layout of a partial with `reduce_cpu` and the kernels, but no arithmetic: floats are never added, only
small integers in float64, whose sums stay below 2**53; keys and words are computed here from their definitions.
"""

from __future__ import annotations

import struct
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import exact_sum
from kernels.reduce import partial as reduce
from kernels.reduce.partial import (
    EXTREMES,
    MAX_AT,
    MAX_KEY,
    MIN_AT,
    MIN_KEY,
    NAN,
    NEGATIVE,
    POSITIVE,
    SQUARES,
    SUM,
    Partial,
)

PART = 2**15  # samples at a time: they fit the cache, and their products of two 18-bit digits sum to 2**51 at most
DIGIT = 18
FEW = 2**6  # samples that Python adds up faster


def reduce_reference(samples: NDArray[Any], parts: int) -> Partial:
    """Partial of samples.

    Parameters
    ----------
    samples : array of any integer or float dtype and byte order, shape (n,), n >= 1
    parts
        One of ``kernels.reduce.partial.PARTS``.
    """
    dtype = samples.dtype.newbyteorder("=")
    partial = reduce.empty(dtype, parts, len(samples))
    numbers = samples.astype(dtype)
    if dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # converting a signalling NaN would warn
            numbers = numbers.astype(np.float64)
        partial[[NAN, POSITIVE, NEGATIVE]] = [(numbers != numbers).sum(), (numbers == np.inf).sum(),
                                              (numbers == -np.inf).sum()]  # fmt: skip
    if parts & EXTREMES:
        _extremes(partial, numbers, dtype)
    total = squares = 0
    for start in range(0, len(numbers), PART):
        part = numbers[start : start + PART]
        if len(part) <= FEW:
            sums = _sums_of_few(part) if parts & SUM else (0, 0)
        else:
            sums = _float_sums(part, parts) if dtype.kind == "f" else _integer_sums(part)
        total, squares = total + sums[0], squares + sums[1]
    if parts & SUM:
        partial[reduce.SUM_AT] = _words(total, exact_sum.SUM_WORDS)
    if parts & SQUARES:
        partial[reduce.SQUARES_AT] = _words(squares, exact_sum.SQUARE_WORDS)
    return partial


def _extremes(partial: Partial, numbers: NDArray[Any], dtype: np.dtype[Any]) -> None:
    if partial[NAN]:
        partial[reduce.FIRST_NAN] = 2 * np.flatnonzero(numbers != numbers)[0]
        if partial[NAN] == len(numbers):
            return
    ordered = numbers[numbers == numbers]
    for value, key, at in ((ordered.min(), MIN_KEY, MIN_AT), (ordered.max(), MAX_KEY, MAX_AT)):
        first = int(np.flatnonzero(numbers == value)[0])
        partial[key] = _key(value, dtype)
        partial[at] = 2 * first + (str(numbers[first]) == "-0.0")


def _key(value: Any, dtype: np.dtype[Any]) -> int:
    """Rank of a sample in its dtype: uint64 less 2**63; floats as float64, where the magnitude's bits count up from 0,
    or down from -1 for negative values."""
    if dtype.kind != "f":
        return int(value) - (2**63 if dtype == np.uint64 else 0)
    magnitude = int.from_bytes(struct.pack(">d", abs(float(value))), "big")
    return -1 - magnitude if value < 0 else magnitude


def _words(value: int, words: int) -> NDArray[np.int64]:
    """Two's complement, lowest word first."""
    parts = [(value >> 64 * i) % 2**64 for i in range(words)]
    return np.array(parts, np.uint64).view(np.int64)


def _sums_of_few(part: NDArray[Any]) -> tuple[int, int]:
    """Sums numbers, and squares, as fractions whose denominator is a power of two."""
    total = squares = 0
    for value in part[np.isfinite(part)].tolist():
        numerator, denominator = value.as_integer_ratio()
        place = denominator.bit_length() - 1
        total += numerator << exact_sum.SUM_BITS - place
        squares += numerator**2 << exact_sum.SQUARE_BITS - 2 * place
    return total, squares


def _integer_sums(part: NDArray[Any]) -> tuple[int, int]:
    """Counts bytes by value; sums others in 16-bit columns, the highest signed, with sums of products below 2**53."""
    if part.itemsize == 1:
        counted = np.bincount(part.view(np.uint8), minlength=256).tolist()
        values = np.arange(256, dtype=np.uint8).view(part.dtype).tolist()
        total = sum(value * times for value, times in zip(values, counted, strict=True))
        squares = sum(value * value * times for value, times in zip(values, counted, strict=True))
        return total << exact_sum.SUM_BITS, squares << exact_sum.SQUARE_BITS
    pieces = part.astype(part.dtype.newbyteorder("<")).view("<u2").reshape(len(part), -1)
    columns = np.ascontiguousarray(pieces.T).astype(np.float64)
    if part.dtype.kind == "i":
        columns[-1] -= (columns[-1] >= 2**15) * 2.0**16
    sums, products = columns.sum(axis=1), columns @ columns.T
    total = sum(int(value) << 16 * i for i, value in enumerate(sums))
    squares = sum(int(products[i, j]) << 16 * (i + j) for i, j in np.ndindex(products.shape))
    return total << exact_sum.SUM_BITS, squares << exact_sum.SQUARE_BITS


def _float_sums(part: NDArray[np.float64], parts: int) -> tuple[int, int]:
    """Sums the digits, and products of two digits, of all samples with the same sign and exponent."""
    if not parts & SUM:
        return 0, 0
    bits = part.view(np.uint64)
    key = (bits >> np.uint64(52)).view(np.int64)
    fraction = bits & np.uint64(2**52 - 1)
    mask = np.uint64(2**DIGIT - 1)
    digits = {i: ((fraction >> np.uint64(DIGIT * i)) & mask).astype(np.float64) for i in range(3)}
    digits = {i: digit for i, digit in digits.items() if digit.any()}  # no float32 has the lowest digit
    counted = _by_key(key)
    present = np.flatnonzero(counted.any(axis=0))

    def sums(weights: NDArray[np.float64]) -> NDArray[np.int64]:
        return _by_key(key, weights)[:, present]

    # Sums of the fractions as Python integers, of positive and of negative samples, and the sum of their squares.
    fractions = sum((sums(digit).astype(object) << DIGIT * i for i, digit in digits.items()), np.zeros((2, 1), object))
    squared = np.zeros(1, object)
    if parts & SQUARES:
        for i, j in combinations_with_replacement(digits, 2):
            products = sums(digits[i] * digits[j]).sum(axis=0).astype(object)
            squared = squared + (products * (1 + (i != j)) << DIGIT * (i + j))
    total = squares = 0
    above, below = np.broadcast_to(fractions, (2, len(present))).tolist()
    columns = zip(present.tolist(), *counted[:, present].tolist(), above, below,
                  np.broadcast_to(squared, len(present)).tolist(), strict=True)  # fmt: skip
    for exponent, positive, negative, plus, minus, square in columns:
        # A sample is sign * (leading + fraction) * 2**(place - 1074).
        leading, place = (2**52 if exponent else 0), max(exponent, 1) - 1
        total += (positive - negative) * leading + plus - minus << place
        if parts & SQUARES:
            squares += (positive + negative) * leading**2 + 2 * leading * (plus + minus) + square << 2 * place
    return total << (exact_sum.SUM_BITS - 1074), squares << (exact_sum.SQUARE_BITS - 2 * 1074)


def _by_key(key: NDArray[np.int64], weights: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
    """Sums over finite samples by sign and exponent, shape (2, 2047)."""
    return np.bincount(key, weights, 4096).astype(np.int64).reshape(2, 2048)[:, :2047]
