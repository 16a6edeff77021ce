"""Raw files: only samples, after bytes to skip if any; the user states their dtype and byte order."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, open_regular
from pipeline.storage.packed import Packing, open_packed
from pipeline.storage.pieces import Piece
from pipeline.storage.protocol import Format, Opening, Source

RAW_DTYPE = "int32"


def raw_dtype(opening: Opening) -> np.dtype[Any]:
    """Dtype of samples that have no header, with byte order."""
    return np.dtype(opening.dtype or RAW_DTYPE).newbyteorder(opening.byteorder or "little")


def open_raw(path: str, opening: Opening) -> Source:
    """The samples of a raw file, int32 and little endian unless the user says otherwise.

    Raises
    ------
    UsageError
        If it does not hold a whole number of samples, one or more.
    """
    offset = opening.offset or 0
    file, identity = open_regular(path)
    file.close()
    nbytes = identity.size - offset
    if nbytes <= 0:
        raise UsageError(f"{path}: expected samples after --offset {offset}, but the file has {identity.size} bytes")
    if (packing := Packing.of(opening)) is not None:
        return open_packed(Piece(path, offset, nbytes, identity), packing)
    dtype = raw_dtype(opening)
    if nbytes % dtype.itemsize:
        raise UsageError(
            f"{path}: expected a multiple of {dtype.itemsize} bytes for {dtype.name}, got {nbytes}, "
            f"{nbytes % dtype.itemsize} too many; check --dtype and --offset"
        )
    shape = (nbytes // dtype.itemsize,)
    return Files((SourceFile(path, offset, nbytes, identity, shape),), dtype)


RAW = Format("raw", open_raw, lambda path, head: False, remote=True)  # any file that no other format recognizes
