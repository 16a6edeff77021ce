"""Compares stored chunks with the checksums behind them, on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.checks import blocks_for, check_array
from kernels.common.constants import constant
from kernels.common.decompress import MOST_BYTES
from kernels.common.memory import empty

SOURCE = Path(__file__).with_suffix(".cu")

THREADS, LANES = constant(SOURCE, "THREADS"), constant(SOURCE, "LANES")
CHECKSUM_BYTES = constant(SOURCE, "CHECKSUM_BYTES")
CHECKSUMS = ("Crc32c", "Fletcher32")


def instance(checksum: str) -> str:
    """Of one of `CHECKSUMS`."""
    return f"agree<{checksum}>"


INSTANCES = tuple(map(instance, CHECKSUMS))


def agree(stored: Any, starts: NDArray[np.int64], sizes: NDArray[np.int64], checksum: str) -> Any:
    """Compare chunks with their checksums.

    Parameters
    ----------
    stored : CuPy uint8 array, shape (n,)
    starts, sizes : shape (chunks,)
        Of the chunks within it, in bytes, each with the four bytes of its checksum, little-endian, at its end.
    checksum
        ``"Crc32c"``: CRC-32C (RFC 3720, 12.1). ``"Fletcher32"``: that of HDF5's filter, also as HDF5 1.6.2 wrote it.

    Returns
    -------
    CuPy uint8 array, shape (chunks,)
        1 where the checksum is that of the bytes before it, 0 for chunks of fewer than four bytes. On the current
        stream.

    Raises
    ------
    TypeError, ValueError
        If the array has another dtype or number of dimensions, or has gaps; if numbers of chunks differ, a chunk lies
        outside of the array, or has more than 2^30 bytes.
    MemoryError
        If the result does not fit into device memory.
    """
    import cupy

    if checksum not in CHECKSUMS:
        raise ValueError(f"checksum: expected one of {CHECKSUMS}, got {checksum!r}")
    check_array("stored", stored, ("uint8",), 1)
    given = np.stack([starts, sizes])
    chunks = given.shape[1]
    right = empty("checksums", chunks, np.uint8)
    if not chunks:
        return right
    if sizes.max() > MOST_BYTES:
        raise ValueError(f"expected chunks of at most {MOST_BYTES} bytes, got {sizes.max()}")
    if given.min() < 0 or given.sum(0).max() > len(stored):
        raise ValueError(f"expected chunks inside of {len(stored)} bytes, got some outside")
    kernel = nvrtc.load(SOURCE, instance(checksum))
    kernel((blocks_for(chunks * LANES, THREADS),), (THREADS,), (stored, *cupy.asarray(given), right, np.int64(chunks)))
    return right
