"""Adds order statistics to a job: a partial is the job's own beside the counts of a search."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial as partial_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module
from kernels.common.rounded import rounded
from kernels.quantile.cells import combined
from kernels.quantile.deviation_rows import median_deviations
from kernels.quantile.rows import Ordered
from kernels.quantile.search import Quantile, Search
from workflows import order_rows
from workflows.aggregation import Aggregation, Check, Survey
from workflows.quantile import (
    SURVEY,
    advanced,
    count,
    count_check,
    count_reference,
    every_sample_counted_once,
    label,
    look,
    no_counts,
    of_few,
    proven,
    read_quantile,
    survey_needed,
    with_search,
)
from workflows.quantile_rows import counted, interquartile, order_statistics

NAMES = ("median", "iqr", "mad")
QUANTILE = re.compile(r"q(?=[\d.])")


def is_order_statistic(name: str) -> bool:
    """Whether a name is median, iqr, mad or q with a number like q0.01; ValueError if the number is not from 0 to 1."""
    if name in NAMES:
        return True
    if QUANTILE.match(name):
        try:
            return bool(read_quantile(name[1:]))
        except ValueError as error:
            raise ValueError(f"--op {name}: {error}") from None
    return False


def _quantiles(name: str) -> tuple[Quantile, ...]:
    """The quantiles that a statistic is made of."""
    if name == "iqr":
        return ("linear", Fraction(3, 4)), ("linear", Fraction(1, 4))
    if name == "mad":
        return ()
    return (("linear", Fraction(1, 2) if name == "median" else Fraction(name[1:])),)


def begin(names: Sequence[str], dtype: np.dtype[Any], omit: bool) -> Search:
    """The search for statistics of samples of a dtype."""
    quantiles = dict.fromkeys(one for name in names for one in _quantiles(name))
    return Search.begin(dtype, tuple(quantiles), omit, "mad" in names)


def value(search: Search, name: str) -> float:
    """A statistic, rounded once."""
    if name == "mad":
        return search.median_deviation()
    numbers = [search.number(search.quantiles.index(one)) for one in _quantiles(name)]
    if len(numbers) == 1:
        return rounded(numbers[0]) if isinstance(numbers[0], Fraction) else numbers[0]
    upper, lower = numbers
    if isinstance(upper, Fraction) and isinstance(lower, Fraction):
        return rounded(upper - lower)
    difference = float(upper) - float(lower)
    return math.nan if math.isnan(difference) else difference  # of infinities, whose difference has a sign on some CPUs


def columns_of(lines: NDArray[np.int64], search: Search, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Statistics of the keys of lines, each rounded once."""
    ordered = Ordered(lines, counted(lines, search).numbers, search.dtype)
    several = {"iqr": interquartile, "mad": median_deviations}
    return {name: several[name](ordered) if name in several else order_statistics(ordered, _quantiles(name)[0])
            for name in names}  # fmt: skip


def with_order_statistics(
    base: Aggregation[Any], names: Callable[[Any], Sequence[str]], columns: Callable[..., Any]
) -> Aggregation[Any]:
    """The job that computes order statistics beside what another one does, where options ask for some.

    Its partial is then the length of that of the other job, an int64 array of one dimension, that partial, and counts.

    Parameters
    ----------
    base
        Its result has `values`, by name; its options have `nan`.
    names
        Of all statistics that options ask for, in order, those of `base` among them.
    columns
        (lines of `base`, options, columns of the other statistics by name) -> the results.
    """
    assert base.lines

    def joined(partial: Any, counts: Any) -> Any:
        xp = array_module(partial)
        return xp.concatenate((xp.full(1, partial.size, np.int64), partial, xp.asarray(counts)))

    def parts(partial: Any) -> tuple[Any, Any]:
        end = 1 + int(partial[0])
        return partial[1:end], partial[end:]

    def compute(block: Any, options: Any) -> Any:
        return joined(base.compute(block, options), count(block, options.search))

    def combine(a: Any, b: Any) -> Any:
        (own, counts), (others, more) = parts(a), parts(b)
        return joined(base.combine(own, others), combined(counts, more))

    def place(partial: Any, start: int) -> Any:
        own, counts = parts(partial)
        return joined(base.place(own, start) if base.place else own, counts)

    def relocate(partial: NDArray[np.int64], index_of: Callable[[int], int]) -> NDArray[np.int64]:
        own, counts = parts(partial)
        assert base.relocate is not None
        return np.asarray(joined(base.relocate(own, index_of), counts))

    def finalize(partial: NDArray[np.int64], options: Any) -> Any:
        own, counts = parts(partial)
        search, result = proven(options.search, counts), base.finalize(own, options)
        asked = {name: result.values[name] if name in result.values else value(search, name) for name in names(options)}
        return replace(result, values=asked, exact=None)

    def results(lines: NDArray[np.int64], keys: NDArray[np.int64], options: Any) -> Any:
        asked = [name for name in names(options) if is_order_statistic(name)]
        return columns(lines, options, columns_of(keys, options.search, asked))

    def of_base(invariant: Callable[[Any, int], str | None]) -> Callable[[Any, int], str | None]:
        return lambda partial, samples: invariant(parts(partial)[0], samples)

    def name_of(position: int, options: Any) -> str:
        length = base.empty(options.search.dtype, options).size if base.empty else 0
        if not 1 <= position <= length:
            return label(position - length - 1, options.search) if position else "length"
        return base.label(position - 1, options)

    beside = replace(
        base,
        compute=compute,
        compute_rows=partial_(order_rows.compute_rows, base),
        lines=order_rows.lines_of(base.lines, results, finalize),
        combine=combine,
        place=place,
        relocate=None if base.relocate is None else relocate,
        finalize=finalize,
        reference=lambda block, options: joined(base.reference(block, options), count_reference(block, options.search)),
        invariants=(
            *map(of_base, base.invariants),
            lambda partial, samples: every_sample_counted_once(parts(partial)[1], samples),
        ),
        label=name_of,
        check=lambda options, dtype: _both(base.check(options, dtype), count_check(options.search)),
        empty=lambda dtype, options: joined(base.empty(dtype, options) if base.empty else 0, no_counts(options.search)),
        survey=Survey(
            lambda options: survey_needed(options.search),
            SURVEY,
            lambda options, counts: with_search(options, advanced(options.search, counts)),
            of_rows=True,
            proven=lambda options: True,
        ),
        look=look,
        of_few=of_few,
    )

    def prepare(job: Aggregation[Any], options: Any, dtype: np.dtype[Any]) -> tuple[Aggregation[Any], Any]:
        asked = [name for name in names(options) if is_order_statistic(name)]
        if not asked:
            return job, options
        return beside, with_search(options, begin(asked, dtype, options.nan == "omit"))

    return replace(base, prepare=prepare)


def _both(base: Check | None, counts: Check | None) -> Check | None:
    return None if base is None or counts is None else _Both(base, counts)


class _Both:
    """The checks of both parts."""

    def __init__(self, base: Check, counts: Check) -> None:
        self._base, self._counts = base, counts

    def add(self, samples: NDArray[Any], first: int) -> None:
        self._base.add(samples, first)
        self._counts.add(samples, first)

    def partial(self) -> NDArray[np.int64]:
        own = self._base.partial()
        return np.concatenate(([own.size], own, self._counts.partial()))
