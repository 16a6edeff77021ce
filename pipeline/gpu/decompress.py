"""Starts to decompress chunks on a device: Zstandard by nvCOMP, which gets only what it can take, others by kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Event
from time import monotonic, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import decompress
from kernels.common.decode import heads_of
from kernels.common.memory import to_pinned
from pipeline.errors import PipelineError
from pipeline.gpu import nvcomp
from pipeline.gpu.slabs import HEAD, ZSTD, Fits, Heads, Scheme, zstd_fits
from pipeline.process.last_words import abandon

LIMIT_SECONDS = 60.0  # of nvCOMP for a batch, which takes it milliseconds: damaged chunks can keep it busy for ever
LOOK_SECONDS = 0.00005  # between two looks whether it has ended


class Decompressing:
    """Chunks that a device decompresses.

    Parameters
    ----------
    ended
        A CUDA event.
    limited
        Whether it may never come.
    right
        After it: of each chunk, whether it was decompressed to exactly as many bytes as expected; and whether no other
        memory can have been changed.
    held
        Must not be released before.
    """

    def __init__(self, ended: Any, right: Callable[[], tuple[Fits, bool]], held: Any, limited: bool = False) -> None:
        self.ended, self._right, self._held, self._limited = ended, right, held, limited

    def get(self) -> None:
        """Wait until the device has ended; PipelineError if it does not, RuntimeError if it is lost."""
        if self._limited:
            _wait(self.ended)
        self.ended.synchronize()
        self._held = None

    def right(self) -> tuple[Fits, bool]:
        """Wait, and say what `right` says."""
        self.get()
        return self._right()


def workspace_bytes(codec: str, chunks: int, chunk_bytes: int) -> int | None:
    """Device memory that `started` needs besides its arguments; None if nvCOMP is missing or cannot decompress."""
    return nvcomp.workspace_bytes(chunks, chunk_bytes) if codec == ZSTD else 0


def started(
    scheme: Scheme, stored: Any, starts: NDArray[np.int64], sizes: NDArray[np.int64], out: Any,
    places: NDArray[np.int64],
) -> Decompressing:  # fmt: skip
    """Start to decompress chunks on the current stream.

    Parameters
    ----------
    scheme
    stored : CuPy uint8 array, shape (n,)
        Whose bytes have arrived.
    starts, sizes
        Of the chunks within it, with their checksums.
    out : CuPy uint8 array, shape (m * scheme.chunk_bytes,)
    places
        Which of the m chunks of `out` each of them is.
    """
    import cupy

    chunk_bytes, sizes = scheme.chunk_bytes, sizes - scheme.tail
    if scheme.codec != ZSTD:
        good = decompress.decompress(stored, starts, sizes, out, places, chunk_bytes, scheme.codec)
        on_host = to_pinned(good)
        return Decompressing(cupy.cuda.get_current_stream().record(), lambda: (on_host != 0, True), (stored, out, good))
    fits = zstd_fits(_heads(stored, starts), sizes, chunk_bytes)
    some = np.flatnonzero(fits)
    if not len(some):
        return Decompressing(cupy.cuda.get_current_stream().record(), lambda: (fits, True), None)
    results, held = nvcomp.decompress(stored, starts[some], sizes[some], out, places[some], chunk_bytes)

    def right() -> tuple[Fits, bool]:
        if results is None:
            return np.zeros(len(starts), bool), True
        of_some = nvcomp.right(results, chunk_bytes)
        of_all = fits.copy()
        of_all[some] = of_some
        return of_all, bool(of_some.all())

    return Decompressing(cupy.cuda.get_current_stream().record(), right, held, limited=True)


_endless = Event()  # nvCOMP has not ended in this process: nothing else there is waited for


def _wait(ended: Any) -> None:
    """Wait for an event; PipelineError if nvCOMP keeps the device from it for too long."""
    began = monotonic()
    while not ended.done:
        if _endless.is_set() or monotonic() - began > LIMIT_SECONDS:
            _endless.set()
            abandon()  # freeing memory would wait for it, too
            raise PipelineError(f"nvCOMP: expected chunks to be decompressed within {LIMIT_SECONDS:.0f} s, got no end; "
                                "pass --device cpu, which names a damaged chunk")  # fmt: skip
        sleep(LOOK_SECONDS)


def _heads(stored: Any, starts: NDArray[np.int64]) -> Heads:
    """First bytes of chunks; those of a chunk that has less may be others'."""
    import cupy

    stream = _stream_for_heads(cupy.cuda.get_current_stream().ptr, int(cupy.cuda.runtime.getDevice()))
    with stream:
        on_host = to_pinned(heads_of(stored, starts, HEAD))
        _wait(stream.record())  # the batch before may have the device
    return on_host


@cache
def _stream_for_heads(beside: int, device: int) -> Any:
    """A stream that has nothing else to do."""
    import cupy

    return cupy.cuda.Stream(non_blocking=True)
