"""Pickles the argument that all tasks of a run share once, and unpickles it once per thread.

Items of tasks of the same process are passed as they are.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import cached_property
from itertools import count
from threading import local
from typing import Any
from weakref import WeakValueDictionary

from pipeline.errors import PipelineError

_last = local()
_numbers = count()
_here: WeakValueDictionary[tuple[int, int], InThisProcess] = WeakValueDictionary()


class InThisProcess(Sequence[Any]):
    """Items of a task of this process, which pickle as a reference: Dask would pickle them for another thread, too.

    The reference is weak, because Dask's log keeps recent tasks. Whoever submits the task keeps its items until it has
    ended.
    """

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items
        self._key = os.getpid(), next(_numbers)
        _here[self._key] = self

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: Any) -> Any:
        return self._items[place]

    def __reduce__(self) -> Any:
        return _Reference, (self._key,)


class _Reference(Sequence[Any]):
    """What `InThisProcess` unpickles as."""

    def __init__(self, key: tuple[int, int]) -> None:
        self._key = key

    def _find(self) -> InThisProcess:
        try:
            return _here[self._key]
        except KeyError:
            raise PipelineError("expected a task in the process that planned it, during its run, got one elsewhere or "
                                "later; report this") from None  # fmt: skip

    def __len__(self) -> int:
        return len(self._find())

    def __getitem__(self, place: Any) -> Any:
        return self._find()[place]

    def __reduce__(self) -> Any:
        return _Reference, (self._key,)


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
