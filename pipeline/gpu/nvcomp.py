"""Decompresses Zstandard chunks in device memory, by the batched C functions of nvCOMP 6.

Version 6.0 trusts what it decompresses. On an H200 a single wrong bit in a chunk of Zstandard lost the device or kept
it busy for ever; in deflate and gzip it made other chunks of the batch wrong, which counted as right. So did LZ4, of
which its documentation says otherwise.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.memory import empty, to_pinned, zeros

# CUDA kernels on every device: with the engine that some devices have, damaged chunks count as decompressed.
CUDA = 2


class Options(ctypes.Structure):
    """64 bytes, of which the first number is the backend, and zeros are defaults."""

    _fields_ = (("backend", ctypes.c_int), ("others", ctypes.c_int * 15))


_SIZE, _ADDRESS = ctypes.c_size_t, ctypes.c_void_p
SIGNATURES = {
    "nvcompBatchedZstdDecompressGetTempSize": (_SIZE, _SIZE, Options, _ADDRESS, _SIZE, _ADDRESS),
    "nvcompBatchedZstdDecompressAsync": (
        _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _SIZE, _ADDRESS, Options, _ADDRESS, _ADDRESS,
    ),
}  # fmt: skip


@cache
def library() -> Any:
    """libnvcomp.so.6 of the package nvidia-libnvcomp; None if it is missing or another version."""
    try:
        from nvidia import libnvcomp

        loaded = libnvcomp.load_library()
        for name, types in SIGNATURES.items() if loaded else ():
            getattr(loaded, name).argtypes = types
    except (ImportError, OSError, AttributeError):
        return None
    return loaded


def workspace_bytes(chunks: int, chunk_bytes: int) -> int | None:
    """Device memory that `decompress` needs besides its arguments; None if nvCOMP is missing or cannot decompress."""
    import cupy

    return _workspace_bytes(library(), chunks, chunk_bytes, int(cupy.cuda.runtime.getDevice()))


@lru_cache(2**12)
def _workspace_bytes(loaded: Any, chunks: int, chunk_bytes: int, device: int) -> int | None:
    """Asked once: chunks are counted up slab by slab for every batch, always to the same numbers."""
    if loaded is None:
        return None
    nbytes = ctypes.c_size_t()
    size = loaded.nvcompBatchedZstdDecompressGetTempSize
    refused = size(chunks, chunk_bytes, Options(CUDA), ctypes.byref(nbytes), chunks * chunk_bytes, _stream())
    return None if refused else nbytes.value


def decompress(
    stored: Any, starts: NDArray[np.int64], sizes: NDArray[np.int64], out: Any,
    places: NDArray[np.int64], chunk_bytes: int,
) -> tuple[NDArray[np.uint32] | None, Any]:  # fmt: skip
    """Start to decompress chunks of equal size, on the current stream.

    Parameters
    ----------
    stored : CuPy uint8 array, shape (n,)
    starts, sizes
        Of the compressed chunks within it, in bytes.
    out : CuPy uint8 array, shape (n * chunk_bytes,)
    places
        Which of the n chunks of `out` each of them is.
    chunk_bytes

    Returns
    -------
    What `right` takes, once the stream has come there, None if nvCOMP refused all; what must not be released before.
    """
    import cupy

    loaded, number = library(), len(starts)
    given = np.empty((4, number), np.uint64)
    given[0], given[3] = stored.data.ptr + starts, out.data.ptr + chunk_bytes * places
    given[1], given[2] = sizes, chunk_bytes
    arguments = cupy.asarray(given)
    compressed, nbytes, most, decompressed = (arguments[row].data.ptr for row in range(4))
    workspace = empty("nvCOMP", workspace_bytes(number, chunk_bytes) or 1, np.uint8)
    results = zeros("nvCOMP", 3 * number, np.uint32)  # sizes of 64 bits, then statuses
    statuses = results[2 * number :].data.ptr
    function = loaded.nvcompBatchedZstdDecompressAsync
    refused = function(compressed, nbytes, most, results.data.ptr, number, workspace.data.ptr, len(workspace),
                       decompressed, Options(CUDA), statuses, _stream())  # fmt: skip
    return None if refused else to_pinned(results), (stored, out, arguments, workspace, results)


def right(results: NDArray[np.uint32], chunk_bytes: int) -> NDArray[np.bool_]:
    """Whether each chunk was decompressed to exactly as many bytes as expected; damage may be missed."""
    made, statuses = np.split(results, [2 * len(results) // 3])
    return np.asarray((statuses == 0) & (made.view(np.uint64) == chunk_bytes))


def _stream() -> int:
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)
