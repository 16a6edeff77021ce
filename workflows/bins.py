"""Bins chosen from the samples' statistics: surveys find exact sums, extremes and quartiles."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module
from kernels.common.compiled_check import CompiledCheck
from kernels.histogram.binning import MAX_BINS
from kernels.histogram.edges import whole_bins, whole_division
from kernels.histogram.inside import inside, inside_reference
from kernels.histogram.rules import NEED_DEVIATION, NEED_QUARTILES, NEED_SKEWNESS, Statistics, bins_by_rule
from kernels.quantile.search import Search
from kernels.reduce import partial as layout
from kernels.reduce import powers
from kernels.reduce.check_powers import reduce_check_with_powers
from kernels.reduce.reference_powers import reduce_reference_with_powers
from workflows import reduce
from workflows.aggregation import Aggregation, Check
from workflows.histogram_options import DEFAULT_BINS, HistogramOptions
from workflows.histogram_result import Choice
from workflows.moments import Moments
from workflows.quartiles import Quartiles
from workflows.reduce import ReduceOptions, moments_agree, powers_agree

Range = tuple[float, float]
NO_RANGE = "--range auto: expected at least one finite sample, got none; give --range LO HI"


@cache
def _reduction(rule: str) -> ReduceOptions:
    """What a rule for the number of bins needs of the samples."""
    of_rule = (("std", NEED_DEVIATION), ("skewness", NEED_SKEWNESS))
    return ReduceOptions(",".join(["min", "max", *(name for name, rules in of_rule if rule in rules)]))


@dataclass(frozen=True)
class Selected:
    """What a survey of the samples in a range gave.

    Attributes
    ----------
    samples
        Finite samples in the range.
    infinite
        Whether there are infinities: extremes of the finite samples are not known, then.
    moments
        Sums and extremes of the finite samples.
    """

    samples: int
    infinite: bool
    moments: Moments


def _with_outside(partial: Any, outside: int) -> Any:
    """The number left out, and a partial of reduce, with 0 for places: they depend on what was left out before."""
    xp = array_module(partial)
    partial[layout.POSITIONS] = (partial[layout.POSITIONS] == layout.NOWHERE) * np.int64(layout.NOWHERE)
    return xp.concatenate((xp.asarray([outside], dtype=np.int64), partial))


def compute(block: Any, options: HistogramOptions) -> Any:
    """Partial of the samples of a block that lie in the range, on the device that holds it."""
    chosen = block if options.limits is None else inside(block, *options.limits)
    asked = _reduction(options.rule)
    if chosen.size:
        partial = reduce.compute(chosen, asked)
    else:
        partial = array_module(block).asarray(powers.empty(block.dtype, asked.parts))
    return _with_outside(partial, block.size - chosen.size)


def reference(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """The same by the reference of reduce."""
    chosen = block if options.limits is None else inside_reference(block, *options.limits)
    dtype, parts = block.dtype.newbyteorder("="), _reduction(options.rule).parts
    partial = reduce_reference_with_powers(chosen, parts) if len(chosen) else powers.empty(dtype, parts)
    return np.asarray(_with_outside(partial, len(block) - len(chosen)))


def check(options: HistogramOptions, dtype: np.dtype[Any]) -> Check | None:
    """The same by the check of reduce; None without a compiler."""
    compiled = reduce_check_with_powers(dtype, _reduction(options.rule).parts)
    if compiled is None:
        return None
    return _AllCheck(compiled) if options.limits is None else _InsideCheck(compiled, options.limits)


def _combine(a: Any, b: Any) -> Any:
    partial = reduce.combine(a[1:], b[1:])
    return array_module(a).concatenate((a[:1] + b[:1], partial))


def _selected(partial: NDArray[np.int64]) -> Selected:
    of_reduce = partial[1:]
    infinite = bool(of_reduce[[layout.POSITIVE, layout.NEGATIVE]].any())
    of_finite = of_reduce.copy()
    of_finite[layout.SAMPLES] -= of_reduce[[layout.NAN, layout.POSITIVE, layout.NEGATIVE]].sum()
    of_finite[[layout.NAN, layout.POSITIVE, layout.NEGATIVE]] = 0
    return Selected(int(of_finite[layout.SAMPLES]), infinite, Moments(of_finite))


def _every_sample_counted_once(partial: NDArray[np.int64], samples: int) -> str | None:
    counted = int(partial[0] + partial[1 + layout.SAMPLES])
    if counted == samples and partial[0] >= 0:
        return None
    return f"every sample is counted once, in the range or outside: expected {samples:,}, got {counted:,}"


def _moments_agree(partial: NDArray[np.int64], samples: int) -> str | None:
    of_reduce, here = partial[1:], samples - int(partial[0])
    return moments_agree(of_reduce, here) or powers_agree(of_reduce, here)


class _AllCheck(CompiledCheck):
    """The check of reduce, without places."""

    def __init__(self, check: CompiledCheck) -> None:
        self._check = check
        super().__init__(check._function, check._state, check._dtype, check.nbytes)

    def partial(self) -> NDArray[np.int64]:
        return np.asarray(_with_outside(self._check.partial(), 0))


class _InsideCheck:
    """The check of reduce, of samples in a range."""

    def __init__(self, check: CompiledCheck, limits: Range) -> None:
        self._check, self._limits, self._outside = check, limits, 0

    def add(self, samples: NDArray[Any], first: int) -> None:
        """Add samples; places do not matter."""
        chosen = inside_reference(samples, *self._limits)
        self._outside += len(samples) - len(chosen)
        if len(chosen):
            self._check.add(chosen, 0)

    def partial(self) -> NDArray[np.int64]:
        """Partial so far."""
        return np.asarray(_with_outside(self._check.partial(), self._outside))


STATISTICS: Aggregation[HistogramOptions] = Aggregation(
    name="statistics for bins",
    summary="Number, extremes and moments of the samples in a range.",
    options=HistogramOptions,
    compute=compute,
    combine=_combine,
    finalize=lambda partial, options: _selected(partial),
    reference=reference,
    invariants=(_every_sample_counted_once, _moments_agree),
    label=lambda position, options: reduce.label(position - 1, ReduceOptions()) if position else "samples outside",
    check=check,
    empty=lambda dtype, options: _with_outside(powers.empty(dtype, _reduction(options.rule).parts), 0),
)


@lru_cache(maxsize=16)
def of_integers(options: HistogramOptions) -> HistogramOptions:
    """Options of the histogram for samples that are integers; the same ones for the same options."""
    if not options.free or options.limits is None:
        return options
    whole = whole_division(*options.limits, DEFAULT_BINS)
    if whole is None or whole[1] == options.bins:
        return options
    return _with_bins(options, options.limits, Choice("", *whole))


def completed(options: HistogramOptions, statistics: Selected) -> HistogramOptions:
    """Options of the histogram with the statistics of all samples, or of those in the range.

    Raises
    ------
    ValueError
        If there is no range because no sample is finite, or if the bins cannot be.
    """
    if options.limits is None and statistics.infinite:
        known = replace(options)
        vars(known)["_statistics"] = statistics
        return known
    if not statistics.samples:
        if options.limits is None:
            raise ValueError(NO_RANGE)
        return _with_bins(options, options.limits, Choice(options.rule, 0.0, 1))
    of_moments = statistics.moments.value
    lowest, highest = of_moments("min"), of_moments("max")
    assert lowest is not None and highest is not None
    return _completed(options, statistics, lowest, highest)


def with_range(options: HistogramOptions, lowest: float, highest: float) -> HistogramOptions:
    """Options of the histogram with the finite minimum and maximum of the samples; ValueError as of `completed`."""
    if lowest > highest:
        raise ValueError(NO_RANGE)
    if options.statistics is not None:
        return _completed(options, options.statistics, lowest, highest)
    return replace(options, range=_widened(lowest, highest, options.scale))


def _completed(
    options: HistogramOptions, statistics: Selected, lowest: int | float, highest: int | float
) -> HistogramOptions:
    dtype = statistics.moments.dtype
    if not options.rule:
        if dtype.kind == "f":
            return replace(options, range=_widened(float(lowest), float(highest), options.scale))
        first, width, bins = whole_bins(int(lowest), int(highest), DEFAULT_BINS)
        return _with_bins(options, (float(first), float(first + bins * width)), Choice("", width, bins))
    value = statistics.moments.value
    deviation = value("std") if options.rule in NEED_DEVIATION else None
    skewness = value("skewness") if options.rule in NEED_SKEWNESS else None
    extent = _extent(lowest, highest, dtype)
    if not math.isfinite(extent):
        raise ValueError(f"--bins {options.rule}: expected samples less than 2^1024 apart, got some from {lowest:g} to "
                         f"{highest:g}; give --range LO HI")  # fmt: skip
    of_rule = Statistics(statistics.samples, extent, deviation, skewness, integers=dtype.kind != "f")
    limits = options.limits or _widened(float(lowest), float(highest), options.scale)
    span = extent if options.limits is None and lowest < highest else limits[1] - limits[0]
    if options.rule not in NEED_QUARTILES:
        return _with_bins(options, limits, Choice(options.rule, *bins_by_rule(options.rule, of_rule, span)))
    within = options.limits or ((float(lowest), float(highest)) if statistics.infinite else None)
    waiting = replace(options, range=limits)
    vars(waiting).update(_quartiles=Quartiles.begin(dtype, within), _waiting=(of_rule, span))
    return waiting


def with_search(options: HistogramOptions, search: Search) -> HistogramOptions:
    """Options of the histogram with a search for quartiles that is further."""
    waiting = replace(options)
    vars(waiting).update(_quartiles=replace(options.quartiles, search=search), _waiting=vars(options)["_waiting"])
    return waiting


def with_quartiles(options: HistogramOptions, iqr: float) -> HistogramOptions:
    """Options of the histogram with the interquartile range of the samples."""
    of_rule, span = vars(options)["_waiting"]
    choice = Choice(options.rule, *bins_by_rule(options.rule, replace(of_rule, iqr=iqr), span))
    assert options.limits is not None
    return _with_bins(options, options.limits, choice)


def _with_bins(options: HistogramOptions, limits: Range, choice: Choice) -> HistogramOptions:
    complete = replace(options, bins=min(choice.asked, MAX_BINS), range=limits)
    vars(complete)["_choice"] = choice
    return complete


def _extent(lowest: int | float, highest: int | float, dtype: np.dtype[Any]) -> float:
    """Maximum less minimum as NumPy rounds it: of floats in their dtype."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            extent = float(dtype.type(highest) - dtype.type(lowest))
        if math.isfinite(extent):
            return extent
    return float(highest - lowest)


def _widened(lowest: float, highest: float, scale: str) -> Range:
    """The range of the data, widened as in NumPy if that is a single value."""
    if lowest < highest:
        return lowest, highest
    if scale == "log":
        return lowest / 2, highest * 2
    # Beyond 2**29 adding 0.5 would be lost in float64, or leave too few float64 numbers for the bins.
    half = max(0.5, abs(lowest) * 2.0**-30)
    return max(lowest - half, -sys.float_info.max), min(highest + half, sys.float_info.max)
