"""How many tasks of a process hold memory at a time where it is limited.

A region of a product reads its rows and columns again for every other region beside it, and any region costs its task
milliseconds, however small. Under a tight limit a few large regions, one after the other, are therefore done many times
as fast as many tiny ones beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Semaphore
from typing import NamedTuple
from weakref import WeakValueDictionary

from pipeline.settings import Settings

# Concurrent tasks per GPU: while one computes, others read and write.
LANES = 4

# Most memory that a task takes, copies included, as a multiple of its inputs and output.
COPIES = 4

# Bytes of memory, copies included, that a task should have before another one gets some: a region of this size takes
# longer to read, compute and write than its task takes Dask.
ENOUGH = 2**25

# Bytes of inputs and output of a task of a product on a CPU within a limit, at most: of larger ones only what they take
# of a device is counted (`AMPLE` in workflows/matmul.py).
MOST_ON_CPU = 2**27 - 1


class Seats(NamedTuple):
    """How many tasks of a process may hold host memory, and how many device memory; 0: as many as there are."""

    host: int
    device: int


NO_LIMIT = Seats(0, 0)


def seats(threads: int, device: str, settings: Settings) -> Seats:
    """The seats of a process with so many threads."""

    def of(limit: int | None, most: int) -> int:
        return 0 if limit is None else max(1, min(most, limit // ENOUGH))

    return Seats(of(settings.memory_limit, threads),
                 of(settings.device_memory_limit if device == "gpu" else None, LANES))  # fmt: skip


def within_limits(threads: int, device: str, settings: Settings) -> float:
    """Bytes that a region's inputs and output may take within the memory limits, in a process with so many threads."""
    limits = settings.memory_limit, settings.device_memory_limit
    number = seats(threads, device, settings)
    shares = [limit / (some * COPIES) for limit, some in zip(limits, number, strict=True) if limit and some]
    return min(shares, default=math.inf)


def streamed(most: float, device: str) -> float:
    """How many of `most` bytes a task takes that reads its inputs piece by piece, as products do; it can use less."""
    return min(most, MOST_ON_CPU) if device == "cpu" and most < math.inf else most


_lock = Lock()
_of_runs: WeakValueDictionary[tuple[str, str], Semaphore] = WeakValueDictionary()  # while tasks have or want a seat


@contextmanager
def seat(run: str, kind: str, number: int) -> Iterator[None]:
    """One of so many seats that the tasks of a run in this process share; of none if the number is 0.

    Waits for a task that has one, and is watched, to give it back.
    """
    if not number:
        yield
        return
    with _lock:
        semaphore = _of_runs.setdefault((run, kind), Semaphore(number))
    with semaphore:
        yield
