"""Pickles the argument that all tasks of a run share once, and unpickles it once per thread."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from threading import local
from typing import Any

_last = local()


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
