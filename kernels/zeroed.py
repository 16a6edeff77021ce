"""Zeros that kernels add results to: one launch clears many, because one for each takes 1 % of a pass over a GiB."""

from __future__ import annotations

import threading
from typing import Any

CLEARED = 2**21  # bytes at a time: a result that is kept keeps them
APART = 128  # bytes that results begin at a multiple of, as arrays of their own do
KINDS = 32  # of results that rows are kept for

# Of each device, stream and size the rows that are cleared, and how many of them are taken.
_rows: dict[tuple[int, int, int, int], tuple[Any, int]] = {}
_lock = threading.Lock()


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

    stream = cupy.cuda.get_current_stream().ptr
    padded = -(-count // (APART // 8)) * (APART // 8)
    number = CLEARED // (8 * max(1, padded))
    # What is captured is launched again: then it has to be cleared again, too.
    if number < 2 or cupy.cuda.runtime.streamIsCapturing(stream):
        return cupy.zeros(count, cupy.uint64)
    # A stream of the same number is another one in each thread, if it is the default stream of the thread.
    key = (int(cupy.cuda.runtime.getDevice()), stream, threading.get_ident(), count)
    with _lock:
        rows, taken = _rows.pop(key, (None, 0))
        if rows is None:
            rows = cupy.zeros((number, padded), cupy.uint64)
        if taken + 1 < number:
            _rows[key] = rows, taken + 1
        while len(_rows) > KINDS:
            del _rows[next(iter(_rows))]
    return rows[taken, :count]
