"""Exact quantiles: surveys narrow order statistics down, and the job's own pass counts what proves them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.quantile import cpu
from kernels.quantile.cells import Disagreement, combined
from kernels.quantile.check import around_check, patterns_check
from kernels.quantile.check_gathered import GatheredCheck
from kernels.quantile.ranks import METHODS, SELECTING
from kernels.quantile.reference import around_reference, cells_reference
from kernels.quantile.rows import combine
from kernels.quantile.search import Counts, Quantile, Search
from workflows.aggregation import Aggregation, Check, Disproved, Lines, Survey
from workflows.quantile_result import QuantileResult
from workflows.quantile_rows import broken, check_lines, compute_rows, gathers, results

MOST_QUANTILES = 4096
MOST_CHARACTERS = 400  # of a number
NUMBER = re.compile(r"\+?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?|\d+/0*[1-9]\d*", re.ASCII)
NAN_MODES = ("propagate", "omit")


def read_quantile(value: Any) -> str:
    """The text of a quantile, which is its exact value; a float has the value of its shortest text.

    Raises
    ------
    ValueError
        If it is no number from 0 to 1.
    """
    text = str(value).strip()
    if isinstance(value, bool | np.bool_) or len(text) > MOST_CHARACTERS or not NUMBER.fullmatch(text.lstrip("-")):
        raise ValueError(f"expected numbers from 0 to 1, got {text[:40]!r}")
    if text.startswith("-") or not Fraction(text) <= 1:
        percent = "; write 50 % as 0.5" if not text.startswith("-") and Fraction(text) <= 100 else ""
        raise ValueError(f"expected numbers from 0 to 1, got {text[:40]}{percent}")
    return text


def read_quantiles(value: Any) -> tuple[str, ...]:
    """The texts of quantiles: words separated by commas, a number, or several numbers or texts."""
    if isinstance(value, str):
        items: list[Any] = value.split(",") if value.strip() else []
    elif isinstance(value, Iterable):
        items = list(value)
    else:
        items = list(np.asarray(value, object).reshape(-1))
    if not 1 <= len(items) <= MOST_QUANTILES:
        raise ValueError(f"expected 1 to {MOST_QUANTILES} numbers, got {len(items) or 'none'}")
    return tuple(read_quantile(item) for item in items)


def check_nan_mode(nan: str) -> None:
    """ValueError unless it is a way to treat NaN."""
    if nan not in NAN_MODES:
        raise ValueError(f"--nan: expected {' or '.join(NAN_MODES)}, got {nan!r}")


@dataclass(frozen=True, eq=False)
class QuantileOptions:
    """Options of the quantiles; raises ValueError for invalid ones."""

    q: str | tuple[str, ...] = field(
        default="0,0.25,0.5,0.75,1",
        metadata={
            "help": "Quantiles: numbers from 0 to 1, separated by commas, as exact decimals or fractions.",
            "metavar": "Q,...",
            "read": read_quantiles,
        },
    )
    method: str = field(
        default="linear",
        metadata={"help": f"A method of numpy.quantile: {', '.join(METHODS)}.", "metavar": "METHOD"},
    )
    nan: str = field(
        default="propagate",
        metadata={"help": "`propagate`: one NaN makes the results NaN. `omit`: NaN is left out.", "metavar": "MODE"},
    )

    def __post_init__(self) -> None:
        try:
            vars(self).update(q=read_quantiles(self.q))
        except ValueError as error:
            raise ValueError(f"--q: {error}") from None
        if self.method not in METHODS:
            close = get_close_matches(self.method, METHODS, 1, 0.4)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"--method: expected one of {', '.join(METHODS)}, got {self.method!r}{meant}")
        check_nan_mode(self.nan)

    @property
    def quantiles(self) -> tuple[Quantile, ...]:
        """The method with each exact q."""
        return tuple((self.method, Fraction(text)) for text in self.q)

    @cached_property
    def search(self) -> Search:
        """How far the search for them is; what surveys complete."""
        raise ValueError("the dtype of the samples is not known yet")


def with_search(options: Any, search: Search) -> Any:
    """The options, with a search."""
    completed = copy(options)
    vars(completed)["search"] = search
    return completed


def prepare(job: Aggregation[Any], options: Any, dtype: np.dtype[Any]) -> tuple[Aggregation[Any], Any]:
    """The job, with a search that has not begun."""
    return job, with_search(options, Search.begin(dtype, options.quantiles, options.nan == "omit"))


def of_few(options: Any, samples: int) -> Any:
    """The options for results of at most so many samples."""
    return with_search(options, options.search.of_few(samples))


def survey_needed(search: Search) -> bool:
    """Whether more passes are needed: not of 8 or 16 bits, counted by value in one, nor of few, which it gathers."""
    return search.cells is not None and search.dtype.itemsize > 2 and not gathers(search)


def advanced(search: Search, counts: Counts) -> Search:
    """The search after a survey."""
    try:
        return search.counted(counts)
    except Disagreement as error:
        raise Disproved(str(error)) from None


def is_found_by_one_read(search: Search) -> bool:
    """Whether one read finds the order statistics on a GPU sooner than passes do: not where all counts are needed."""
    return not search.deviation and search.dtype.itemsize > 2


def look(options: Any, samples: Any) -> Any:
    """The options with what one read of all samples finds on their device."""
    search: Search = options.search
    if not is_found_by_one_read(search):
        return options
    from kernels.quantile.bracket import find_on_device

    found = find_on_device(samples, search.ranks, search.omit)
    return options if found is None else with_search(options, search.completed(*found))


def count(block: Any, search: Search) -> Any:
    """What a pass counts, on the device that holds the block."""
    if not isinstance(block, np.ndarray):
        from kernels.quantile.gpu import count_around_on_device, count_cells_on_device

        if search.cells is None:
            known = search.around and search.around.count(block, search.statistics)
            return count_around_on_device(block, search.statistics) if known is None else known
        return count_cells_on_device(block, search.cells)
    if search.cells is None:
        return cpu.count_around(block, search.statistics)
    return cpu.count_cells(block, search.cells)


def count_reference(block: NDArray[Any], search: Search) -> Counts:
    """The same by NumPy, by sorting."""
    if search.cells is None:
        return around_reference(block, search.values)
    cells = search.cells
    return cells_reference(block, cells.firsts, cells.bits, cells.slot_bits, cells.gathered)


def count_check(search: Search) -> Check | None:
    """Counts of a job's own pass by other ways than those of `count`; None without a compiler."""
    if gathers(search) and search.cells is not None and search.dtype.itemsize > 2:
        return GatheredCheck(search.cells.gathered)
    return around_check(search.values) if search.cells is None else patterns_check(search.dtype, search.cells.gathered)


