"""Works on the rows of large NumPy arrays a few at a time, on all cores: for the checks of jobs on GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numpy as np

HEIGHT = 256  # rows at a time: temporaries stay in the cache

Result = TypeVar("Result")


@cache
def pool() -> ThreadPoolExecutor:
    """Threads for NumPy calls that release the GIL; one for each core, however many checks run at a time."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "tiles")


def tiles(rows: int, height: int = HEIGHT) -> list[slice]:
    """Slices that cover so many rows."""
    return [slice(start, min(start + height, rows)) for start in range(0, rows, height)]


def on_tiles(function: Callable[[slice], Result], parts: Iterable[slice]) -> list[Result]:
    """The results of a function on every tile, in order, without NumPy's warnings; tiles must not depend on others."""

    def quietly(part: slice) -> Result:
        with np.errstate(all="ignore"):
            return function(part)

    parts = list(parts)
    if len(parts) == 1:
        return [quietly(parts[0])]
    return list(pool().map(quietly, parts))
