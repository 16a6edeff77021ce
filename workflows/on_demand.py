"""A mapping whose values are imported at first use: a run needs one job of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

Value = TypeVar("Value")


class OnDemand(MutableMapping[str, Value]):
    """Values by name, in the order of the names.

    Parameters
    ----------
    places
        Of each value, ``"module:name"``, or a function that returns it.
    """

    def __init__(self, places: Mapping[str, str | Callable[[], Value]]) -> None:
        self._places: dict[str, str | Callable[[], Value]] = dict(places)
        self._values: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._values:
            place = self._places[name]
            self._values[name] = place() if callable(place) else _imported(place)
        return self._values[name]

    def __setitem__(self, name: str, value: Value) -> None:
        self._places.setdefault(name, "")
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._values.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
