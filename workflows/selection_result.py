"""The result of a job on selected samples: the job's own, with the number of samples that were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workflows.aggregation import Drawn, Result
from workflows.shown import Shown, how_many


class SelectedResult(Shown):
    """A verified result of the samples that were kept; it has all attributes of the job's own result.

    Attributes
    ----------
    result
        Of the job.
    excluded
        Number of samples that were left out.
    asked
        What selected the others, by flag.
    verification
        What was checked, set by `pipeline.run`.

    Examples
    --------
    >>> import numpy, pipeline
    >>> found = pipeline.run("reduce", numpy.arange(10), op="sum", where="x < 4")
    >>> found.values, found.excluded
    ({'sum': 6}, 6)
    """

    def __init__(self, result: Any, excluded: Any, asked: Mapping[str, Any]) -> None:
        self.result, self.excluded, self.asked = result, excluded, asked
        self.verification: Any = None

    def __getattr__(self, name: str) -> Any:
        if (name.startswith("__") and name != "__array__") or name == "result":  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.result, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.result!r}, excluded={self.excluded!r})"

    def __eq__(self, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return self.result == other.result and self.excluded == other.excluded

    __hash__ = None  # type: ignore[assignment]  # as of the job's own results

    def to_json(self) -> dict[str, Any]:
        """As of the job, with `excluded`."""
        return {**self.result.to_json(), "excluded": self.excluded}

    def document(self) -> dict[str, Any]:
        """As of the job, with `excluded`, as the job writes a number."""
        number = getattr(self.result, "number_in_document", int)
        return {**self.result.document(), "excluded": number(self.excluded)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As of the job, with the 0-d int64 `excluded`."""
        return {**self.result.arrays(), "excluded": np.array(self.excluded, np.int64)}

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """As of the job, with a last row `excluded`."""
        header, rows = self.result.table()
        return header, [*rows, ("excluded", *[""] * (len(header) - 2), self.excluded)]

    def lines(self) -> list[tuple[str, str]]:
        """As of the job, and how many samples were left out by what."""
        return [*self.result.lines(), ("excluded", f"{how_many(self.excluded)} {_by(self.asked)}")]


def flags_of(asked: Mapping[str, Any]) -> list[str]:
    """Flags that left samples out: columns only name what --where compares."""
    return [flag for flag in asked if flag != "columns"]


def _by(asked: Mapping[str, Any]) -> str:
    """What left samples out, in words."""
    return "by " + "; ".join(f"--{flag} {_text(asked[flag])}" for flag in flags_of(asked))


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


class _OfJob:
    """An attribute of the job's result which the class has, too: `isinstance` of a protocol does not see others."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, selected: Any, owner: type | None = None) -> Any:
        return self if selected is None else getattr(selected.result, self._name)


class _Plotted(SelectedResult):
    """What the protocol `PlottableHistogram` of UHI asks for."""

    axes, kind, values, variances, counts = _OfJob(), _OfJob(), _OfJob(), _OfJob(), _OfJob()


class SelectedDrawn(_Plotted):
    """A result that can be plotted."""

    steps = _OfJob()


class SelectedRows(_Plotted):
    """The results of rows; `excluded` is a list, of the number of samples that were left out of each."""

    heat = _OfJob()

    def document(self) -> dict[str, Any]:
        """As of the job, with `excluded` of every row, as the job writes numbers."""
        numbers = getattr(self.result, "numbers_in_document", list)
        return {**self.result.document(), "excluded": numbers(self.excluded)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As of the job, with int64 `excluded`, of the shape of the rows."""
        return {**self.result.arrays(), "excluded": np.array(self.excluded, np.int64).reshape(self.result.shape)}

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """As of the job, with a last line `excluded` of each row."""
        header, rows = self.result.table()
        empty = [""] * (len(header) - 3)
        return header, [*rows, *((name, "excluded", *empty, number)
                                 for name, number in zip(self.result.names, self.excluded, strict=True))]  # fmt: skip

    def lines(self) -> list[tuple[str, str]]:
        """As of the job, and how many samples of all rows were left out by what."""
        return [*self.result.lines(), ("excluded", f"{how_many(sum(self.excluded))} {_by(self.asked)}")]

    def __len__(self) -> int:
        return len(self.result)

    def __getitem__(self, row: int) -> Any:
        return selected_result(self.result[row], self.excluded[row], self.asked)


class SelectedColumns(NamedTuple):
    """Results of rows, a sequence, the number of samples that were left out of each, and by what."""

    results: Sequence[Any]
    excluded: list[int]
    asked: Mapping[str, Any]


def selected_result(result: Result, excluded: int, asked: Mapping[str, Any]) -> SelectedResult:
    """A result with the number of samples that were left out."""
    return (SelectedDrawn if isinstance(result, Drawn) else SelectedResult)(result, excluded, asked)
