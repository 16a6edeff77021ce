"""The results of many rows as columns, from which the result of a row is made when it is asked for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


def stacked(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Arrays of one shape, of dtypes that have one in common, with one more axis before their own."""
    kind = np.result_type(*arrays)
    return np.stack([array.astype(kind) for array in arrays])


def listed(column: NDArray[Any]) -> list[Any]:
    """The values as Python's; NaN as `math.nan`, so that results with the same values are equal."""
    values: list[Any] = column.tolist()
    return values if column.dtype.kind in "iu" else [math.nan if x != x else x for x in values]


class Columns(Sequence[Any], ABC):
    """A sequence of results, equal to any with the same ones."""

    @abstractmethod
    def of(self, row: int) -> Any:
        """The result of a row."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `arrays` of the results have, stacked."""

    @abstractmethod
    def to_json(self) -> list[Any]:
        """What `to_json` of each gives."""

    @abstractmethod
    def table(self) -> tuple[tuple[str, ...], list[list[tuple[Any, ...]]]]:
        """The header of their tables, and the lines of each."""

    def exact(self) -> tuple[int, Iterable[NDArray[np.int64]]]:
        """The exact partials of all, one after another: how many entries, and these, some at a time; 0 without them."""
        return 0, ()

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, row: int | slice) -> Any:
        places = range(len(self))[row]
        return self.of(places) if isinstance(places, int) else tuple(map(self.of, places))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as of the results

    def __repr__(self) -> str:
        return repr(tuple(self))
