"""The results of many rows as columns; the result of one row is made on demand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

WHOLE = (("int64", -(2**63), 2**63 - 1), ("uint64", 0, 2**64 - 1))  # dtypes of integers, and what they hold


def stacked(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Arrays of one shape, with one more axis before their own, and a dtype that holds all values exactly.

    Of different integers int64 or uint64, of integers and floats float64, text where those do not hold all of them.
    """
    kind, whole = np.result_type(*arrays), [array for array in arrays if array.dtype.kind in "iu"]
    if whole and kind.kind == "f":
        integers = [x for array in whole for x in array.ravel().tolist()]
        if len(whole) == len(arrays):
            kind = next((np.dtype(name) for name, low, high in WHOLE if low <= min(integers) and max(integers) <= high),
                        np.dtype(str))  # fmt: skip
        elif any(int(float(x)) != x for x in integers):
            kind = np.dtype(str)
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

    def documents(self) -> list[dict[str, Any]]:
        """What `document` of each gives."""
        return [one.document() for one in self]

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
