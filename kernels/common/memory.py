"""Memory of the current device and pinned memory of the host; a pool of zeroed results, cleared many at a time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

POOL_BYTES = 2**20  # cleared by one launch; a result that is kept keeps them all, and each stream has its own
ALIGNMENT = 128  # bytes; results of the pool begin where arrays of their own would
MAX_POOLS = 32  # streams and sizes that cleared rows are kept for
PER_THREAD_STREAM = 2  # cudaStreamPerThread: one number, another stream in each thread

# By stream and size, the cleared rows and how many of them are taken.
_pools: dict[tuple[tuple[int, int, int], int], tuple[Any, int]] = {}
_lock = threading.Lock()


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


def current_stream() -> tuple[int, int, int]:
    """Key of the current stream: device, handle, and the thread if it is the per-thread default stream.

    Other streams have no thread in their key: a stream shared by several threads would get memory for each of them.
    """
    import cupy

    stream = int(cupy.cuda.get_current_stream().ptr)
    return int(cupy.cuda.runtime.getDevice()), stream, threading.get_ident() if stream == PER_THREAD_STREAM else 0


def pooled_zeros(count: int) -> Any:
    """Zeroed 64-bit numbers on the current device and stream, for the caller alone.

    One launch clears many results at once: a launch per result would take 1 % of a pass over a GiB.

    Parameters
    ----------
    count

    Returns
    -------
    CuPy uint64 array, shape (count,)
        C-contiguous; part of a larger one unless it is large itself.
    """
    import cupy

    stream = current_stream()
    padded = -(-count // (ALIGNMENT // 8)) * (ALIGNMENT // 8)
    number = max(2, POOL_BYTES // (8 * max(1, padded)))
    # A captured graph is launched again, and has to clear its result each time.
    if 8 * padded > POOL_BYTES or cupy.cuda.runtime.streamIsCapturing(stream[1]):
        return cupy.zeros(count, cupy.uint64)
    key = stream, count
    with _lock:
        rows, taken = _pools.pop(key, (None, 0))
        if rows is None:
            rows = cupy.zeros((number, padded), cupy.uint64)
        if taken + 1 < number:
            _pools[key] = rows, taken + 1
        while len(_pools) > MAX_POOLS:
            del _pools[next(iter(_pools))]
    return rows[taken, :count]


def release_pool() -> None:
    """Give up rows that are cleared but not taken, so that their memory serves something else."""
    with _lock:
        _pools.clear()
