"""Sums of float64 windows with NumPy: exact, rounded once to nearest, in a time that does not depend on the radius.

Numbers are cut at a grid of powers of two into integers, whose window sums are differences of running sums: 64-bit
integers that wrap give the right difference as long as the sum of a window fits. One or two cuts are enough where
exponents are close, which is the usual case; otherwise there are as many as it takes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BITS = 51  # bits of a number that one cut takes, at most: see _cut
_NEAR, _FAR = 2.0**800, 2.0**300  # numbers from _NEAR on are divided by _FAR before a cut, which would overflow


def window_sums(x: NDArray[Any], width: int) -> Integers:
    """Sum of each `width` consecutive integers of a row, modulo 2**64.

    Parameters
    ----------
    x : array of integers, shape (rows, length), length >= width
    width

    Returns
    -------
    int64 array, shape (rows, length - width + 1)
    """
    running = np.cumsum(x.astype(np.int64, copy=False), axis=1)
    sums = np.empty((len(x), x.shape[1] - width + 1), np.int64)
    sums[:, 0] = running[:, width - 1]
    np.subtract(running[:, width:], running[:, :-width], out=sums[:, 1:])
    return sums


def exact_sums(x: Floats, width: int) -> Floats:
    """Sum of each `width` consecutive numbers of a row, rounded once.

    Parameters
    ----------
    x : float64 array, shape (rows, length), length >= width >= 1
    width
        At most 2**31.

    Returns
    -------
    float64 array, shape (rows, length - width + 1)
        A zero sum is 0.0, one beyond the range of float64 is infinite. A window with NaN, or with infinities of both
        signs, gives NaN; one with infinities of one sign gives that infinity.
    """
    finite = np.isfinite(x)
    if finite.all():
        return _finite(x, width)
    sums = _finite(np.where(finite, x, 0.0), width)
    above, below = (window_sums(x == infinity, width) > 0 for infinity in (np.inf, -np.inf))
    sums[above] = np.inf
    sums[below] = -np.inf
    sums[above & below | (window_sums(np.isnan(x), width) > 0)] = np.nan
    return sums


def _finite(x: Floats, width: int) -> Floats:
    log_width = (width - 1).bit_length()  # rounded up
    top = math.frexp(max(float(x.max()), -float(x.min())))[1]  # all are below 2**top
    bits = min(_BITS, 62 - log_width)
    if not -800 < top < 900:
        return _wide(x, width, top, bits)
    sums, rest = _cut(x, width, top - bits)
    if not rest.any():
        return _scaled(sums.astype(np.float64), top - bits)
    # Two cuts, the upper one with so few bits that its sums are exact in float64, also with the carry of the lower one.
    upper = top - min(_BITS, 52 - log_width)
    lower = upper - 1 - bits
    high, rest = _cut(x, width, upper)
    low, rest = _cut(rest, width, lower)
    if rest.any():
        return _wide(x, width, top, bits)
    shift = upper - lower
    high += low >> shift
    low &= (1 << shift) - 1
    # The only rounding: both terms are exact.
    return _scaled(_scaled(high.astype(np.float64), shift) + low, lower)


def _cut(x: Floats, width: int, grid: int) -> tuple[Integers, Floats]:
    """Window sums of the nearest multiples of 2**grid, in units of it, and the remainders of the numbers.

    Numbers are below 2**(grid + 51), and the spacing of float64 on both sides of `large` is 2**grid: the addition
    rounds to a multiple of the grid, and the bits of the result count multiples.
    """
    large = math.ldexp(1.5, grid + 52)
    moved = x + large
    sums = window_sums(moved.view(np.int64), width)
    offset = int(np.float64(large).view(np.int64)) * width % 2**64
    sums -= np.uint64(offset).view(np.int64)
    moved -= large
    np.subtract(x, moved, out=moved)
    return sums, moved


def _scaled(x: Floats, exponent: int) -> Floats:
    """In place, times 2**exponent, from -1022 to 1023; exact, except that it may overflow to infinity."""
    x *= math.ldexp(1.0, exponent)
    return x


def _wide(x: Floats, width: int, top: int, bits: int) -> Floats:
    """Sums of numbers below 2**top whose exponents are far apart, in as many digits of `bits` bits as it takes."""
    digits: list[Integers] = []
    grids: list[int] = []
    rest = x
    while rest.any():
        grids.append(top - bits * (len(grids) + 1))
        sums, rest = _cut_any(rest, width, grids[-1])
        digits.append(sums)
    shape = (len(x), x.shape[1] - width + 1)
    if not digits:
        return np.zeros(shape)
    sign = np.where(_carried(digits, bits)[0] < 0, -1, 1)
    magnitude = _carried([sign * digit for digit in digits], bits)
    # The sum so far is a + b + c: its two highest nonzero digits, and the lower ones rounded to odd (the last bit is
    # set if anything was lost), so that later roundings see the loss.
    a, b, c = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    with np.errstate(all="ignore"):  # where the sum is infinite
        for digit, grid in zip(magnitude[::-1], [top, *grids][::-1], strict=True):
            new = digit > 0
            if new.any():
                value = np.ldexp(digit.astype(np.float64), grid)
                a, b, c = np.where(new, value, a), np.where(new, a, b), np.where(new, _to_odd(b, c), c)
        high = a + b
        low = b - (high - a)
        total = high + _to_odd(low, c)
    return np.copysign(np.where(np.isinf(high), high, total), np.where(total == 0, 1, sign))


def _cut_any(rest: Floats, width: int, grid: int) -> tuple[Integers, Floats]:
    """`_cut` also where the grid is finer than any float64, or so coarse that `large` would overflow."""
    if grid <= -1074:
        return window_sums(np.ldexp(rest, -grid).astype(np.int64), width), np.zeros_like(rest)
    if grid < 940:
        return _cut(rest, width, grid)
    near = np.abs(rest) >= _NEAR  # all others are below half of 2**grid
    sums, remainder = _cut(np.where(near, rest / _FAR, 0.0), width, grid - 300)
    return sums, np.where(near, remainder * _FAR, rest)


def _carried(digits: list[Integers], bits: int) -> list[Integers]:
    """Digits normalised to 0 .. 2**bits - 1, preceded by the carry out of the highest one."""
    carried = []
    carry: Any = 0
    for digit in reversed(digits):
        value = digit + carry
        carry = value >> bits
        carried.append(value & ((1 << bits) - 1))
    return [carry, *reversed(carried)]


def _to_odd(a: Floats, b: Floats) -> Floats:
    """The sum of two finite numbers rounded to odd: towards zero, with its last bit set where it is inexact."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    inexact = error != 0
    number = total.view(np.int64)
    number -= inexact & ((error < 0) != (total < 0))
    number |= inexact
    return total
