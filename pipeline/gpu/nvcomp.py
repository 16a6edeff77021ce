"""Decompresses chunks in device memory by nvCOMP's batched functions in C, version 6; nothing else calls it."""

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
    """As all algorithms have them: 64 bytes, of which the first number is the backend, and zeros are defaults."""

    _fields_ = (("backend", ctypes.c_int), ("others", ctypes.c_int * 15))


_SIZE, _ADDRESS = ctypes.c_size_t, ctypes.c_void_p
SIGNATURES = {
    "nvcompBatched{}DecompressGetTempSize": (_SIZE, _SIZE, Options, _ADDRESS, _SIZE, _ADDRESS),
    "nvcompBatched{}DecompressAsync": (
        _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _SIZE, _ADDRESS, Options, _ADDRESS, _ADDRESS,
    ),
}  # fmt: skip
ALGORITHMS = ("LZ4", "Zstd", "Deflate", "Gzip")


@cache
def library() -> Any:
    """libnvcomp.so.6 of the package nvidia-libnvcomp; None if it is missing or another version."""
    try:
        from nvidia import libnvcomp

        loaded = libnvcomp.load_library()
        for algorithm in ALGORITHMS if loaded else ():
            for name, types in SIGNATURES.items():
                getattr(loaded, name.format(algorithm)).argtypes = types
    except (ImportError, OSError, AttributeError):
        return None
    return loaded


def workspace_bytes(algorithm: str, chunks: int, chunk_bytes: int) -> int | None:
    """Device memory that `decompress` needs besides its arguments; None if nvCOMP is missing or cannot decompress."""
    import cupy

    return _workspace_bytes(library(), algorithm, chunks, chunk_bytes, int(cupy.cuda.runtime.getDevice()))


@lru_cache(2**12)
def _workspace_bytes(loaded: Any, algorithm: str, chunks: int, chunk_bytes: int, device: int) -> int | None:
    """Asked once: chunks are counted up slab by slab for every batch, always to the same numbers."""
    if loaded is None:
        return None
    nbytes = ctypes.c_size_t()
    size = getattr(loaded, f"nvcompBatched{algorithm}DecompressGetTempSize")
    refused = size(chunks, chunk_bytes, Options(CUDA), ctypes.byref(nbytes), chunks * chunk_bytes, _stream())
    return None if refused else nbytes.value


class Decompressing:
    """Chunks that a device decompresses; `held` must not be released before it has ended, with the event `ended`."""

    def __init__(self, ended: Any, results: NDArray[np.uint32], chunk_bytes: int, refused: bool, held: Any) -> None:
        self.ended, self._results, self._held = ended, results, held
        self._chunk_bytes, self._refused = chunk_bytes, refused

    def get(self) -> None:
        """Wait until the device has ended."""
        self.ended.synchronize()
        self._held = None

    def right(self) -> NDArray[np.bool_]:
        """Wait, and say of each chunk whether it was decompressed to exactly as many bytes as expected.

        A damaged chunk never takes more than it may have; of LZ4 it is always noticed, of others nvCOMP does not
        promise that.
        """
        self.get()
        made, statuses = np.split(self._results, [2 * len(self._results) // 3])
        whole = made.view(np.uint64) == self._chunk_bytes
        return np.asarray((statuses == 0) & whole & (not self._refused))


def decompress(
    algorithm: str, stored: Any, starts: NDArray[np.int64], sizes: NDArray[np.int64], out: Any,
    places: NDArray[np.int64], chunk_bytes: int,
) -> Decompressing:  # fmt: skip
    """Start to decompress chunks of equal size, on the current stream.

    Parameters
    ----------
    algorithm
        One of `ALGORITHMS`.
    stored : CuPy uint8 array, shape (n,)
    starts, sizes
        Of the compressed chunks within it, in bytes. Starts are multiples of 4 for ``"Deflate"``.
    out : CuPy uint8 array, shape (n * chunk_bytes,)
    places
        Which of the n chunks of `out` each of them is.
    chunk_bytes
    """
    import cupy

    loaded, number = library(), len(starts)
    targets = out.data.ptr + chunk_bytes * places
    given = np.stack([stored.data.ptr + starts, sizes, np.full(number, chunk_bytes), targets])
    arguments = cupy.asarray(given.astype(np.uint64))
    compressed, nbytes, most, decompressed = (arguments[row].data.ptr for row in range(4))
    workspace = empty("nvCOMP", workspace_bytes(algorithm, number, chunk_bytes) or 1, np.uint8)
    results = zeros("nvCOMP", 3 * number, np.uint32)  # sizes of 64 bits, then statuses
    statuses = results[2 * number :].data.ptr
    function = getattr(loaded, f"nvcompBatched{algorithm}DecompressAsync")
    refused = function(compressed, nbytes, most, results.data.ptr, number, workspace.data.ptr, len(workspace),
                       decompressed, Options(CUDA), statuses, _stream())  # fmt: skip
    on_host = to_pinned(results)
    held = stored, out, arguments, workspace, results
    return Decompressing(cupy.cuda.get_current_stream().record(), on_host, chunk_bytes, bool(refused), held)


def _stream() -> int:
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)
