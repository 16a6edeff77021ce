"""Quantiles of many short rows at once: their keys, and the results as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common.rounded import interpolated, interpolated_difference
from kernels.quantile.check_gathered import check_counted, check_gathered
from kernels.quantile.keys import nan_key
from kernels.quantile.ranks import SELECTING, between
from kernels.quantile.rows import Ordered, count_keys, gather_rows
from kernels.quantile.search import Quantile, Search
from kernels.transpose.cpu import transpose_cpu
from workflows.columns import Columns, listed, stacked
from workflows.quantile_result import QuantileResult, read_q
from workflows.rows import Stretch


def gathers(search: Search) -> bool:
    """Whether one pass over few samples gives all keys."""
    return search.samples < 0 and search.cells is not None and bool(search.cells.gathered)


def in_lines(search: Search) -> bool:
    """Whether one pass gives lines with all order statistics: keys, or counts of those of 8 bits."""
    return gathers(search) or (search.dtype.itemsize == 1 and search.samples < 0)


def compute_rows(block: Any, options: tuple[Any, ...], stretch: Stretch) -> NDArray[np.int64] | None:
    """Lines of the rows of a stretch; None where there are none, or rows are long.

    Those of a block on a device are copied to the host, because launches for each would take longer.
    """
    search = options[0].search
    if len(options) > 1 or stretch.long or not in_lines(search):
        return None
    samples = block if isinstance(block, np.ndarray) else block.get()
    table = stretch.one_after_another(samples, transpose_cpu)
    return gather_rows(*table, search.cells.gathered) if gathers(search) else count_keys(*table)


def check_lines(
    samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], options: Any
) -> NDArray[np.int64] | None:  # fmt: skip
    """The same for verification."""
    search = options.search
    if gathers(search):
        return check_gathered(samples, begins, ends, search.cells.gathered)
    return check_counted(samples, begins, ends) if in_lines(search) else None


def broken(lines: NDArray[np.int64], samples: NDArray[np.int64]) -> int | None:
    """The first line that has not as many keys, or counts, as samples, or a negative count."""
    keys = lines[:, 0] < 0
    total = np.where(keys, -1 - lines[:, 0], lines.sum(axis=1))
    wrong = (total != samples) | (~keys & (lines.min(axis=1) < 0))
    return int(wrong.argmax()) if wrong.any() else None


def order_statistics(ordered: Ordered, quantile: Quantile) -> NDArray[Any]:
    """A quantile of each row: samples where the method selects one, as Python's integers if some rows have no numbers,
    else float64, rounded once; NaN where there are no numbers."""
    dtype, rows = ordered.dtype, ordered.rows
    integers = dtype if len(rows) == ordered.all else np.dtype(object)
    kind = np.dtype(np.float64) if quantile[0] not in SELECTING else dtype if dtype.kind == "f" else integers
    values = np.full(ordered.all, 0 if kind.kind in "iu" else math.nan, kind)
    if not len(rows):
        return values
    lows, highs, weights = zip(*(between(*quantile, number) for number in ordered.distinct.tolist()), strict=True)
    low = ordered.samples(lows)
    is_sample = np.array([not weight for weight in weights])[ordered.which]
    values[rows[is_sample]] = low[is_sample]
    if not is_sample.all():
        high = ordered.samples(highs)
        finite = np.isfinite(low) & np.isfinite(high)
        some = ~is_sample & ~finite
        with np.errstate(invalid="ignore"):  # of opposite infinities, whose sum has a sign on some CPUs
            ends = low[some].astype(np.float64) + high[some]
        values[rows[some]] = np.where(np.isnan(ends), math.nan, ends)
        some = ~is_sample & finite
        values[rows[some]] = interpolated(low[some], high[some], weights, ordered.which[some])
    return values


def interquartile(ordered: Ordered) -> NDArray[np.float64]:
    """The difference of the quartiles of each row, rounded once."""
    quartiles = ("linear", Fraction(1, 4)), ("linear", Fraction(3, 4))
    lower, upper = (order_statistics(ordered, one) for one in quartiles)
    with np.errstate(invalid="ignore", over="ignore"):  # where both are finite it is computed exactly
        values: NDArray[np.float64] = upper - lower
    values[np.isnan(values)] = math.nan
    low, high = ([between(*one, number) for number in ordered.distinct.tolist()] for one in quartiles)
    ends = np.array([[ordered.samples([getattr(place, end) for place in places]) for end in ("low", "high")]
                     for places in (low, high)])  # fmt: skip
    weights = list(zip((place.weight for place in low), (place.weight for place in high), strict=True))
    finite = np.isfinite(ends).all(axis=(0, 1))
    for pair in set(weights):
        some = finite & np.array([weight == pair for weight in weights])[ordered.which]
        values[ordered.rows[some]] = interpolated_difference(ends[0][:, some], ends[1][:, some], *pair)
    return values


class Counted(NamedTuple):
    """Samples of each line, how many are NaN, and how many numbers: none if a NaN makes every result NaN."""

    samples: NDArray[np.int64]
    nan: NDArray[np.int64]
    numbers: NDArray[np.int64]


def counted(lines: NDArray[np.int64], search: Search) -> Counted:
    """What a search has counted, from one line or more."""
    samples, key = -1 - lines[:, 0] if gathers(search) else lines.sum(axis=1), nan_key(search.dtype)
    if key is None:
        return Counted(samples, np.zeros_like(samples), samples)
    nan = ((lines[:, 1:].view(np.uint64) == key) & (np.arange(lines.shape[1] - 1) < samples[:, None])).sum(axis=1)
    return Counted(samples, nan, samples - nan if search.omit else np.where(nan > 0, 0, samples))


class QuantileColumns(Columns):
    """The quantiles of many rows.

    Parameters
    ----------
    lines : int64 array, shape (rows, entries), of at least one row
        Number and keys of the samples, or the counts of the keys.
    options
        With a search that has not begun.
    """

    def __init__(self, lines: NDArray[np.int64], options: Any) -> None:
        self._q, self._method, search = tuple(options.q), options.method, options.search
        self._samples, self._nan, self._numbers = counted(lines, search)
        self._dtype = search.dtype
        ordered = Ordered(lines, self._numbers, search.dtype)
        self._values = [order_statistics(ordered, one) for one in search.quantiles]

    def __len__(self) -> int:
        return len(self._samples)

    def _dtype_of(self, numbers: int) -> np.dtype[Any]:
        selected = self._method in SELECTING and bool(numbers or self._dtype.kind == "f")
        return self._dtype if selected else np.dtype(np.float64)

    def of(self, row: int) -> QuantileResult:
        values = tuple(listed(column[row : row + 1])[0] for column in self._values)
        dtype = self._dtype_of(int(self._numbers[row]))
        return QuantileResult(self._q, values, dtype, self._method, int(self._samples[row]), int(self._nan[row]))

    def arrays(self) -> dict[str, NDArray[Any]]:
        q = np.broadcast_to(read_q(self._q), (len(self), len(self._q))).copy()
        kinds = list(map(self._dtype_of, self._numbers.tolist()))
        if len(set(kinds)) == 1:
            values = np.stack([column.astype(kinds[0]) for column in self._values], axis=1)
        else:
            each = zip(*self._values, strict=True)
            values = stacked([np.array(row, kind) for row, kind in zip(each, kinds, strict=True)])
        return {"q": q, "values": values, "samples": self._samples, "nan": self._nan}

    def to_json(self) -> list[dict[str, Any]]:
        columns = [column.tolist() if column.dtype != object and np.isfinite(column).all() else
                   [x if math.isfinite(x) else str(x) for x in column.tolist()] for column in self._values]  # fmt: skip
        counts = zip(zip(*columns, strict=True), self._samples.tolist(), self._nan.tolist(), strict=True)
        return [{"q": list(self._q), "values": list(values), "samples": samples, "nan": nan}
                for values, samples, nan in counts]  # fmt: skip

    def table(self) -> tuple[tuple[str, ...], list[list[tuple[Any, ...]]]]:
        columns = list(map(listed, self._values))
        return ("q", "value"), [list(zip(self._q, values, strict=True)) for values in zip(*columns, strict=True)]


def results(lines: NDArray[np.int64], options: Any, finalize: Any) -> Sequence[Any]:
    """The results of lines, by `finalize` where they do not have all order statistics."""
    return QuantileColumns(lines, options) if in_lines(options.search) else [finalize(line, options) for line in lines]
