"""Decodes many chunks in one call, by the codecs of numcodecs, called from C++ (`decode_many.cpp`).

A call of Python for each chunk takes as long as decoding 16 KiB of LZ4, and holds the GIL, which other threads and the
device then wait for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from pipeline.storage.formats.codecs import Step, Unshuffle, blosc, lz4, numcodecs_library, zstd
from pipeline.storage.formats.hdf5_filters import lz4_blocks, zstd_frame

SOURCE = Path(__file__).with_suffix(".cpp")

# Number of the codec in decode_many.cpp, module of numcodecs, and its functions that decode, make and free a context.
_LZ4, _ZSTD = ("LZ4_decompress_safe",), ("ZSTD_decompressDCtx", "ZSTD_createDCtx", "ZSTD_freeDCtx")
CODECS: dict[Step, tuple[int, str, tuple[str, ...]]] = {
    lz4: (0, "lz4", _LZ4), lz4_blocks: (1, "lz4", _LZ4), zstd: (2, "zstd", _ZSTD), zstd_frame: (2, "zstd", _ZSTD),
    blosc: (3, "blosc", ("blosc_decompress_ctx",)),
}  # fmt: skip
CHUNK = np.dtype([("first", np.int64), ("nbytes", np.int64), ("place", np.int64)])

# Stored bytes, their chunks as `CHUNK` has them, output, bytes of a decoded chunk -> numbers of those that failed.
Many = Callable[[NDArray[np.uint8], NDArray[Any], NDArray[np.uint8], int], NDArray[np.int64]]


def many_of(steps: tuple[Step, ...]) -> Many | None:
    """A function that decodes chunks through these steps; None if only Python can."""
    codec = CODECS.get(steps[0]) if steps else None
    unshuffled = steps[1].itemsize if len(steps) == 2 and isinstance(steps[1], Unshuffle) else 0
    if codec is None or len(steps) > 1 + bool(unshuffled):
        return None
    library, functions = cxx.library(SOURCE), _functions(*codec[1:])
    if library is None or functions is None:
        return None
    decode = library.decode_many
    address, size = ctypes.c_void_p, ctypes.c_int64
    decode.argtypes = (ctypes.c_int, address, size, address, address, ctypes.c_size_t, address, size, address)
    decode.restype = ctypes.c_size_t

    def many(
        stored: NDArray[np.uint8], chunks: NDArray[Any], out: NDArray[np.uint8], nbytes: int
    ) -> NDArray[np.int64]:  # fmt: skip
        if unshuffled and nbytes % unshuffled:
            return np.arange(len(chunks))
        assert (chunks["first"] + chunks["nbytes"] <= len(stored)).all() and (
            chunks["place"] + nbytes <= len(out)
        ).all()
        given, failed = np.ascontiguousarray(chunks), np.empty(len(chunks), np.int64)
        where = stored.ctypes.data, given.ctypes.data, len(given), out.ctypes.data, nbytes, failed.ctypes.data
        return failed[: decode(codec[0], functions, unshuffled, *where)]

    return many


@cache
def _functions(module: str, names: tuple[str, ...]) -> Any:
    """Addresses of functions in the library inside a module of numcodecs."""
    try:
        library = numcodecs_library(module)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in names]
    except (ImportError, OSError, AttributeError):
        return None
    return (ctypes.c_void_p * 3)(*(one.value for one in found))
