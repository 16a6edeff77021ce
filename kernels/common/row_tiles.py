"""Works on the rows of large NumPy arrays a few at a time, on all cores: for the checks of jobs on GPUs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from kernels.common.once import once_per_process

HEIGHT = 256  # rows at a time: temporaries stay in the cache

Part = TypeVar("Part")
Result = TypeVar("Result")

_own = threading.local()  # has `inside` in the threads of the pool, and `most` in those of `limited`


@once_per_process
def pool() -> ThreadPoolExecutor:
    """Threads for calls that release the GIL; one for each core, however many checks run at a time."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "tiles", lambda: setattr(_own, "inside", True))


def tiles(rows: int, height: int = HEIGHT) -> list[slice]:
    """Slices that cover so many rows."""
    return [slice(start, min(start + height, rows)) for start in range(0, rows, height)]


def on_tiles(
    function: Callable[[Part], Result], parts: Iterable[Part], threads: ThreadPoolExecutor | None = None
) -> list[Result]:
    """The results of a function on every part, in order, without NumPy's warnings; parts must not depend on others.

    The first error is raised once nothing is running any more. `threads` do it in place of the pool.
    """

    def quietly(part: Part) -> Result:
        with np.errstate(all="ignore"):
            return function(part)

    parts = list(parts)
    if len(parts) == 1:
        return [quietly(parts[0])]
    most, futures = getattr(_own, "most", None), list[Future[Result]]()
    try:
        for part in parts:
            if most and len(futures) >= (under_way := most()):
                wait([futures[-under_way]])
            futures.append(threads.submit(quietly, part) if threads else ahead(quietly, part))
        return [future.result() for future in futures]
    finally:
        finish(futures)


@contextmanager
def limited(most: Callable[[], int]) -> Iterator[None]:
    """In this thread, let `on_tiles` have this many parts under way at most.

    It asks for their number before each part. What `most` raises ends the work.
    """
    _own.most = most
    try:
        yield
    finally:
        del _own.most


def ahead(function: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Begin a call in the pool. In one of its own threads the call is made at once: all others may be waiting too."""
    if not getattr(_own, "inside", False):
        return pool().submit(function, *arguments)
    future: Future[Result] = Future()
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)
    return future


def finish(futures: Iterable[Future[Any]]) -> None:
    """Cancel what has not begun, and wait for the rest: it may use what its caller is about to close."""
    futures = list(futures)
    for future in futures:
        future.cancel()
    wait(futures)