def no_counts(search: Search) -> Counts:
    """What a pass over no samples counts."""
    if search.cells is None:
        return np.zeros(2 * len(search.statistics) + 2, np.int64)
    return np.zeros(search.cells.size, np.int64) - bool(search.cells.gathered)


def proven(search: Search, counts: Counts) -> Search:
    """The search, once the counts of the job's own pass complete it or prove what it gave.

    Raises
    ------
    Disproved
        If #(x < v) <= k < #(x <= v) does not hold for an order statistic v of rank k.
    """
    if search.cells is not None:
        return advanced(search, counts)
    try:
        search.proven_by(counts)
    except Disagreement as error:
        raise Disproved(str(error)) from None
    return search


def finalize(counts: Counts, options: QuantileOptions) -> QuantileResult:
    """The quantiles, each rounded once, of order statistics that the counts prove."""
    search = proven(options.search, counts)
    values = tuple(search.value(number) for number in range(len(options.q)))
    selected = options.method in SELECTING and bool(search.numbers or search.dtype.kind == "f")
    dtype = search.dtype if selected else np.dtype(np.float64)
    return QuantileResult(tuple(options.q), values, dtype, options.method, search.samples, search.nan)


def every_sample_counted_once(counts: Counts, samples: int) -> str | None:
    """The counts add up to the number of samples, and none is negative."""
    if (total := _total(counts)) != samples:
        return f"every sample is counted once: expected {samples:,} in all, got {total:,}"
    return _none_negative(counts)


def no_more_than_all(counts: Counts, samples: int) -> str | None:
    """The counts, or the keys, are no more than the number of samples, and no count is negative."""
    if (total := _total(counts)) > samples:
        return f"no sample is counted twice: expected at most {samples:,} in all, got {total:,}"
    return _none_negative(counts)


def _total(counts: Counts) -> int:
    """The number of samples: of all counts, or of the keys."""
    return -1 - int(counts[0]) if counts[0] < 0 else int(counts.sum())


def _none_negative(counts: Counts) -> str | None:
    keys = counts[0] < 0
    return f"no count is negative: got {int(counts.min()):,}" if not keys and counts.min() < 0 else None


def label(position: int, search: Search) -> str:
    """Name of a count."""
    if search.cells is not None:
        return f"key {position}" if search.cells.gathered else f"slot {position}"
    values, number = search.values, position // 2
    if position % 2:
        return "NaN" if number == len(values) else f"samples equal to {values[number]}"
    if not len(values):
        return "numbers"
    return f"samples above {values[-1]}" if number == len(values) else f"samples below {values[number]}"


SURVEY: Aggregation[QuantileOptions] = Aggregation(
    name="quantile survey",
    summary="Counts of samples in the cells of a search.",
    options=QuantileOptions,
    compute=lambda block, options: count(block, options.search),
    combine=combined,
    finalize=lambda counts, options: counts,
    reference=lambda block, options: count_reference(block, options.search),
    invariants=(no_more_than_all,),
    label=lambda position, options: label(position, options.search),
    empty=lambda dtype, options: no_counts(options.search),
    cpu_source=cpu.SOURCE,
)

QUANTILE: Aggregation[QuantileOptions] = Aggregation(
    name="quantile",
    summary="Compute exact quantiles of data of any size.",
    example="data.bin --dtype float32 --q 0.01,0.5,0.99",
    options=QuantileOptions,
    compute=lambda block, options: count(block, options.search),
    compute_rows=compute_rows,
    lines=Lines(lambda lines, options: results(lines, options, finalize), combine, broken, check_lines),
    combine=combined,
    finalize=finalize,
    reference=lambda block, options: count_reference(block, options.search),
    invariants=(every_sample_counted_once,),
    label=lambda position, options: label(position, options.search),
    check=lambda options, dtype: count_check(options.search),
    prepare=prepare,
    survey=Survey(
        lambda options: survey_needed(options.search), SURVEY,
        lambda options, counts: with_search(options, advanced(options.search, counts)), of_rows=True,
        proven=lambda options: True,
    ),
    look=look,
    of_few=of_few,
    empty=lambda dtype, options: no_counts(options.search),
    cpu_source=cpu.SOURCE,
)  # fmt: skip
