"""Reads without keeping a file in the page cache, where memory for that costs more than reading the file again.

A virtual machine may have to get memory from its host, for seconds of a core per GiB. What is read then stays in the
cache only until it is copied, and its memory is used again. What was in the cache stays there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, thread_time

RWF_DONTCACHE = 0x80  # since Linux 6.14
BLOCK_BYTES = 2**21  # read at a time: with a quarter of this two threads got 0.5 GB/s, not 2.6, from a virtual disk
WINDOW_BYTES = 2**26  # of all threads, after which it is decided again, until it is for the rest of this process
SLOW_SECONDS = 0.6 / 2**30  # of a core per byte: copying takes a fifth of it
LEAST_SHARE = 1 / 4  # of the time in which threads read: else they wait for a slow disk, which another run need not


class _Costs:
    """What reading has cost all threads in this window; `flags` are for `preadv2`."""

    nbytes, cpu, wall, flags = 0, 0.0, 0.0, 0


@contextmanager
def measured(nbytes: int) -> Iterator[int]:
    """Flags to read so many bytes with; reading them is the body of the `with` statement."""
    if _Costs.flags:
        yield _Costs.flags
        return
    wall, cpu = perf_counter(), thread_time()
    yield 0
    _Costs.cpu += thread_time() - cpu
    _Costs.wall += perf_counter() - wall
    _Costs.nbytes += nbytes
    if _Costs.nbytes >= WINDOW_BYTES:
        if _Costs.cpu > max(SLOW_SECONDS * _Costs.nbytes, LEAST_SHARE * _Costs.wall):
            _Costs.flags = RWF_DONTCACHE
        _Costs.nbytes, _Costs.cpu, _Costs.wall = 0, 0.0, 0.0


def flags() -> int:
    """Flags to read with, as far as this process knows."""
    return _Costs.flags
