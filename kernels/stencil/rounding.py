"""Which sums of windows are right for sure: nearly all of them, in a few passes over the samples.

Everything is counted in units that all samples of a part are multiples of. Numbers are written as digits to a large
base, so large that the digits of a window still add up to what float64 holds; then the difference between the exact
sum and what was found is added up from the highest digit to the lowest, and compared with half a step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIZE, _EXPONENT = np.int64(2**63 - 1), np.int64(0x7FF << 52)  # bits of a float64 but for its sign; of its exponent
_WIDEST = 900  # bits of a sample in units, at most: so that nothing here is infinite
_SURE = 1 - 2.0**-40


def surely_right(x: NDArray[Any], found: NDArray[np.float64], width: int) -> NDArray[np.bool_]:
    """Which of the numbers found are certainly the sums of their windows, rounded to nearest, ties to even.

    The others are wrong, or samples have exponents far apart: from three digits on sums next to a tie are left open,
    and all sums where samples have more than 900 bits.

    Parameters
    ----------
    x : array of finite floats, shape (length,), length >= width >= 1
    found : float64 array, shape (length - width + 1,)
    width
    """
    rest = x.astype(np.float64)
    size = rest.view(np.int64) & _SIZE
    largest = int(size.max())
    if not largest:
        return np.asarray(found.view(np.int64) == 0)
    size -= 1  # which makes zeros the largest
    low = max(int(size.view(np.uint64).min()) + 1 >> 52, 1)
    # All samples are multiples of 2**place and below 2**(place + bits).
    place = low - 1023 - int(np.finfo(x.dtype).nmant)
    bits = max(largest >> 52, 1) - 1022 - place
    if bits > _WIDEST:
        return np.zeros(found.shape, np.bool_)
    base = 52 - (width - 1).bit_length()
    with np.errstate(all="ignore"):  # numbers found may be NaN, infinite, or anything
        rest, left = _scaled(rest, -place), _scaled(found, -place)
        size = left.view(np.int64) & _SIZE
        # Half a step; of a power of two the one towards zero, which is half of the other.
        half = (np.maximum(size - 1, 0) & _EXPONENT).view(np.float64) * 2.0**-53
        difference = _difference(rest, left, width, base, -(-bits // base))
        # `left` now holds the last digits of what was found: whole, unless it is no multiple of the unit.
        whole = np.rint(left) == left
        sure = np.abs(difference) < half * _SURE
    sure &= whole
    rare = np.flatnonzero(~sure & whole)
    if len(rare):
        size, half, difference = size[rare], half[rare], difference[rare]
        away = np.abs(difference)
        half[(size << 12 == 0) & (np.signbit(difference) == np.signbit(found[rare]))] *= 2
        # Where half a step is at most 2**52 units nothing was rounded: a tie is one. Zeros have no step.
        tie = (away == half) & (half <= 2.0**52) & (size & 1 == 0)
        sure[rare] = ((away < half * _SURE) | tie) & ((half > 0) | (found[rare].view(np.int64) == 0))
    return np.asarray(sure)


def _scaled(x: NDArray[np.float64], exponent: int) -> NDArray[np.float64]:
    """Times 2**exponent, in two steps where that is more than float64 holds."""
    first = min(exponent, 1000)
    scaled = x * math.ldexp(1.0, first)
    if first < exponent:
        scaled *= math.ldexp(1.0, exponent - first)
    return scaled


def _difference(
    rest: NDArray[np.float64], left: NDArray[np.float64], width: int, base: int, digits: int
) -> NDArray[np.float64]:
    """Sums of windows of `rest`, less `left`; both become their lowest digits.

    Digits are below 2**base, and 2**base * width is at most 2**52, so that their sums over a window are float64
    numbers, and so are their differences to a digit of `left`, if that number is one that may be right. What has been
    added up before the k-th digit is a multiple of 2**(k * base). Where it is below 2**53 of these, adding is exact.
    Where it is more, all that follows is less than a thousandth of it, so that the difference has a relative error of
    at most 2**-52 for each digit.
    """
    total: NDArray[np.float64] = np.zeros(len(left))
    for k in reversed(range(digits)):
        unit = math.ldexp(1.0, k * base)
        digit, other = rest, left
        if k:
            digit, other = np.rint(rest * (1 / unit)), np.rint(left * (1 / unit))
            rest -= digit * unit
            left -= other * unit
        sums = _window_sums(digit.astype(np.int64), width)
        sums -= other
        total += sums * unit if k else sums
    return total


def _window_sums(x: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Running sums may wrap: their differences, the sums of windows, are below 2**53."""
    running = np.cumsum(x)
    sums = np.empty(len(x) - width + 1, np.int64)
    sums[0] = running[width - 1]
    np.subtract(running[width:], running[:-width], out=sums[1:])
    return sums.astype(np.float64)
