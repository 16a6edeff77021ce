"""nvCOMP's functions without a GPU: they decompress memory of the emulator, by numcodecs and zlib."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.gpu import nvcomp

DAMAGED, REFUSED = 12, 1000


class HostLibrary:
    """As ctypes has the library.

    Attributes
    ----------
    called
        Algorithm, and number of chunks, of each call.
    workspace
        Bytes that it asks for.
    refuses
        Whether nothing is decompressed from now on.
    """

    def __init__(self) -> None:
        self.called: list[tuple[str, int]] = []
        self.workspace, self.refuses = 24, False

    def __getattr__(self, name: str) -> Callable[..., int]:
        for algorithm in nvcomp.ALGORITHMS:
            if name == f"nvcompBatched{algorithm}DecompressGetTempSize":
                return self._size
            if name == f"nvcompBatched{algorithm}DecompressAsync":
                return lambda *arguments: self._decompress(algorithm, *arguments)
        raise AttributeError(name)

    def _size(self, chunks: int, most: int, options: Any, nbytes: Any, total: int, stream: int) -> int:
        assert options.backend == nvcomp.CUDA and total == chunks * most > 0
        nbytes._obj.value = self.workspace
        return 0

    def _decompress(
        self, algorithm: str, stored: int, sizes: int, most: int, made: int, chunks: int, workspace: int, nbytes: int,
        targets: int, options: Any, statuses: int, stream: int,
    ) -> int:  # fmt: skip
        assert options.backend == nvcomp.CUDA and nbytes >= self.workspace and not any(options.others)
        self.called.append((algorithm, chunks))
        if self.refuses:
            return REFUSED
        given = [_numbers(address, ctypes.c_uint64, chunks).tolist() for address in (stored, sizes, most, targets)]
        for number, (source, size, room, target) in enumerate(zip(*given, strict=True)):
            assert algorithm != "Deflate" or source % 4 == 0
            try:
                data = bytes(_decoded(algorithm, ctypes.string_at(source, size), room))
            except (ValueError, RuntimeError, zlib.error):
                _numbers(statuses, ctypes.c_uint32, chunks)[number] = DAMAGED
                continue
            ctypes.memmove(target, data, len(data))
            _numbers(made, ctypes.c_uint64, chunks)[number] = len(data)
        return 0


def _numbers(address: int, kind: Any, count: int) -> NDArray[Any]:
    return np.ctypeslib.as_array((kind * count).from_address(address))


def _decoded(algorithm: str, data: bytes, room: int) -> Any:
    from numcodecs import lz4, zstd

    if algorithm == "LZ4":
        return lz4.decompress(room.to_bytes(4, "little") + data)
    if algorithm == "Zstd":
        return zstd.decompress(data, np.empty(room, np.uint8))
    inflating = zlib.decompressobj(31 if algorithm == "Gzip" else -15)
    inflated = inflating.decompress(data, room)
    if not inflating.eof and inflating.decompress(inflating.unconsumed_tail, 1):
        raise ValueError("too long")
    return inflated
