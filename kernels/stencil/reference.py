"""Checks sums of windows in another way than they are computed: plain, slower, sharing no code with it.

Integer sums are updated as elements enter and leave the window. A float sum is not recomputed but held against the
definition of rounding to nearest: the exact sum lies no further than half a step from the result, and at exactly half a
step only if the result is even. check.cpp does so; on machines without a C++ compiler exact sums and steps are integers
of 32-bit limbs.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.stencil.check import right_sums
from kernels.stencil.windows import Weights, weighted_dtype

STEP = 2**14  # outputs checked at a time
_LIMB, _MASK = 32, 2**32 - 1

Integers = NDArray[np.int64]


def box_reference(window: NDArray[Any]) -> int | float:
    """The sum of one window: of integers exactly, of floats rounded once."""
    if window.dtype.kind != "f":
        return sum(map(int, window))
    finite = np.isfinite(window)
    if not finite.all():
        return float(sum(window[~finite].tolist()))
    exact = sum(map(Fraction, window.tolist()), Fraction(0))
    try:
        return exact.numerator / exact.denominator  # dividing Python integers rounds once
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def wrong_sums(x: NDArray[Any], sums: NDArray[Any], radius: int) -> NDArray[np.bool_]:
    """Which of these sums are not those of their windows.

    Parameters
    ----------
    x : array of integers or floats, shape (rows, length + 2 * radius)
    sums : array of int64, uint64 or float64, shape (rows, length)
        Where the sum is NaN, only `numpy.nan` is right, to the last bit; where it is zero, only 0.0.
    radius
    """
    width = 2 * radius + 1
    right = right_sums(x, sums, width)
    return _wrong(x, sums, width) if right is None else ~right


def _wrong(x: NDArray[Any], sums: NDArray[Any], width: int) -> NDArray[np.bool_]:
    """`wrong_sums` with NumPy."""
    wrong = np.empty(sums.shape, np.bool_)
    step = max(STEP, 2 * width)
    check = _floats_wrong if x.dtype.kind == "f" else _integers_wrong
    length = sums.shape[1]
    together = step // (length + width - 1) if length else 0
    if together > 1:
        # Several rows as one. Outputs whose windows reach from one row into the next are ignored: NaN where there is
        # one, which costs nothing to reject.
        for row in range(0, len(sums), together):
            ignored = np.nan if x.dtype.kind == "f" else 0
            rows = np.full((min(together, len(sums) - row), length + width - 1), ignored, sums.dtype)
            rows[:, :length] = sums[row : row + together]
            bad = check(x[row : row + together].reshape(-1), rows.reshape(-1)[: rows.size - width + 1], width)
            wrong[row : row + together] = np.append(bad, np.zeros(width - 1, np.bool_)).reshape(rows.shape)[:, :length]
        return wrong
    for row in range(len(sums)):
        for start in range(0, length, step):
            part = sums[row, start : start + step]
            wrong[row, start : start + step] = check(x[row, start : start + len(part) + width - 1], part, width)
    return wrong


def _sliding(x: NDArray[Any], width: int) -> Integers:
    """Sum of every window: the first in full, then elements that enter are added, elements that leave subtracted."""
    x = x.astype(np.int64)
    steps = np.concatenate([x[:width].sum(keepdims=True), x[width:] - x[:-width]])
    return np.asarray(np.cumsum(steps))


def _integers_wrong(x: NDArray[Any], sums: NDArray[Any], width: int) -> NDArray[np.bool_]:
    if x.dtype.itemsize < 8:
        return np.asarray(_sliding(x, width) != sums)
    low, high = _sliding(x & x.dtype.type(_MASK), width), _sliding(x >> x.dtype.type(_LIMB), width)
    kind = sums.dtype.type
    upper = (sums >> kind(_LIMB)).astype(np.int64)
    return np.asarray((high + (low >> _LIMB) != upper) | (low & _MASK != (sums & kind(_MASK)).astype(np.int64)))


def _floats_wrong(x: NDArray[Any], sums: NDArray[np.float64], width: int) -> NDArray[np.bool_]:
    finite = np.isfinite(x)
    if finite.all():
        return _rounded_wrong(x, sums, width)
    nan, above, below = (_sliding(kind, width) > 0 for kind in (np.isnan(x), x == np.inf, x == -np.inf))
    nan |= above & below
    wrong = np.where(above, sums != np.inf, sums != -np.inf)
    wrong[nan] = sums[nan].view(np.uint64) != np.array(np.nan).view(np.uint64)
    rest = ~(nan | above | below)
    plain = np.where(rest, sums, np.nan)
    wrong[rest] = _rounded_wrong(np.where(finite, x, x.dtype.type(0)), plain, width)[rest]
    return np.asarray(wrong)


def _rounded_wrong(x: NDArray[Any], sums: NDArray[np.float64], width: int) -> NDArray[np.bool_]:
    """Which of these numbers are not the exact sum, rounded to nearest, ties to even; samples are finite."""
    wrong = np.ones(len(sums), np.bool_)
    numbers = np.flatnonzero(~np.isnan(sums))
    if len(numbers):
        part = slice(numbers[0], numbers[-1] + 1)
        samples = x[part.start : part.stop + width - 1].astype(np.float64)
        wrong[part] = _limbs_wrong(samples, sums[part], width)
    return wrong


def _limbs_wrong(x: NDArray[np.float64], sums: NDArray[np.float64], width: int) -> NDArray[np.bool_]:
    """`_rounded_wrong`, a limb at a time."""
    infinite = np.isinf(sums)
    terms, places = _integers(x)
    integers, sum_places = _integers(np.where(np.isfinite(sums), sums, 0.0))
    integers[infinite], sum_places[infinite] = 2**52 * np.sign(sums[infinite]).astype(np.int64), 972  # 2**1024
    if (nonzero := terms != 0).any():  # zeros have no exponent: one that needs no limbs of its own
        places[~nonzero] = sum_places[integers == 0] = places[nonzero].min()
    negative = integers < 0
    # Exponents of half a step away from zero, and towards zero, where steps are smaller below a power of two.
    step = np.maximum(sum_places, -1074)
    odd = (np.abs(integers) >> np.minimum(step - sum_places, 63)) & 1 == 1
    outer = step - 1
    inner = np.where((np.abs(integers) == 2**52) & (sum_places > -1074), step - 2, step - 1)
    lowest = int(min(places.min(), sum_places.min(), inner.min()))
    highest = int(max(places.max(), sum_places.max(), -1074)) + 53 + width.bit_length() + 1
    beyond, within = _Carry(len(sums)), _Carry(len(sums))
    for limb in range(-(-(highest - lowest) // _LIMB) + 1):
        start = lowest + limb * _LIMB
        rest = _sliding(_limb(terms, places - start), width) - _limb(integers, sum_places - start)
        rest = np.where(negative, -rest, rest)
        beyond.add(rest - _limb_of_power(outer - start))
        within.add(rest + _limb_of_power(inner - start))
    # The exact sum may exceed the result by half a step at most, and fall short of it by half a step at most.
    too_far = (beyond.sign() > 0) | ((beyond.sign() == 0) & odd)
    too_short = (within.sign() < 0) | ((within.sign() == 0) & odd)
    zero = (sums == 0) & np.signbit(sums)
    return np.asarray(np.isnan(sums) | (too_far & ~infinite) | too_short | zero)


def _integers(x: NDArray[np.float64]) -> tuple[Integers, Integers]:
    """Finite numbers as integers of 53 bits and the exponents of the powers of two to multiply them by."""
    fractions, exponents = np.frexp(x)
    integers = (fractions * 2.0**53).astype(np.int64)
    return integers, np.where(integers == 0, -1074, exponents.astype(np.int64) - 53)


def _limb(integers: Integers, places: Integers) -> Integers:
    """Bits 0 to 31, with the sign, of integers of at most 53 bits times 2**places."""
    size = np.abs(integers).astype(np.uint64)
    up, down = np.clip(places, 0, 63).astype(np.uint64), np.clip(-places, 0, 63).astype(np.uint64)
    limb = (((size >> down) << up) & np.uint64(_MASK)).astype(np.int64)
    return np.where(integers < 0, -limb, limb)


def _limb_of_power(places: Integers) -> Integers:
    inside = (places >= 0) & (places < _LIMB)
    return inside.astype(np.int64) << np.where(inside, places, 0)


class _Carry:
    """The sign of numbers whose limbs are added one by one, the lowest first."""

    def __init__(self, count: int) -> None:
        self.carry = np.zeros(count, np.int64)
        self.nonzero = np.zeros(count, np.bool_)

    def add(self, limb: Integers) -> None:
        """Add the next limb, any 63-bit number."""
        limb = limb + self.carry
        self.nonzero |= (limb & _MASK) != 0
        self.carry = limb >> _LIMB

    def sign(self) -> Integers:
        """-1, 0 or 1."""
        above = (self.carry > 0) | ((self.carry == 0) & self.nonzero)
        return np.asarray(above.astype(np.int64) - (self.carry < 0).astype(np.int64))


def weighted_reference(x: NDArray[Any], weights: Weights) -> NDArray[Any]:
    """Weighted sums of all windows by their definition: products, added from the first to the last.

    Parameters
    ----------
    x : array of integers or floats, shape (rows, length), length >= len(weights)
    weights
    """
    dtype = weighted_dtype(x.dtype, weights.dtype)
    rows, count = len(x), x.shape[1] - len(weights) + 1
    out = np.empty((rows, count), dtype)
    product = np.empty(min(count, STEP), dtype)
    with np.errstate(all="ignore"):
        for row in range(rows):
            for start in range(0, count, STEP):
                elements = x[row, start : start + STEP + len(weights) - 1].astype(dtype)
                total = out[row, start : start + STEP]
                for k, weight in enumerate(weights.astype(dtype)):
                    several = elements[k : k + len(total)]
                    if k:
                        total += np.multiply(several, weight, out=product[: len(total)])
                    else:
                        np.multiply(several, weight, out=total)
    return out
