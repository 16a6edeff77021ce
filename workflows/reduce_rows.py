"""Reduces many rows at once: how their lines are computed, checked and rounded, and their results as columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import finish
from kernels.reduce import lines as of_lines
from kernels.reduce import partial as layout
from kernels.reduce.cpu_rows import reduce_rows_cpu
from kernels.reduce.partial import EXTREMES, FIRST_NAN, NAN, NEGATIVE, NOWHERE, POSITIVE, SAMPLES
from kernels.transpose.cpu import transpose_cpu
from workflows.columns import Columns, listed, stacked
from workflows.moments import Moments, Number
from workflows.reduce_result import Exact, ReduceResult, array_of
from workflows.rows import Stretch


def compute_rows(block: Any, parts: int, stretch: Stretch) -> NDArray[np.int64] | None:
    """Lines of the rows of a stretch; None where rows are long, and without a compiler.

    Short rows of a block on a device are copied to the host, because a launch for each would take longer.
    """
    if stretch.long:
        return None
    samples = block if isinstance(block, np.ndarray) else block.get()
    return reduce_rows_cpu(*stretch.one_after_another(samples, transpose_cpu), parts)


def broken(
    lines: NDArray[np.int64], samples: NDArray[np.int64], of_sums: Callable[[NDArray[np.int64], int], Any]
) -> int | None:  # fmt: skip
    """The first line that breaks an invariant of `workflows.reduce`; `of_sums`: those of sums, without a compiler."""
    if (wrong := of_lines.strange(lines)).any():
        return int(wrong.argmax())
    special, counts = lines[:, [NAN, POSITIVE, NEGATIVE]], lines[:, SAMPLES]
    wrong = (counts != samples) | (special < 0).any(axis=1) | (special.sum(axis=1) > samples)
    if lines[0, layout.ASKED] & EXTREMES:
        exist = lines[:, layout.POSITIONS] != NOWHERE
        numbers = lines[:, NAN] < samples
        wrong |= (exist != np.stack([lines[:, NAN] > 0, numbers, numbers], axis=1)).any(axis=1)
    if wrong.any():
        return int(wrong.argmax())
    apart = finish.first_apart(lines)
    if apart is None:
        each = zip(of_lines.to_partials(lines), samples.tolist(), strict=True)
        apart = next((number for number, one in enumerate(each) if of_sums(*one)), len(lines))
    return None if apart == len(lines) else apart


class ReduceColumns(Columns):
    """The results of reduce of many rows.

    Parameters
    ----------
    lines : int64 array, shape (rows, entries), of at least one row
    names
        Of the operations, in order.
    nan, ddof
        As those of `workflows.moments.Moments`.
    beside
        Columns of other operations among the names; the lines do not determine all results then.
    """

    def __init__(
        self, lines: NDArray[np.int64], names: Sequence[str], nan: str, ddof: int,
        beside: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:  # fmt: skip
        self._lines, self._nan, self._ddof, self._is_exact = lines, nan, ddof, beside is None
        self._dtype = np.dtype(layout.DTYPES[lines[0, layout.CODE]])
        self._has_nan = (lines[:, NAN] > 0) & (nan == "propagate")
        integers = self._dtype.kind != "f"
        rounded = [name for name in names if name in finish.OPERATIONS and not (name == "sum" and integers)]
        finished = finish.finished(lines, rounded, nan == "omit", ddof) if rounded else []
        columns = dict(zip(rounded, self._one_by_one(rounded) if finished is None else finished, strict=True))
        columns |= beside or {}
        self._values = {name: columns[name] if name in columns else self._exact(name) for name in names}

    def _one_by_one(self, names: Sequence[str]) -> list[NDArray[Any]]:
        moments = [Moments(partial, self._nan, self._ddof) for partial in of_lines.to_partials(self._lines)]
        return [np.array([one.value(name) for one in moments]) for name in names]

    def _exact(self, name: str) -> NDArray[Any]:
        """What needs no rounding: counts, sums of integers, extremes and their places, -1 where there is none."""
        if name == "count":
            return self._lines[:, SAMPLES] - self._lines[:, NAN] * (self._nan == "omit")
        if name == "sum":
            return self._integers(self._lines[:, of_lines.columns(of_lines.windows_of(self._lines[0]))[0]])
        key, at = (layout.MIN_KEY, layout.MIN_AT) if name.endswith("min") else (layout.MAX_KEY, layout.MAX_AT)
        position = np.where(self._has_nan, self._lines[:, FIRST_NAN], self._lines[:, at])
        if name.startswith("arg"):
            return np.where(position == NOWHERE, -1, position >> 1)
        keys, none = self._lines[:, key], self._has_nan | (position == NOWHERE)
        if self._dtype.kind == "f":
            values = np.where(keys >= 0, keys, keys ^ NOWHERE).view(np.float64)
            return np.asarray(np.where(none, math.nan, np.where(position & 1, -0.0, values)))
        if self._dtype == np.uint64:
            numbers = self._integers(np.stack([keys ^ layout.LEAST, np.zeros_like(keys)], axis=1))
        else:
            numbers = keys
        return np.where(none, math.nan, numbers.astype(object)) if none.any() else numbers

    @staticmethod
    def _integers(words: NDArray[np.int64]) -> NDArray[Any]:
        """Integers of two words, as int64, or uint64, if they all fit, else as Python's."""
        low, high = words[:, 0], words[:, 1]
        if np.array_equal(high, low >> 63):
            return low
        if not high.any():
            return low.view(np.uint64)
        return np.asarray(low.view(np.uint64).astype(object) + high.astype(object) * 2**64)

    def __len__(self) -> int:
        return len(self._lines)

    def of(self, row: int) -> ReduceResult:
        line = self._lines[row]
        values = {name: _listed(name, column[row : row + 1])[0] for name, column in self._values.items()}
        exact = Exact(of_lines.to_partials(line[None])[0], self._nan, self._ddof) if self._is_exact else None
        return ReduceResult(values, int(line[SAMPLES]), int(line[NAN]), self._dtype, exact)

    def arrays(self) -> dict[str, NDArray[Any]]:
        everything = {**self._values, "samples": self._lines[:, SAMPLES], "nan": self._lines[:, NAN]}
        return {name: _array(column) for name, column in everything.items()}

    def to_json(self) -> list[dict[str, Any]]:
        plain = {name: [str(x) if x in (math.inf, -math.inf) or x != x else x for x in values]
                 if _unusual(self._values[name]) else values for name, values in self._lists().items()}  # fmt: skip
        plain |= {"samples": self._lines[:, SAMPLES].tolist(), "nan": self._lines[:, NAN].tolist()}
        return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]

    def documents(self) -> list[dict[str, Any]]:
        plain, dtype = self.to_json(), {"dtype": self._dtype.name}
        if not self._is_exact:
            return [{"format": 2} | one | dtype for one in plain]
        partials = (partial for chunk in self._chunks() for partial in of_lines.to_partials(chunk))
        exact = (Exact(partial, self._nan, self._ddof).document() for partial in partials)
        return [{"format": 2} | one | dtype | {"exact": of} for one, of in zip(plain, exact, strict=True)]

    def table(self) -> tuple[tuple[str, ...], list[list[tuple[Any, ...]]]]:
        lists = {name: ["" if x is None else x for x in values] if name.startswith("arg") else values
                 for name, values in self._lists().items()}  # fmt: skip
        return ("operation", "value"), [list(zip(lists, values, strict=True)) for values in
                                        zip(*lists.values(), strict=True)]  # fmt: skip

    def exact(self) -> tuple[int, Iterable[NDArray[np.int64]]]:
        if not self._is_exact:
            return 0, ()
        of_each = of_lines.to_partials(self._lines[:1]).size
        return len(self) * of_each, (of_lines.to_partials(chunk).reshape(-1) for chunk in self._chunks())

    def _chunks(self) -> Iterator[NDArray[np.int64]]:
        """The lines, some at a time."""
        return (self._lines[start : start + of_lines.CHUNK] for start in range(0, len(self), of_lines.CHUNK))

    def _lists(self) -> Mapping[str, list[Number]]:
        return {name: _listed(name, column) for name, column in self._values.items()}


def _listed(name: str, column: NDArray[Any]) -> list[Number]:
    values: list[Number] = listed(column)
    return [None if x == -1 else x for x in values] if name.startswith("arg") else values


def _unusual(column: NDArray[Any]) -> bool:
    """Whether JSON has no numbers for some of a column."""
    return column.dtype == object or (column.dtype.kind == "f" and not np.isfinite(column).all())


def _array(column: NDArray[Any]) -> NDArray[Any]:
    """The arrays of all values, stacked."""
    return stacked([array_of(value) for value in column.tolist()]) if column.dtype == object else column
