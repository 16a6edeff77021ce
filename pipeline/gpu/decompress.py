"""Decompresses chunks on a device: by kernels, or, of Zstandard, by nvCOMP where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Event
from time import monotonic, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import checksums, decompress
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
    """Device memory that `started` needs besides its arguments; None if nvCOMP cannot decompress."""
    return nvcomp.workspace_bytes(chunks, chunk_bytes) if by_nvcomp(codec) else 0


def by_nvcomp(codec: str) -> bool:
    """Whether nvCOMP is installed, and decompresses chunks of this codec."""
    return codec == ZSTD and nvcomp.library() is not None


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

    chunk_bytes, compressed = scheme.chunk_bytes, sizes - scheme.tail
    if not by_nvcomp(scheme.codec):
        good = [decompress.decompress(stored, starts, compressed, out, places, chunk_bytes, scheme.codec)]
        if scheme.checksum:
            good.append(checksums.agree(stored, starts, sizes, scheme.checksum))
        on_host, ended = [to_pinned(one) for one in good], cupy.cuda.get_current_stream().record()
        return Decompressing(ended, lambda: (np.logical_and.reduce(on_host), True), (stored, out, good))
    heads, agree = _looked_at(stored, starts, sizes, scheme.checksum)
    fits = zstd_fits(heads, compressed, chunk_bytes) & agree
    some = np.flatnonzero(fits)
    if not len(some):
        return Decompressing(cupy.cuda.get_current_stream().record(), lambda: (fits, True), None)
    results, held = nvcomp.decompress(stored, starts[some], compressed[some], out, places[some], chunk_bytes)

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


def _looked_at(stored: Any, starts: NDArray[np.int64], sizes: NDArray[np.int64], checksum: str) -> tuple[Heads, Fits]:
    """First bytes of chunks, with those of the next one behind a shorter chunk, and whether their checksums agree."""
    import cupy

    stream = _stream_to_look(cupy.cuda.get_current_stream().ptr, int(cupy.cuda.runtime.getDevice()))
    with stream:
        heads = to_pinned(heads_of(stored, starts, HEAD))
        agree = to_pinned(checksums.agree(stored, starts, sizes, checksum)) if checksum else np.ones(len(starts))
        _wait(stream.record())  # the batch before may have the device
    return heads, agree != 0


@cache
def _stream_to_look(beside: int, device: int) -> Any:
    """A stream that has nothing else to do."""
    import cupy

    return cupy.cuda.Stream(non_blocking=True)
