"""Samples of bytes as they are stored: packed ones are unpacked, shuffled ones sorted, on a GPU."""

from __future__ import annotations

from functools import partial
from itertools import product
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.checks import blocks_for, check_array
from kernels.common.constants import constant
from kernels.common.dtypes import UINT_OF_SIZE
from kernels.common.memory import empty

SOURCE = Path(__file__).with_suffix(".cu")

THREADS, PACK = constant(SOURCE, "THREADS"), constant(SOURCE, "PACK")
PACKED_BITS = (10, 12, 14)
WORD = 4  # bytes of a load
SHUFFLED = (2, 4, 8)  # bytes of an item
_empty = partial(empty, "stored samples")


def unpack(stored: Any, bits: int, signed: bool, big: bool) -> Any:
    """Samples that were packed without gaps between them, as 16 bits each.

    Parameters
    ----------
    stored : CuPy uint8 array, shape (n,)
        Whole groups: 4 samples of 10 or 14 bits, or 2 of 12, take a whole number of bytes. Begins at a multiple of 4.
    bits
        Of a sample: 10, 12 or 14.
    signed
        Whether samples are two's complements.
    big
        Bit order: whether a sample begins with its most significant bit, at the most significant one of a byte.

    Returns
    -------
    CuPy int16 or uint16 array, shape (n * 8 / bits,)
        On the current stream.

    Raises
    ------
    TypeError, ValueError
        If the array has another dtype, number of dimensions or address, has gaps, or holds parts of groups.
    MemoryError
        If the result does not fit into device memory.
    """
    if bits not in PACKED_BITS:
        raise ValueError(f"bits: expected one of {PACKED_BITS}, got {bits}")
    check_array("stored", stored, ("uint8",), 1)
    group = bits // gcd(bits, 8)  # bytes
    if len(stored) % group:
        raise ValueError(f"stored: expected a multiple of {group} bytes for {bits} bits, got {len(stored)}")
    if stored.data.ptr % WORD:
        raise ValueError(f"stored: expected an address that is a multiple of {WORD}, got {stored.data.ptr:#x}")
    n = len(stored) * 8 // bits
    samples = _empty(n, np.int16 if signed else np.uint16)
    if n:
        kernel = nvrtc.load(SOURCE, _unpack(bits, big, signed))
        kernel((blocks_for(n // PACK + n % PACK, THREADS),), (THREADS,), (stored, samples, np.int64(n)))
    return samples


def _unpack(bits: int, big: bool, signed: bool) -> str:
    return f"unpack<{bits}, {str(big).lower()}, {'i16' if signed else 'u16'}>"


def unshuffle(shuffled: Any, itemsize: int, chunk_bytes: int) -> Any:
    """Bytes in their order within items, of chunks in which they were sorted by their place in an item.

    Parameters
    ----------
    shuffled : CuPy uint8 array, shape (n,)
        Chunks of equal size, one after another.
    itemsize
        Bytes of an item: 2, 4 or 8.
    chunk_bytes
        Whole items.

    Returns
    -------
    CuPy uint8 array, shape (n,)
        On the current stream.

    Raises
    ------
    TypeError, ValueError
        If the array has another dtype or number of dimensions, has gaps, or holds parts of chunks or items.
    MemoryError
        If the result does not fit into device memory.
    """
    if itemsize not in SHUFFLED:
        raise ValueError(f"itemsize: expected one of {SHUFFLED}, got {itemsize}")
    check_array("shuffled", shuffled, ("uint8",), 1)
    if chunk_bytes < 1 or chunk_bytes % itemsize or len(shuffled) % chunk_bytes:
        raise ValueError(f"shuffled: expected chunks of whole items of {itemsize} bytes, got {len(shuffled)} bytes in "
                         f"chunks of {chunk_bytes}")  # fmt: skip
    out = _empty(len(shuffled) // itemsize, f"uint{8 * itemsize}")
    if n := len(out):
        kernel = nvrtc.load(SOURCE, _unshuffle(itemsize))
        sizes = np.int64(n), np.int64(chunk_bytes // itemsize)
        kernel((blocks_for(n, THREADS),), (THREADS,), (shuffled, out, *sizes))
    return out.view(np.uint8)


def _unshuffle(itemsize: int) -> str:
    return f"unshuffle<{UINT_OF_SIZE[itemsize]}>"


INSTANCES = (
    *(_unpack(*choice) for choice in product(PACKED_BITS, (False, True), (False, True))),
    *map(_unshuffle, SHUFFLED),
)
