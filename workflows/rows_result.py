"""The results of all rows together: a histogram with one more axis, or a table with one more column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workflows.columns import Columns
from workflows.columns import stacked as stacked_arrays
from workflows.histogram_result import HistogramResult, uhi
from workflows.histogram_rows import HistogramColumns
from workflows.plottable import ROWS, BinAxis, NameAxis, boost_histogram_of
from workflows.rows import Rows
from workflows.selection_result import SelectedColumns, SelectedResult, SelectedRows
from workflows.shown import PlottedRows, Shown, how_many

MOST_LINES = 24  # rows that the panel shows; the files have all
COLUMNS, BARS = 48, " ▁▂▃▄▅▆▇█"  # of a row in the panel


@dataclass(frozen=True)
class RowsResult(Shown):
    """The verified results of rows.

    Attributes
    ----------
    rows
        What a row is.
    results
        Of each row, in order: a file's rows in the order of the files, those of an array in C order.
    verification
        What was checked, set by `pipeline.run`.

    Examples
    --------
    >>> import numpy, pipeline
    >>> sums = pipeline.run("reduce", numpy.arange(6), segment=2, op="sum")
    >>> len(sums), sums[0].values, sums.arrays()["sum"].tolist()
    (3, {'sum': 1}, [1, 5, 9])
    """

    rows: Rows
    results: Sequence[Any]
    verification: Any = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, row: int) -> Any:
        return self.results[row]

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows along the axes of the result."""
        return (len(self.results),) if self.rows.shape is None else self.rows.shape

    @property
    def names(self) -> list[str]:
        """The names of the rows."""
        return self.rows.names_of(range(len(self.results)))

    def to_json(self) -> dict[str, Any]:
        """What a row is, the names of the rows, and the result of each."""
        if isinstance(self.results, Columns):
            results = self.results.to_json()
        else:
            results = [result.to_json() for result in self.results]
        return {"by": self.rows.by, "rows": self.names, "results": results}

    def document(self) -> dict[str, Any]:
        """What a row is, the names of the rows, and the document of each, with the version of this layout: 2."""
        if isinstance(self.results, Columns):
            results = self.results.documents()
        else:
            results = [result.document() for result in self.results]
        return {"format": 2, "by": self.rows.by, "rows": self.names, **self.shape_in_document(), "results": results}

    def shape_in_document(self) -> dict[str, Any]:
        """What `Rows` says of all rows."""
        return {"shape": list(self.shape), "length": self.rows.length, "named": bool(self.rows.names)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of each row, stacked: their first axes are those of the rows; names of rows that have some."""
        names = {"rows": np.array(self.rows.names)} if self.rows.names else {}
        if isinstance(self.results, Columns):
            of_columns = self.results.arrays()
            return names | {name: array.reshape((*self.shape, *array.shape[1:])) for name, array in of_columns.items()}
        of_rows = [result.arrays() for result in self.results]
        return names | {name: _stacked([arrays[name] for arrays in of_rows], self.shape)
                        for name in (of_rows[0] if of_rows else ())}  # fmt: skip

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The tables of all rows, with the name of the row before each line."""
        if isinstance(self.results, Columns):
            header, tables = self.results.table()
        else:
            each = [result.table() for result in self.results]
            header, tables = each[-1][0] if each else (), [lines for _, lines in each]
        named = zip(self.names, tables, strict=True)
        return (self.rows.by, *header), [(name, *line) for name, lines in named for line in lines]

    def lines(self) -> list[tuple[str, str]]:
        """A line for each row, the first of many: its results."""
        shown = [(f"{self.rows.by} {name}", self._line(result))
                 for name, result in zip(self.names[:MOST_LINES], self.results, strict=False)]  # fmt: skip
        return [("rows", f"{len(self.results):,}, {self._described()}"), *shown, *self._rest()]

    def _described(self) -> str:
        length = self.rows.length
        return "one for each " + self.rows.by + ("" if length is None else f", of {how_many(length)}")

    def _line(self, result: Any) -> str:
        """All of a short result, or what its panel says first."""
        header, lines = result.table()
        return ", ".join(f"{name} {text}" for name, text in (lines if len(header) == 2 else result.lines()[:1]))

    def _rest(self) -> list[tuple[str, str]]:
        left = len(self.results) - MOST_LINES
        return [("", f"{left:,} more rows, in the file of -o and with --json")] if left > 0 else []


@dataclass(frozen=True)
class HistogramRows(PlottedRows, RowsResult):
    """The verified histograms of rows, which have the same edges.

    Examples
    --------
    >>> import numpy, pipeline
    >>> rows = pipeline.run("histogram", numpy.arange(6), channels=2, bins=3, range=(0, 6))
    >>> rows.counts.tolist(), rows.edges.tolist()
    ([[1, 1, 1], [1, 1, 1]], [0.0, 2.0, 4.0, 6.0])
    """

    @property
    def edges(self) -> NDArray[np.float64]:
        """float64 array, shape (bins + 1,)."""
        return np.asarray(self.results[0].edges)

    @property
    def slots(self) -> NDArray[np.int64]:
        """Underflow, the bins, overflow and NaN of every row, int64, shape (rows, bins + 3)."""
        if isinstance(self.results, HistogramColumns):
            return self.results.slots
        return np.array([[one.underflow, *one.counts, one.overflow, one.nan] for one in self.results], np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64 array, shape (*rows, bins)."""
        return self.slots[:, 1:-2].reshape(*self.shape, -1)

    def to_uhi(self) -> dict[str, Any]:
        """All but NaN as one histogram in the UHI serialization schema, whose first axis are the rows.

        It is an axis of integers, or of categories if rows have names.
        """
        first = self.results[0].to_uhi()
        number = len(self.results)
        axis: dict[str, Any] = {"type": "category_str", "categories": list(self.rows.names), "flow": False}
        if not self.rows.names:
            axis = {"type": "regular", "lower": 0, "upper": number, "bins": number, "underflow": False,
                    "overflow": False, "circular": False}  # fmt: skip
        values = self.slots[:, :-1].tolist()
        about = {name: value for name, value in first["writer_info"]["baru"].items() if name != "format"}
        shape = ",".join(map(str, self.shape))
        length = {} if self.rows.length is None else {"length": self.rows.length}
        return uhi([axis, *first["axes"]], values, **about, by=self.rows.by, shape=shape, **length)

    kind = "COUNT"

    @property
    def axes(self) -> tuple[NameAxis | BinAxis, BinAxis]:
        """The axes of the rows, which are integers or names, and of the bins, for plotting libraries."""
        names = self.rows.names
        rows = NameAxis(names) if names else BinAxis(np.arange(len(self.results) + 1), ROWS)
        return rows, BinAxis(self.edges)

    def values(self, flow: bool = False) -> NDArray[np.float64]:
        """Counts (rows, bins) as float64, for plotting libraries; `flow`: between underflow and overflow."""
        return self.slots[:, slice(0, -1) if flow else slice(1, -2)].astype(np.float64)

    def variances(self, flow: bool = False) -> NDArray[np.float64]:
        """The variances of the counts, which are equal to them."""
        return self.values(flow)

    def _to_boost_histogram_(self) -> Any:
        """For `boost_histogram.Histogram(result)` and `hist.Hist(result)`, which call it."""
        return boost_histogram_of(self.to_uhi())

    def document(self) -> dict[str, Any]:
        """Two UHI histograms by name: `histogram`, and `nan`, the number of NaN of every row."""
        described = self.to_uhi()
        return {"histogram": described, "nan": self.numbers_in_document(self.slots[:, -1].tolist())}

    def to_json(self) -> dict[str, Any]:
        """What a row is, the names of the rows, the histogram, and samples, underflow, overflow, NaN of each row."""
        columns = self.slots.sum(axis=1), self.slots[:, 0], self.slots[:, -2], self.slots[:, -1]
        names = "samples", "underflow", "overflow", "nan"
        counts = {name: column.tolist() for name, column in zip(names, columns, strict=True)}
        chosen = self.results[0].choice_as_json()
        return {"by": self.rows.by, "rows": self.names, "histogram": self.to_uhi(), **counts, **chosen}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """counts (*rows, bins), edges (bins + 1,), and underflow, overflow, nan (*rows,)."""
        names = {"rows": np.array(self.rows.names)} if self.rows.names else {}
        flow = {"underflow": self.slots[:, 0], "overflow": self.slots[:, -2], "nan": self.slots[:, -1]}
        return names | {"counts": self.counts, "edges": self.edges} | {
            name: column.reshape(self.shape) for name, column in flow.items()}  # fmt: skip

    def numbers_in_document(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Numbers of samples of every row, as NaN are counted there."""
        return uhi(self.to_uhi()["axes"][:1], list(numbers))

    def heat(self) -> tuple[NDArray[np.int64], NDArray[np.float64], str, list[str]]:
        """Counts of shape (rows, bins), the edges of the bins, what a row is, and the names of the rows."""
        return self.counts.reshape(len(self.results), -1), self.edges, self.rows.by, self.names

    def lines(self) -> list[tuple[str, str]]:
        """A line for each row: its shape, on the scale of the fullest bin of all rows, and its samples."""
        counts = self.counts.reshape(len(self.results), -1)
        columns = min(COLUMNS, counts.shape[1])
        borders = np.arange(columns) * counts.shape[1] // columns
        heights = np.maximum.reduceat(counts, borders, axis=1)
        top = int(heights.max()) or 1
        bars = -(-heights * (len(BARS) - 1) // top)
        shown = []
        for name, bar, result in zip(self.names[:MOST_LINES], bars.tolist(), self.results, strict=False):
            outside = ", ".join(f"{what} {number:,}" for what, number in
                                (("underflow", result.underflow), ("overflow", result.overflow), ("NaN", result.nan))
                                if number)  # fmt: skip
            text = f"{''.join(BARS[height] for height in bar)}  {result.samples:,}{f' ({outside})' if outside else ''}"
            shown.append((f"{self.rows.by} {name}", text))
        return [
            *self.results[0].bins_lines(),
            ("rows", f"{len(self.results):,}, {self._described()}; bars: the fullest bin of all has {how_many(top)}"),
            *shown,
            *self._rest(),
        ]


def stacked(results: Sequence[Any], rows: Rows) -> Any:
    """The results of rows as one."""
    if isinstance(results, SelectedColumns):
        return SelectedRows(stacked(results.results, rows), results.excluded, results.asked)
    if isinstance(results, Columns):
        return (HistogramRows if isinstance(results, HistogramColumns) else RowsResult)(rows, results)
    if results and all(isinstance(result, SelectedResult) for result in results):
        together = stacked([result.result for result in results], rows)
        return SelectedRows(together, [result.excluded for result in results], results[0].asked)
    alike = results and all(
        isinstance(result, HistogramResult) and np.array_equal(result.edges, results[0].edges) for result in results
    )
    return (HistogramRows if alike else RowsResult)(rows, tuple(results))


def _stacked(arrays: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    """Arrays of one shape and dtype, or 0-d ones of different ones, with further axes before their own."""
    return stacked_arrays(arrays).reshape((*shape, *arrays[0].shape))
