"""NumPy's `.npy` files, whose header states dtype, shape and order."""

from __future__ import annotations

import math
import warnings
from typing import Any, BinaryIO

import numpy as np

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, open_regular
from pipeline.storage.protocol import Format, Opening

MAX_HEADER = 2**16  # bytes of a .npy header; a real one is 128
MAX_DIMENSIONS = 64  # NumPy's own limit


def open_npy(path: str, opening: Opening) -> Files:
    """The samples of a `.npy` file, in the order in which they are stored.

    Raises
    ------
    UsageError
        If its header cannot be read, contradicts the user or the size of the file, or has a dtype that the job does
        not accept.
    """
    file, status = open_regular(path)
    with file:
        try:
            shape, fortran, dtype = _header(file)
        except Exception as error:  # parsing a hostile header may raise almost anything
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise UsageError(f"{path}: expected a .npy header, got {reason}; is the file complete?") from None
        offset = file.tell()
    opening.check(path, dtype, shape)
    nbytes = math.prod(shape) * dtype.itemsize
    if status.st_size - offset != nbytes:
        raise UsageError(
            f"{path}: expected {nbytes} bytes of data for shape {shape} of {dtype}, got {status.st_size - offset}; "
            "the file is truncated or its header is wrong"
        )
    return Files((SourceFile(path, offset, nbytes, status.st_size, status.st_mtime_ns, shape, fortran),), dtype)


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype; the file is left at the first byte of data."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"one of the unknown version {version[0]}.{version[1]}")
    # NumPy reads as many bytes as the header claims to have before it checks, so check first.
    start = file.tell()
    length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if length > MAX_HEADER:
        raise ValueError(f"a header of {length} bytes")
    file.seek(start)
    # Version 3 differs from 2 by UTF-8 field names, and only dtypes without fields are accepted.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        # Suppress warnings about Python 2's long integers and the syntax of a broken header.
        warnings.simplefilter("ignore")
        shape, fortran, dtype = read(file, max_header_size=MAX_HEADER)
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions")
    # No file has 2**63 bytes, and Python refuses to print a product with thousands of digits.
    if not all(0 <= length < 2**63 for length in shape):
        raise ValueError(f"shape {shape}"[:100])
    return shape, fortran, dtype


NPY = Format("npy", open_npy, lambda path, head: head.startswith(np.lib.format.MAGIC_PREFIX), (".npy",))
