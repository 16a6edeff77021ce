"""Sums and maxima by a variant of the ladder: partials per block, then the host, as in the course.

Sums of integers and maxima are exact. A sum of floats is rounded in a block and again on the host, where it adds up the
partials of a launch one after the other; what launches and chunks give is then added exactly. So each sample takes part
in fewer than k additions that round, k = min(n, 1024 + n / 1024), and the sum is within gamma(k) sum|x| of the exact
one (Higham, Accuracy and Stability of Numerical Algorithms, 2002, ch. 4), with gamma(k) = k u / (1 - k u), u = 2**-53.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.dtypes import COURSE_TYPES
from kernels.reduce import exact_sum
from kernels.reduce import partial as layout
from kernels.reduce.check import reduce_check
from kernels.reduce.partial import CODE, EXTREMES, FIRST_NAN, MAX_AT, MAX_KEY, NAN, SAMPLES, SQUARES_AT, SUM, SUM_AT
from kernels.reduce.reference import reduce_reference
from kernels.study.reduce import VARIANTS, finish
from kernels.study.variant import Variant
from workflows.aggregation import Aggregation, Check
from workflows.reduce import REDUCE, ReduceOptions, every_sample_counted_once

BLOCK = 1024  # samples of a block, at least; more where there are fewer blocks
SIZES_AT = slice(SQUARES_AT.start, SQUARES_AT.start + exact_sum.SUM_WORDS)  # of references: the sum of magnitudes
OPERATIONS = {"sum": ("sum", "mean", "count"), "max": ("max", "count")}  # that the partial of one gives


def job(variant: Variant, options: ReduceOptions) -> Aggregation[ReduceOptions]:
    """The job; ValueError for operations that a variant does not compute."""
    op = "max" if "max" in options.operations else "sum"
    only_max = variant.parameters["op"] == "max"
    known = OPERATIONS["max" if only_max else op]
    if not set(options.operations) <= set(known) or set(options.operations) == {"count"}:
        choices = [",".join(names) for name, names in OPERATIONS.items() if name == "max" or not only_max]
        raise ValueError(f"expected --op with some of {' or of '.join(choices)}, which one launch gives, got "
                         f"{options.op}")  # fmt: skip
    if options.nan != "propagate":
        raise ValueError(f"expected --nan propagate, as in the ladder, got {options.nan}")
    return replace(REDUCE, compute=partial(compute, variant.name, op), compute_rows=None, lines=None,
                   combine=layout.combine, place=None,
                   invariants=(every_sample_counted_once,), dtypes=tuple(COURSE_TYPES), within=within,
                   check=partial(_check, op), reference=partial(_reference, op),
                   rounding=partial(_rounding, variant.name, op))  # fmt: skip


def compute(name: str, op: str, block: Any, _: ReduceOptions) -> layout.Partial:
    """The job's partial of one block, on the host, as far as a variant can tell it: one launch, and the second pass.

    Where the result is not finite, CuPy counts NaN and infinities, which the variants do not.

    Raises
    ------
    ValueError
        If finite samples add up to more than float64 holds.
    """
    variant, dtype, n = VARIANTS[name], block.dtype, int(block.size)
    result = finish(variant.run(block, **{**variant.parameters, "op": op}).get(), op, str(dtype))
    made = layout.empty(dtype, SUM if op == "sum" else EXTREMES, n)
    if op == "max":
        made[NAN] = int((block != block).sum()) if result != result else 0
        if not made[NAN]:
            # No place, so that of equal ones 0.0 wins, as in the ladder.
            made[MAX_KEY], made[MAX_AT] = layout.to_key(result, dtype), result == 0 and math.copysign(1, result) < 0
    elif math.isfinite(result):
        units = result << exact_sum.SUM_BITS if isinstance(result, int) else exact_sum.whole(result, exact_sum.SUM_BITS)
        made[SUM_AT] = exact_sum.to_words(units, exact_sum.SUM_WORDS)
    else:
        made[NAN:FIRST_NAN] = [int(some.sum()) for some in (block != block, block == math.inf, block == -math.inf)]
        if not made[NAN:FIRST_NAN].any():
            raise ValueError(f"expected sums of {n} samples within float64, got {result}; run without --kernel")
    return made


class _FloatCheck:
    """The compiled check of samples, and of their magnitudes."""

    def __init__(self, sums: Check, sizes: Check) -> None:
        self._sums, self._sizes = sums, sizes

    def add(self, samples: NDArray[Any], first: int) -> None:
        self._sums.add(samples, first)
        self._sizes.add(np.abs(samples), first)

    def partial(self) -> NDArray[Any]:
        return _with_sizes(self._sums.partial(), self._sizes.partial())


def _check(op: str, options: ReduceOptions, dtype: np.dtype[Any]) -> Check | None:
    parts = SUM if op == "sum" else EXTREMES
    sums, sizes = reduce_check(dtype, parts), reduce_check(dtype, parts)
    return _FloatCheck(sums, sizes) if sums and sizes and op == "sum" and dtype.kind == "f" else sums


def _reference(op: str, block: NDArray[Any], _: ReduceOptions) -> NDArray[np.int64]:
    if op == "max":
        return reduce_reference(block, EXTREMES)
    sums = reduce_reference(block, SUM)
    return _with_sizes(sums, reduce_reference(np.abs(block), SUM)) if block.dtype.kind == "f" else sums


def _with_sizes(sums: layout.Partial, sizes: layout.Partial) -> layout.Partial:
    sums[SIZES_AT] = sizes[SUM_AT]
    return sums


def roundings(samples: int) -> int:
    """More additions than a sample takes part in, and the rounding of the whole sum."""
    return min(samples, BLOCK + -(-samples // BLOCK)) + 1


def _rounding(name: str, op: str, dtype: np.dtype[Any], samples: int, _: ReduceOptions) -> str:
    if op == "max" or dtype.kind != "f":
        return ""
    return f"within γ({roundings(samples):,}) Σ|x|, rounded by study/{name}"


def within(got: layout.Partial, expected: layout.Partial) -> str | None:
    """What is wrong with a partial: counts have to be equal, maxima too, sums of floats within their bound."""
    for at in (CODE, layout.ASKED, SAMPLES, NAN):
        if got[at] != expected[at]:
            return f"{layout.NAMES[at]}: expected {expected[at]}, got {got[at]}"
    asked, dtype = int(expected[layout.ASKED]), np.dtype(layout.DTYPES[expected[CODE]])
    if asked == EXTREMES:
        if expected[NAN] or got[MAX_KEY] == expected[MAX_KEY]:
            return None
        right, wrong = (layout.from_key(int(one[MAX_KEY]), dtype, False) for one in (expected, got))
        return f"maximum: expected {right}, got {wrong}"
    if (expected[NAN:FIRST_NAN] != got[NAN:FIRST_NAN]).any():
        return f"NaN, +inf, -inf: expected {expected[NAN:FIRST_NAN].tolist()}, got {got[NAN:FIRST_NAN].tolist()}"
    if expected[NAN:FIRST_NAN].any():
        return None  # they decide what the sum is
    right, wrong, sizes = (exact_sum.from_words(words) for words in (expected[SUM_AT], got[SUM_AT], expected[SIZES_AT]))
    k = roundings(int(expected[SAMPLES])) if dtype.kind == "f" else 0
    if abs(wrong - right) * (2**53 - k) <= k * sizes:  # in integers, without a rounding
        return None
    near, got_sum = (exact_sum.quotient(Fraction(units, 2**exact_sum.SUM_BITS)) for units in (right, wrong))
    return f"sum: expected {near} within γ({k:,}) Σ|x|, got {got_sum}"
