"""Objects of one kind as columns of their fields: thousands of them are pickled and unpickled ten times as fast.

A chunk of small slabs has hundreds of pieces. Pickle would call Python for each of them and of what it consists of,
while the GIL keeps transfers and kernels from being started.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple


class Columns(NamedTuple):
    """Instances of a dataclass; a column for each field."""

    kind: type
    columns: tuple[Columns | list[Any], ...]


Packed = list[Columns | list[Any]]


def packed(values: Sequence[Any]) -> Packed:
    """Any objects, those of the same kind that follow one another as columns."""
    return [_packed(list(some)) for _, some in groupby(values, type)]


def unpacked(columns: Packed) -> list[Any]:
    """The objects again. Parts that several of them shared are shared."""
    return [value for some in columns for value in _unpacked(some)]


def _packed(values: list[Any]) -> Columns | list[Any]:
    kind = type(values[0])
    # What is shared stays as it is: pickle keeps it once.
    if not dataclasses.is_dataclass(kind) or len(set(map(id, values))) < len(values):
        return values
    if set(map(type, values)) != {kind}:
        return values
    return Columns(kind, tuple(_packed([*map(attrgetter(field.name), values)]) for field in dataclasses.fields(kind)))


def _unpacked(column: Columns | list[Any]) -> list[Any]:
    if isinstance(column, list):
        return column
    columns = [_unpacked(one) for one in column.columns]
    values: list[Any] = list(map(object.__new__, repeat(column.kind, len(columns[0]))))
    for field, of_field in zip(dataclasses.fields(column.kind), columns, strict=True):
        deque(map(object.__setattr__, values, repeat(field.name), of_field), 0)  # frozen ones, too; a loop in C
    return values
