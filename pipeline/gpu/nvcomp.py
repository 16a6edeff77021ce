"""Decompresses chunks in device memory by nvCOMP's batched functions in C, version 6; nothing else calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.memory import empty, zeros

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
    """Chunks that a device decompresses."""

    def __init__(self, ended: Any, results: Any, held: Any, chunk_bytes: int, refused: bool) -> None:
        self._ended, self._results, self._held = ended, results, held
        self._chunk_bytes, self._refused = chunk_bytes, refused

    def get(self) -> None:
        """Wait until the device has ended: before, what it reads and writes must not be released."""
        # Copies to memory that is not pinned wait within the driver, where threads that read may have to wait for them.
        self._ended.synchronize()
        self._held = None

    def right(self) -> NDArray[np.bool_]:
        """Wait, and say of each chunk whether it was decompressed to exactly as many bytes as expected.

        A damaged chunk never takes more than it may have; of LZ4 it is always noticed, of others nvCOMP does not
        promise that.
        """
        self.get()
        got: NDArray[np.uint32] = self._results.get()
        sizes, statuses = np.split(got, [2 * len(got) // 3])
        right: NDArray[np.bool_] = (statuses == 0) & (sizes.view(np.uint64) == self._chunk_bytes) & (not self._refused)
        return right


def decompress(
    algorithm: str, stored: Any, starts: NDArray[np.int64], sizes: NDArray[np.int64], out: Any,
    places: NDArray[np.int64], chunk_bytes: int,
) -> Decompressing:  # fmt: skip
    """Start to decompress chunks of equal size, after what is on the current stream, which does not wait for it.

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
    lane = cupy.cuda.get_current_stream()
    beside = next(_streams_beside(lane.ptr, int(cupy.cuda.runtime.getDevice())))
    beside.wait_event(lane.record())
    function = getattr(loaded, f"nvcompBatched{algorithm}DecompressAsync")
    refused = function(compressed, nbytes, most, results.data.ptr, number, workspace.data.ptr, len(workspace),
                       decompressed, Options(CUDA), statuses, beside.ptr)  # fmt: skip
    return Decompressing(beside.record(), results, (stored, out, arguments, workspace), chunk_bytes, bool(refused))


@cache
def _streams_beside(lane: int, device: int) -> Iterator[Any]:
    """Two streams, in turn, of the default priority for what decompresses in a lane, whose stream has a higher one:
    thousands of blocks would otherwise keep the device, milliseconds each time, from what another lane counts."""
    import cupy

    return cycle([cupy.cuda.Stream(non_blocking=True) for _ in range(2)])


def _stream() -> int:
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)
