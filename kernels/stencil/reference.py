"""What sums of windows have to be, checked another way than they are computed: plain, slower, without shared code.

Integers are added and taken away one by one as the window slides. A float sum is not computed at all but held against
the definition of rounding to nearest: the exact sum lies no further than half a step from what was found, and at
exactly half a step only if that is even. Nearly all are shown to be right by compiled code (`sliding_check`), without
it by NumPy in a few passes (`sliding_rounding`); for the others exact sums, and steps, are integers of 32-bit limbs.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.stencil.check import right_natively
from kernels.stencil.rounding import surely_right
from kernels.stencil.windows import Weights, weighted_dtype

STEP = 2**14  # outputs that are checked at a time
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
        return exact.numerator / exact.denominator  # Python's division of integers is rounded once
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def box_wrong(x: NDArray[Any], found: NDArray[Any], radius: int) -> NDArray[np.bool_]:
    """Which of the sums found are not those of their windows.

    Parameters
    ----------
    x : array of integers or floats, shape (rows, length + 2 * radius)
    found : array of int64, uint64 or float64, shape (rows, length)
        NaN is right where the sum is, whichever NaN it is; a sum that is zero is 0.0.
    radius
    """
    width = 2 * radius + 1
    right = right_natively(x, found, width)
    if right is None:
        return _wrong(x, found, width)
    wrong = ~right
    rows, columns = np.flatnonzero(wrong.any(axis=1)), np.flatnonzero(wrong.any(axis=0))
    if len(rows):
        start, stop = columns[0], columns[-1] + 1
        wrong[rows, start:stop] &= _wrong(x[rows, start : stop + width - 1], found[rows, start:stop], width)
    return wrong


def _wrong(x: NDArray[Any], found: NDArray[Any], width: int) -> NDArray[np.bool_]:
    """`box_wrong` with NumPy."""
    wrong = np.empty(found.shape, np.bool_)
    step = max(STEP, 2 * width)
    check = _floats_wrong if x.dtype.kind == "f" else _integers_wrong
    length = found.shape[1]
    together = step // (length + width - 1) if length else 0
    if together > 1:
        # Rows one behind the other, with outputs that nobody looks at where a window reaches from one into the next:
        # NaN where there is one, which is seen to be wrong at once.
        for row in range(0, len(found), together):
            outside = np.nan if x.dtype.kind == "f" else 0
            rows = np.full((min(together, len(found) - row), length + width - 1), outside, found.dtype)
            rows[:, :length] = found[row : row + together]
            bad = check(x[row : row + together].reshape(-1), rows.reshape(-1)[: rows.size - width + 1], width)
            wrong[row : row + together] = np.append(bad, np.zeros(width - 1, np.bool_)).reshape(rows.shape)[:, :length]
        return wrong
    for row in range(len(found)):
        for start in range(0, found.shape[1], step):
            part = found[row, start : start + step]
            wrong[row, start : start + step] = check(x[row, start : start + len(part) + width - 1], part, width)
    return wrong


def _sliding(x: NDArray[Any], width: int) -> Integers:
    """Sum of every window: of the first one by itself, then what comes in is added, and what goes out taken away."""
    x = x.astype(np.int64)
    steps = np.concatenate([x[:width].sum(keepdims=True), x[width:] - x[:-width]])
    return np.asarray(np.cumsum(steps))


def _integers_wrong(x: NDArray[Any], found: NDArray[Any], width: int) -> NDArray[np.bool_]:
    if x.dtype.itemsize < 8:
        return np.asarray(_sliding(x, width) != found)
    low, high = _sliding(x & x.dtype.type(_MASK), width), _sliding(x >> x.dtype.type(_LIMB), width)
    kind = found.dtype.type
    upper = (found >> kind(_LIMB)).astype(np.int64)
    return np.asarray((high + (low >> _LIMB) != upper) | (low & _MASK != (found & kind(_MASK)).astype(np.int64)))


def _floats_wrong(x: NDArray[Any], found: NDArray[np.float64], width: int) -> NDArray[np.bool_]:
    finite = np.isfinite(x)
    if finite.all():
        return _rounded_wrong(x, found, width)
    nan, above, below = (_sliding(kind, width) > 0 for kind in (np.isnan(x), x == np.inf, x == -np.inf))
    nan |= above & below
    wrong = np.where(above, found != np.inf, found != -np.inf)
    wrong[nan] = ~np.isnan(found[nan])
    rest = ~(nan | above | below)
    plain = np.where(rest, found, np.nan)
    wrong[rest] = _rounded_wrong(np.where(finite, x, x.dtype.type(0)), plain, width)[rest]
    return np.asarray(wrong)


def _rounded_wrong(x: NDArray[Any], found: NDArray[np.float64], width: int) -> NDArray[np.bool_]:
    """Which numbers found are not the exact sum, rounded to nearest, ties to even."""
    wrong = ~surely_right(x, found, width)
    if wrong.any():
        unsure = np.flatnonzero(wrong & ~np.isnan(found))
        if len(unsure):
            part = slice(unsure[0], unsure[-1] + 1)
            around = x[part.start : part.stop + width - 1].astype(np.float64)
            wrong[part] &= _limbs_wrong(around, found[part], width)
    return np.asarray(wrong)


def _limbs_wrong(x: NDArray[np.float64], found: NDArray[np.float64], width: int) -> NDArray[np.bool_]:
    """The same, for any numbers: a limb at a time."""
    infinite = np.isinf(found)
    terms, places = _integers(x)
    sums, sum_places = _integers(np.where(np.isfinite(found), found, 0.0))
    sums[infinite], sum_places[infinite] = 2**52 * np.sign(found[infinite]).astype(np.int64), 972  # 2**1024
    negative = sums < 0
    # Half a step away from zero, and towards it, where steps of a smaller size may begin.
    step = np.maximum(sum_places, -1074)
    odd = (np.abs(sums) >> np.minimum(step - sum_places, 63)) & 1 == 1
    outer = step - 1
    inner = np.where((np.abs(sums) == 2**52) & (sum_places > -1074), step - 2, step - 1)
    lowest = int(min(places.min(), sum_places.min(), inner.min()))
    highest = int(max(places.max(), sum_places.max(), -1074)) + 53 + width.bit_length() + 1
    beyond, within = _Carry(len(found)), _Carry(len(found))
    for limb in range(-(-(highest - lowest) // _LIMB) + 1):
        start = lowest + limb * _LIMB
        rest = _sliding(_limb(terms, places - start), width) - _limb(sums, sum_places - start)
        rest = np.where(negative, -rest, rest)
        beyond.add(rest - _limb_of_power(outer - start))
        within.add(rest + _limb_of_power(inner - start))
    # Beyond what was found by half a step at most, and short of it by half a step at most.
    too_far = (beyond.sign() > 0) | ((beyond.sign() == 0) & odd)
    too_short = (within.sign() < 0) | ((within.sign() == 0) & odd)
    zero = (found == 0) & np.signbit(found)
    return np.asarray(np.isnan(found) | (too_far & ~infinite) | too_short | zero)


def _integers(x: NDArray[np.float64]) -> tuple[Integers, Integers]:
    """Finite numbers as integers of 53 bits times a power of two."""
    fractions, exponents = np.frexp(x)
    integers = (fractions * 2.0**53).astype(np.int64)
    return integers, np.where(integers == 0, -1074, exponents.astype(np.int64) - 53)


def _limb(integers: Integers, places: Integers) -> Integers:
    """Bits 0 to 31 of integers of at most 53 bits that begin at these places; with their sign."""
    size = np.abs(integers).astype(np.uint64)
    up, down = np.clip(places, 0, 63).astype(np.uint64), np.clip(-places, 0, 63).astype(np.uint64)
    limb = (((size >> down) << up) & np.uint64(_MASK)).astype(np.int64)
    return np.where(integers < 0, -limb, limb)


def _limb_of_power(places: Integers) -> Integers:
    inside = (places >= 0) & (places < _LIMB)
    return inside.astype(np.int64) << np.where(inside, places, 0)


class _Carry:
    """The sign of numbers whose limbs come one by one, the lowest first."""

    def __init__(self, count: int) -> None:
        self.carry = np.zeros(count, np.int64)
        self.nonzero = np.zeros(count, np.bool_)

    def add(self, limb: Integers) -> None:
        """Take the next limb: any 63-bit number."""
        limb = limb + self.carry
        self.nonzero |= (limb & _MASK) != 0
        self.carry = limb >> _LIMB

    def sign(self) -> Integers:
        """-1, 0 or 1."""
        above = (self.carry > 0) | ((self.carry == 0) & self.nonzero)
        return np.asarray(above.astype(np.int64) - (self.carry < 0).astype(np.int64))


def weighted_reference(x: NDArray[Any], weights: Weights) -> NDArray[Any]:
    """Weighted sums of all windows of a row as they are defined: products, added up from the first to the last.

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
