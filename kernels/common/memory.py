"""Memory of the current device and pinned memory of the host; pools of results, made and cleared many at a time."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

POOL_BYTES = 2**20  # cleared by one launch; a result that is kept keeps them all, and each stream has its own
ALIGNMENT = 128  # bytes; results of the pool begin where arrays of their own would
MAX_POOLS = 32  # kinds, sizes, dtypes and streams that memory is kept for
PER_THREAD_STREAM = 2  # cudaStreamPerThread: one number, another stream in each thread

Stream = tuple[int, int, int]  # `current_stream()`

# By kind, size, dtype and stream, numbers, and where results that are not taken yet begin.
_pools: dict[tuple[str, int, Any, Stream], tuple[Any, deque[int]]] = {}
_NOTHING: tuple[Any, deque[int]] = None, deque()
_lock = threading.Lock()  # of those that change which pools there are


def empty(job: str, shape: int | tuple[int, ...], dtype: Any) -> Any:
    """A CuPy array of this shape and dtype, C-contiguous, uninitialized.

    Raises
    ------
    MemoryError
        With the job's name, the bytes needed and the bytes free.
    """
    return _allocated("empty", job, shape, dtype)


def zeros(job: str, shape: int | tuple[int, ...], dtype: Any) -> Any:
    """The same, zeroed."""
    return _allocated("zeros", job, shape, dtype)


def _allocated(name: str, job: str, shape: int | tuple[int, ...], dtype: Any) -> Any:
    import cupy

    try:
        return getattr(cupy, name)(shape, dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        free, _ = cupy.cuda.runtime.memGetInfo()
        raise MemoryError(f"{job}: needs {nbytes} bytes of device memory, {free} are free") from error


def pinned(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """A NumPy array in pinned memory, as from cupyx, whose import takes half a second."""
    import cupy

    count = int(np.prod(shape, dtype=object))
    nbytes = count * np.dtype(dtype).itemsize
    flat = np.frombuffer(cupy.cuda.alloc_pinned_memory(max(nbytes, 1)), np.uint8, nbytes)
    array: NDArray[Any] = flat.view(dtype).reshape(shape)
    return array


def to_pinned(array: Any) -> NDArray[Any]:
    """Pinned memory that a contiguous CuPy array is being copied to on the current stream, which nothing waits for.

    Keep it until the copy has ended: once released, it serves something else. Other copies wait within the driver,
    where threads that read may have to wait for them.
    """
    host: NDArray[Any] = array.get(out=pinned(array.shape, array.dtype), blocking=False)
    return host


def current_stream() -> Stream:
    """Key of the current stream: device, handle, and the thread if it is the per-thread default stream.

    Other streams have no thread in their key: a stream shared by several threads would get memory for each of them.
    """
    import cupy

    stream = cupy.cuda.get_current_stream().ptr
    return cupy.cuda.runtime.getDevice(), stream, threading.get_ident() if stream == PER_THREAD_STREAM else 0


def pooled_zeros(count: int, dtype: Any = np.uint64, stream: Stream | None = None) -> Any:
    """Zeroed 64-bit numbers on the current device and stream, for the caller alone.

    One launch clears many results at once: a launch per result would take 1 % of a pass over a GiB.

    Parameters
    ----------
    count
    dtype
        ``uint64``, ``int64`` or ``float64``.
    stream
        `current_stream()`, if it is known.

    Returns
    -------
    CuPy array of this dtype, shape (count,)
        C-contiguous; part of a larger one unless it is large itself. Successive results lie one after another.
    """
    return _pooled("zeros", count, dtype, stream)


def pooled_empty(count: int, dtype: Any, stream: Stream | None = None) -> Any:
    """The same, uninitialized: results that lie together are copied together."""
    return _pooled("empty", count, dtype, stream)


def _pooled(name: str, count: int, dtype: Any, stream: Stream | None) -> Any:
    import cupy

    stream = stream or current_stream()
    # A captured graph is launched again, and has to clear its result each time.
    if 8 * count > POOL_BYTES or cupy.cuda.runtime.streamIsCapturing(stream[1]):
        return getattr(cupy, name)(count, dtype)
    key = name, count, dtype, stream
    numbers, starts = _pools.get(key, _NOTHING)
    try:
        start = starts.popleft()  # no two threads get the same
    except IndexError:
        padded = -(-max(1, count) // (ALIGNMENT // 8)) * (ALIGNMENT // 8)
        length = max(2, POOL_BYTES // (8 * padded)) * padded
        numbers, start = getattr(cupy, name)(length, dtype), 0
        with _lock:
            _pools.pop(key, None)  # those allocated last are given up last
            _pools[key] = numbers, deque(range(padded, length, padded))
            while len(_pools) > MAX_POOLS:
                del _pools[next(iter(_pools))]
    return numbers[start : start + count]


def release_pool() -> None:
    """Give up memory that no result has taken, so that it serves something else."""
    with _lock:
        _pools.clear()
