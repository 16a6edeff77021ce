"""Decompresses chunks of LZ4, deflate, gzip and Zstandard on a GPU, a group of lanes for each, whatever they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import inflate, lz4, nvrtc, zstd
from kernels.common.checks import blocks_for, check_array
from kernels.common.memory import empty

FRAMINGS = (*lz4.FRAMINGS, *inflate.FRAMINGS, *zstd.FRAMINGS)
MOST_BYTES = 2**30  # of a chunk, stored or decompressed: places in a stream have 32 bits, also behind its end


def decompress(
    stored: Any, starts: NDArray[np.int64], sizes: NDArray[np.int64], out: Any, places: NDArray[np.int64],
    chunk_bytes: int, framing: str,
) -> Any:  # fmt: skip
    """Decompress chunks of equal size; nothing is read or written outside of them, whatever they hold.

    Parameters
    ----------
    stored : CuPy uint8 array, shape (n,)
    starts, sizes : shape (chunks,)
        Of the chunks within it, in bytes.
    out : CuPy uint8 array, shape (m * chunk_bytes,)
        On the current stream.
    places : shape (chunks,)
        Which of the m chunks of `out` each of them is; no two are the same.
    chunk_bytes
        Of a decompressed chunk.
    framing
        ``"Sized"``: LZ4 behind its decompressed size, 4 bytes, little-endian, as numcodecs writes it. ``"Blocks"``: LZ4
        as HDF5's filter writes it. ``"Zlib"``: RFC 1950. ``"Gzip"``: a single member of RFC 1952, without a
        checksum of its header. ``"Zstd"``: a single frame of RFC 8878, without a dictionary. The checksum of what is
        decompressed has to agree.

    Returns
    -------
    CuPy uint8 array, shape (chunks,)
        1 where a chunk gave exactly `chunk_bytes`; what others left in `out` means nothing. Others are also streams
        of deflate with more than 16 blocks and one per 32 bytes, and frames of Zstandard and ``"Blocks"`` with more
        than 16 and one per 256 bytes, which take long. On the current stream.

    Raises
    ------
    TypeError, ValueError
        If an array has another dtype or number of dimensions, or has gaps; if numbers of chunks differ, a chunk lies
        outside of its array, or has more than 2^30 bytes.
    MemoryError
        If the result does not fit into device memory.
    """
    import cupy

    if framing not in FRAMINGS:
        raise ValueError(f"framing: expected one of {FRAMINGS}, got {framing!r}")
    check_array("stored", stored, ("uint8",), 1)
    check_array("out", out, ("uint8",), 1)
    given = np.stack([starts, sizes, places])
    chunks = given.shape[1]
    right = empty("decompress", chunks, np.uint8)
    if not chunks:
        return right
    if not 0 < chunk_bytes <= MOST_BYTES or sizes.max() > MOST_BYTES:
        raise ValueError(f"expected chunks of 1 to {MOST_BYTES} bytes, got {chunk_bytes}, stored in {sizes.max()}")
    if given.min() < 0 or (starts + sizes).max() > len(stored) or (places.max() + 1) * chunk_bytes > len(out):
        raise ValueError(f"expected chunks inside of {len(stored)} and {len(out)} bytes, got some outside")
    arguments = cupy.asarray(given)
    if framing in lz4.FRAMINGS:
        lanes, threads = lz4.lanes_for(chunks), lz4.THREADS
        kernel = nvrtc.load(lz4.SOURCE, lz4.instance(framing, lanes))
    elif framing in zstd.FRAMINGS:
        lanes, threads = zstd.lanes_for(chunks), zstd.THREADS
        kernel = nvrtc.load(zstd.SOURCE, zstd.instance(lanes))
    else:
        lanes, threads = inflate.LANES, inflate.THREADS
        kernel = nvrtc.load(inflate.SOURCE, inflate.instance(framing))
    grid = (blocks_for(chunks * lanes, threads),)
    kernel(grid, (threads,), (stored, *arguments, out, right, np.int64(chunks), np.uint32(chunk_bytes)))
    return right
