"""How much of files is in the page cache, and how fast the rest comes from storage."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from time import perf_counter

WINDOW = 2**20  # bytes of a file that are looked at together
WINDOWS = 512  # of a file, evenly spread, at most
READ, MOST_READ, MOST_SECONDS = 2**23, 2**27, 1.0  # bytes at a time, in all, and the time for them
ALIGNED = 4096


def uncached(path: str) -> tuple[int, list[int]]:
    """Bytes of a file that are not in memory, from a sample of it, and where some are; 0 if it is not known."""
    try:
        with open(path, "rb") as file:
            length = os.fstat(file.fileno()).st_size
            if length == 0:
                return 0, []
            with mmap.mmap(file.fileno(), length, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
                return _missing(mapped, length)
    except (OSError, ValueError):
        return 0, []


def _missing(mapped: mmap.mmap, length: int) -> tuple[int, list[int]]:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.mmap.restype, page = ctypes.c_void_p, mmap.PAGESIZE
    base = _address(mapped)
    looked = absent = 0
    places = []
    for start in _starts(length):
        pages = -(-min(WINDOW, length - start) // page)
        there = (ctypes.c_ubyte * pages)()
        if libc.mincore(base + start, pages * page, there):
            return 0, []
        missing = sum(not byte & 1 for byte in there)
        looked, absent = looked + pages, absent + missing
        if missing == pages:
            places.append(start)
    return int(length * absent / looked), places


def _address(mapped: mmap.mmap) -> int:
    """Where a read-only mapping is: ctypes takes the address of writable buffers only."""
    import numpy as np

    return int(np.frombuffer(mapped, np.uint8).ctypes.data)


def _starts(length: int) -> Iterator[int]:
    windows = -(-length // WINDOW)
    step = max(1, windows // WINDOWS)
    yield from range(0, windows * WINDOW, step * WINDOW)


def rate(path: str, places: Sequence[int]) -> float | None:
    """Bytes per second of direct reads at places that are not in memory; None if the file system has none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None
    done, began = 0, perf_counter()
    try:
        with mmap.mmap(-1, READ) as buffer:
            for place in places:
                done += os.preadv(fd, [buffer], place // ALIGNED * ALIGNED)
                if done >= MOST_READ or perf_counter() - began > MOST_SECONDS:
                    break
    except OSError:
        return None
    finally:
        os.close(fd)
    return done / (perf_counter() - began) if done else None
