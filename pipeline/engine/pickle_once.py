"""Pickles what all tasks of a run have in common once, and unpickles it once per thread."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from threading import local
from typing import Any

_last = local()


class PickledOnce:
    """Base of a frozen dataclass that is an argument of every task.

    Dask pickles the arguments of every task anew. A workflow of lambdas takes longer to pickle than Dask needs for the
    rest of a task, and what options compute once and cache would be computed again in every task.
    """

    @cached_property
    def _pickled(self) -> bytes:
        from distributed.protocol.pickle import dumps

        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return bytes(dumps((type(self), values)))

    def __reduce__(self) -> Any:
        return _unpickled, (self._pickled,)


def _unpickled(pickled: bytes) -> Any:
    # One per thread: arrays cached on a device are complete only for the stream that made them.
    if getattr(_last, "pickled", None) != pickled:
        from distributed.protocol.pickle import loads

        kind, values = loads(pickled)
        _last.pickled, _last.part = pickled, kind(**values)
    return _last.part
