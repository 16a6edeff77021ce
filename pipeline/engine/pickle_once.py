"""What all tasks of a run have in common is pickled once, and unpickled once by each thread that works on it."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from threading import local
from typing import Any

_last = local()


class PickledOnce:
    """Base of a frozen dataclass of which every task gets the same one.

    Dask pickles the arguments of every task anew. A workflow of lambdas takes longer to pickle than a task takes Dask
    otherwise, and what options keep once they have computed it would be computed in every task.
    """

    @cached_property
    def _pickled(self) -> bytes:
        from distributed.protocol.pickle import dumps

        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return bytes(dumps((type(self), values)))

    def __reduce__(self) -> Any:
        return _unpickled, (self._pickled,)


def _unpickled(pickled: bytes) -> Any:
    # Not one for all threads: what is kept on a device is complete only for the stream that it was made on.
    if getattr(_last, "pickled", None) != pickled:
        from distributed.protocol.pickle import loads

        kind, values = loads(pickled)
        _last.pickled, _last.part = pickled, kind(**values)
    return _last.part
