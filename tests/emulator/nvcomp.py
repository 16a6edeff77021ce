"""nvCOMP's functions without a GPU: they decompress memory of the emulator, by numcodecs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.gpu import nvcomp
from pipeline.storage.formats.codecs import zstd_size

DAMAGED, REFUSED = 12, 1000


class HostLibrary:
    """As ctypes has the library.

    Attributes
    ----------
    called
        Number of chunks of each call.
    workspace
        Bytes that it asks for.
    refuses
        Whether nothing is decompressed from now on.
    """

    def __init__(self) -> None:
        self.called: list[int] = []
        self.workspace, self.refuses = 24, False

    def __getattr__(self, name: str) -> Callable[..., int]:
        made = {"GetTempSize": self._size, "Async": self._decompress}
        try:
            return made[name.removeprefix("nvcompBatchedZstdDecompress")]
        except KeyError:
            raise AttributeError(name) from None

    def _size(self, chunks: int, most: int, options: Any, nbytes: Any, total: int, stream: int) -> int:
        assert options.backend == nvcomp.CUDA and total == chunks * most > 0
        nbytes._obj.value = self.workspace
        return 0

    def _decompress(
        self, stored: int, sizes: int, most: int, made: int, chunks: int, workspace: int, nbytes: int,
        targets: int, options: Any, statuses: int, stream: int,
    ) -> int:  # fmt: skip
        assert options.backend == nvcomp.CUDA and nbytes >= self.workspace and not any(options.others)
        self.called.append(chunks)
        if self.refuses:
            return REFUSED
        from numcodecs import zstd

        given = [_numbers(address, ctypes.c_uint64, chunks).tolist() for address in (stored, sizes, most, targets)]
        for number, (source, size, room, target) in enumerate(zip(*given, strict=True)):
            stored = ctypes.string_at(source, size)
            assert zstd_size(stored[:18]) == room, "what is no whole frame, nvCOMP may decompress to anywhere"
            try:
                data = bytes(zstd.decompress(stored, np.empty(room, np.uint8)))
            except (ValueError, RuntimeError):
                _numbers(statuses, ctypes.c_uint32, chunks)[number] = DAMAGED
                continue
            ctypes.memmove(target, data, len(data))
            _numbers(made, ctypes.c_uint64, chunks)[number] = len(data)
        return 0


def _numbers(address: int, kind: Any, count: int) -> NDArray[Any]:
    return np.ctypeslib.as_array((kind * count).from_address(address))
