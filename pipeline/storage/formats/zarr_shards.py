"""The index of a Zarr shard: where the chunks within a file lie."""

from __future__ import annotations

import math

import numpy as np

from pipeline.errors import UsageError
from pipeline.storage.formats.codecs import crc32c
from pipeline.storage.formats.places import Index, Places
from pipeline.storage.formats.zarr_metadata import Array
from pipeline.storage.planned_file import stored_bytes

MISSING = 2**64 - 1


def put_entries(places: Places, number: int, array: Array, index: Index) -> None:
    """Say where the chunks of a shard are stored.

    Parameters
    ----------
    places
    number
        Of the shard among their files.
    array
    index
        Of the shard.

    Raises
    ------
    UsageError
        If the index is damaged or names bytes that the file does not have.
    """
    assert array.shard is not None
    file = places.files[number]
    counts = [outer // inner for outer, inner in zip(array.outer, array.chunks, strict=True)]
    nbytes = 16 * math.prod(counts) + 4 * array.shard.checked
    if nbytes > file.nbytes:
        raise UsageError(
            f"{file.path}: expected an index of {nbytes} bytes, got a file of {file.nbytes}; is it complete?"
        )
    (stored,) = stored_bytes((file.cut(file.nbytes - nbytes if array.shard.at_end else 0, nbytes),))
    try:
        table = np.frombuffer(crc32c(stored, 0) if array.shard.checked else stored, "<u8").reshape(*counts, 2)
    except ValueError as error:
        raise UsageError(f"{file.path}: expected the index of a shard, got {error}; is it complete?") from None
    inside = tuple(slice(at * count, (at + 1) * count) for at, count in zip(index, counts, strict=True))
    target = places.table[inside]
    starts, lengths = np.moveaxis(table[tuple(map(slice, target.shape[:-1]))], -1, 0)
    there = (starts != MISSING) | (lengths != MISSING)
    if (beyond := there & ((lengths > file.nbytes) | (starts > file.nbytes - np.minimum(lengths, file.nbytes)))).any():
        place = tuple(np.argwhere(beyond)[0])
        raise UsageError(f"{file.path}: expected a chunk within {file.nbytes} bytes, got one of {lengths[place]} at "
                         f"{starts[place]}; is it complete?")  # fmt: skip
    target[there] = np.stack([np.full_like(starts, number), starts, lengths], -1)[there].astype(np.int64)
