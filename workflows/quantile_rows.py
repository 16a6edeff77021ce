"""Quantiles of many short rows at once: their keys, and the results as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.rounded import interpolated
from kernels.quantile.check_gathered import check_gathered
from kernels.quantile.keys import nan_key, to_samples
from kernels.quantile.ranks import SELECTING, between
from kernels.quantile.rows import gather_rows
from kernels.quantile.search import Quantile, Search
from kernels.transpose.cpu import transpose_cpu
from workflows.columns import Columns, listed, stacked
from workflows.quantile_result import QuantileResult, read_q
from workflows.rows import Stretch


def gathers(search: Search) -> bool:
    """Whether one pass over few samples gives all keys."""
    return search.samples < 0 and search.cells is not None and bool(search.cells.gathered)


def compute_rows(block: Any, options: tuple[Any, ...], stretch: Stretch) -> NDArray[np.int64] | None:
    """Keys of the rows of a stretch; None where they are not gathered, or rows are long.

    Those of a block on a device are copied to the host, because launches for each would take longer.
    """
    search = options[0].search
    if len(options) > 1 or stretch.long or not gathers(search):
        return None
    samples = block if isinstance(block, np.ndarray) else block.get()
    return gather_rows(*stretch.one_after_another(samples, transpose_cpu), search.cells.gathered)


def check_lines(
    samples: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64], options: Any
) -> NDArray[np.int64] | None:  # fmt: skip
    """Keys of the samples of rows; None where they are not gathered."""
    search = options.search
    return check_gathered(samples, begins, ends, search.cells.gathered) if gathers(search) else None


def broken(lines: NDArray[np.int64], samples: NDArray[np.int64]) -> int | None:
    """The first line that has not as many keys, or counts, as samples, or a negative count."""
    keys = lines[:, 0] < 0
    total = np.where(keys, -1 - lines[:, 0], lines.sum(axis=1))
    wrong = (total != samples) | (~keys & (lines.min(axis=1) < 0))
    return int(wrong.argmax()) if wrong.any() else None


def order_statistics(
    lines: NDArray[np.int64], quantile: Quantile, numbers: NDArray[np.int64], dtype: np.dtype[Any]
) -> NDArray[Any]:  # fmt: skip
    """A quantile of each line, which has so many numbers: samples where the method selects one, as Python's integers if
    some lines have none, else float64, rounded once; NaN where there are no numbers."""
    integers = dtype if numbers.all() else np.dtype(object)
    kind = np.dtype(np.float64) if quantile[0] not in SELECTING else dtype if dtype.kind == "f" else integers
    values = np.full(len(lines), 0 if kind.kind in "iu" else math.nan, kind)
    for number in np.unique(numbers[numbers > 0]).tolist():
        rows = np.flatnonzero(numbers == number)
        place = between(*quantile, number)
        low, high = (to_samples(lines[rows, 1 + rank].view(np.uint64), dtype) for rank in (place.low, place.high))
        if not place.weight:
            values[rows] = low
            continue
        finite = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore"):  # of opposite infinities, whose sum has a sign on some CPUs
            ends = low[~finite].astype(np.float64) + high[~finite]
        values[rows[~finite]] = np.where(np.isnan(ends), math.nan, ends)
        values[rows[finite]] = interpolated(low[finite], high[finite], place.weight)
    return values


class QuantileColumns(Columns):
    """The quantiles of many rows.

    Parameters
    ----------
    lines : int64 array, shape (rows, 1 + gathered), of at least one row
        Number and keys of the samples.
    options
        With a search that has not begun.
    """

    def __init__(self, lines: NDArray[np.int64], options: Any) -> None:
        self._q, self._method, search = tuple(options.q), options.method, options.search
        self._samples = -1 - lines[:, 0]
        key = nan_key(search.dtype)
        is_nan = lines[:, 1:].view(np.uint64) == (2**64 - 1 if key is None else key)
        counted = (
            is_nan & (np.arange(lines.shape[1] - 1) < self._samples[:, None]) if key is not None else is_nan[:, :0]
        )
        self._nan = counted.sum(axis=1)
        self._numbers = self._samples - self._nan
        if not search.omit:
            self._numbers[self._nan > 0] = 0
        self._dtype = search.dtype
        self._values = [order_statistics(lines, one, self._numbers, search.dtype) for one in search.quantiles]

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
    """The results of lines, by `finalize` where keys are not gathered."""
    return QuantileColumns(lines, options) if gathers(options.search) else [finalize(line, options) for line in lines]
