"""Zeros that kernels add results to: one launch clears many, because one for each takes 1 % of a pass over a GiB."""

from __future__ import annotations

import threading
from typing import Any

CLEARED = 2**20  # bytes at a time: a result that is kept keeps them, and each stream that counts has as many
APART = 128  # bytes that results begin at a multiple of, as arrays of their own do
KINDS = 32  # of results that rows are kept for

PER_THREAD = 2  # the number of a stream that is another one in each thread: cudaStreamPerThread

# Of each stream and size the rows that are cleared, and how many of them are taken.
_rows: dict[tuple[tuple[int, int, int], int], tuple[Any, int]] = {}
_lock = threading.Lock()


def current_stream() -> tuple[int, int, int]:
    """What tells the current stream from all others: device, number, and the thread where that has one of its own.

    Not the thread of any other: a stream that threads take in turns would have as much memory for each of them.
    """
    import cupy

    stream = int(cupy.cuda.get_current_stream().ptr)
    return int(cupy.cuda.runtime.getDevice()), stream, threading.get_ident() if stream == PER_THREAD else 0


def zeros(count: int) -> Any:
    """Zeros of 64 bits on the current device and stream, which nobody else has.

    Parameters
    ----------
    count

    Returns
    -------
    CuPy uint64 array, shape (count,)
        C-contiguous; a part of a larger one where that is not large.
    """
    import cupy

    stream = current_stream()
    padded = -(-count // (APART // 8)) * (APART // 8)
    number = max(2, CLEARED // (8 * max(1, padded)))
    # What is captured is launched again: then it has to be cleared again, too.
    if 8 * padded > CLEARED or cupy.cuda.runtime.streamIsCapturing(stream[1]):
        return cupy.zeros(count, cupy.uint64)
    key = stream, count
    with _lock:
        rows, taken = _rows.pop(key, (None, 0))
        if rows is None:
            rows = cupy.zeros((number, padded), cupy.uint64)
        if taken + 1 < number:
            _rows[key] = rows, taken + 1
        while len(_rows) > KINDS:
            del _rows[next(iter(_rows))]
    return rows[taken, :count]


def release() -> None:
    """Give up what is cleared and not taken: memory has other uses."""
    with _lock:
        _rows.clear()
