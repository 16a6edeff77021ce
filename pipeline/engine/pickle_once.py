"""Pickles the argument that all tasks of a run share once, unpickles it once per thread; passes items as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from threading import local
from typing import Any
from weakref import WeakValueDictionary

_last = local()
_here: WeakValueDictionary[int, InThisProcess] = WeakValueDictionary()


class InThisProcess(Sequence[Any]):
    """Items of a task of this process, which are passed as they are: Dask would pickle them for another thread, too.

    Whoever submits the task keeps them until it has ended.
    """

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: Any) -> Any:
        return self._items[place]

    def __reduce__(self) -> Any:
        _here[id(self)] = self
        return _passed, (id(self),)


def _passed(number: int) -> InThisProcess:
    return _here[number]


class PickledOnce:
    """Base of a frozen dataclass that is an argument of every task.

    Dask pickles the arguments of every task again. A workflow of lambdas takes longer to pickle than all of Dask's
    other overhead per task, and properties that options cache would be recomputed in every task.
    """

    @cached_property
    def _pickled(self) -> bytes:
        from distributed.protocol.pickle import dumps

        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return bytes(dumps((type(self), values)))

    def __reduce__(self) -> Any:
        return _unpickled, (self._pickled,)


def _unpickled(pickled: bytes) -> Any:
    # One per thread: arrays cached on a device are ready only on the stream that made them.
    if getattr(_last, "pickled", None) != pickled:
        from distributed.protocol.pickle import loads

        kind, values = loads(pickled)
        _last.pickled, _last.part = pickled, kind(**values)
    return _last.part
