"""NumPy's `.npy` files, whose header states dtype, shape and order."""

from __future__ import annotations

import math

import numpy as np

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, open_regular
from pipeline.storage.protocol import MOST_SHOWN, Format, Opening
from workflows.npy_header import read_header


def open_npy(path: str, opening: Opening) -> Files:
    """The samples of a `.npy` file, in the order in which they are stored.

    Raises
    ------
    UsageError
        If its header cannot be read, contradicts the user or the size of the file, or has a dtype that the job does
        not accept.
    """
    file, identity = open_regular(path)
    with file:
        try:
            shape, fortran, dtype, offset = read_header(file)
        except (ValueError, OSError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{path}: expected a .npy header, got {reason}; is the file complete?") from None
    dtype = opening.counted(dtype)
    opening.check(path, dtype, shape)
    nbytes = math.prod(shape) * dtype.itemsize
    if identity.size - offset != nbytes:
        what = f"shape {shape} of {dtype}"[:MOST_SHOWN]
        raise UsageError(f"{path}: expected {nbytes} bytes of data for {what}, got {identity.size - offset}; the file "
                         "is truncated or its header is wrong")  # fmt: skip
    return Files((SourceFile(path, offset, nbytes, identity, shape, fortran),), dtype)


NPY = Format("npy", open_npy, lambda path, head: head.startswith(np.lib.format.MAGIC_PREFIX), (".npy",),
             remote=True)  # fmt: skip
