"""The index of a Zarr shard: where the chunks within a file lie."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from pipeline.errors import UsageError
from pipeline.storage.formats.codecs import crc32c
from pipeline.storage.formats.slabs import Index
from pipeline.storage.formats.zarr_metadata import Array
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import stored_bytes

MISSING = 2**64 - 1


def entries(file: Piece, array: Array, first: Index) -> dict[Index, Piece]:
    """Chunks of a shard that are stored.

    Parameters
    ----------
    file
        The shard.
    array
    first
        Index of its first chunk in the array.

    Raises
    ------
    UsageError
        If the index is damaged or names bytes that the file does not have.
    """
    assert array.shard is not None
    counts = [outer // inner for outer, inner in zip(array.outer, array.chunks, strict=True)]
    nbytes = 16 * math.prod(counts) + 4 * array.shard.checked
    if nbytes > file.nbytes:
        raise UsageError(
            f"{file.path}: expected an index of {nbytes} bytes, got a file of {file.nbytes}; is it complete?"
        )
    (index,) = stored_bytes((file.cut(file.nbytes - nbytes if array.shard.at_end else 0, nbytes),))
    try:
        table = np.frombuffer(crc32c(index, 0) if array.shard.checked else index, "<u8").reshape(*counts, 2)
    except ValueError as error:
        raise UsageError(f"{file.path}: expected the index of a shard, got {error}; is it complete?") from None
    stored = {}
    for place in product(*map(range, counts)):
        start, length = map(int, table[place])
        if start == MISSING and length == MISSING:
            continue
        if start + length > file.nbytes:
            raise UsageError(f"{file.path}: expected a chunk within {file.nbytes} bytes, got one of {length} at "
                             f"{start}; is it complete?")  # fmt: skip
        stored[tuple(map(sum, zip(first, place, strict=True)))] = file.cut(start, length)
    return stored
