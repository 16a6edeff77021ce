"""Decompresses chunks of LZ4, deflate and gzip on a GPU, a group of lanes for each, whatever they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.common.checks import blocks_for, check_array
from kernels.common.constants import constant
from kernels.common.memory import empty

LZ4, INFLATE = Path(__file__).with_name("lz4.cu"), Path(__file__).with_name("inflate.cu")

THREADS = constant(LZ4, "THREADS")
LANES = (8, 16, 32)  # of a chunk of LZ4
THREADS_AT_ONCE = 1024  # of a multiprocessor; with fewer threads of more chunks it decompresses faster
LANES_OF_INFLATE = constant(INFLATE, "LANES")
FRAMINGS = {"Sized": LZ4, "Blocks": LZ4, "Zlib": INFLATE, "Gzip": INFLATE}
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
        checksum of its header. The checksum of what is decompressed has to agree.

    Returns
    -------
    CuPy uint8 array, shape (chunks,)
        1 where a chunk gave exactly `chunk_bytes`; what others left in `out` means nothing. Others are also streams
        of deflate with more than 16 blocks and one per 32 bytes, which take long. On the current stream.

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
        raise ValueError(f"framing: expected one of {tuple(FRAMINGS)}, got {framing!r}")
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
    lanes = lanes_for(chunks) if FRAMINGS[framing] == LZ4 else LANES_OF_INFLATE
    kernel = nvrtc.load(FRAMINGS[framing], _instance(framing, lanes))
    grid = (blocks_for(chunks * lanes, THREADS),)
    kernel(grid, (THREADS,), (stored, *arguments, out, right, np.int64(chunks), np.uint32(chunk_bytes)))
    return right


def lanes_for(chunks: int) -> int:
    """Lanes of each of so many chunks of LZ4."""
    most = THREADS_AT_ONCE * device.limits().multiprocessors // chunks
    return max([LANES[0], *(lanes for lanes in LANES if lanes <= most)])


def _instance(framing: str, lanes: int) -> str:
    return f"lz4<{framing}, {lanes}>" if FRAMINGS[framing] == LZ4 else f"inflate<{framing}>"


INSTANCES = {
    "common/lz4": tuple(_instance(framing, lanes) for framing in ("Sized", "Blocks") for lanes in LANES),
    "common/inflate": tuple(_instance(framing, LANES_OF_INFLATE) for framing in ("Zlib", "Gzip")),
}
