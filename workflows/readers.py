"""Readers for options whose value is a small file: limited in size, and safe with hostile content."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from workflows.npy_header import read_header

MAX_REASON = 120  # characters of an error to show


@contextmanager
def explained(path: str, expected: str) -> Iterator[None]:
    """Turn every error into a one-line ValueError: reading a hostile .npy may raise almost anything."""
    try:
        yield
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        if len(reason) > MAX_REASON:
            reason = f"{reason[:MAX_REASON]} …"
        raise ValueError(f"{path}: expected {expected}, got {reason!r}") from None


def open_regular(path: str) -> BinaryIO:
    """An open file; ValueError for anything else, since reading a FIFO or a device may never end."""
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("no regular file")
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")


def read_npy(path: str, most: int) -> NDArray[Any]:
    """The array of a .npy file of integers or floats with at most `most` elements."""
    with open_regular(path) as file:
        try:
            shape, fortran, dtype, _ = read_header(file)
        except ValueError as error:
            raise ValueError(f"no .npy header but {error}") from None
        if dtype.kind not in "iuf":
            raise ValueError(f"neither integers nor floats but {dtype}")
        if prod(shape) > most:
            raise ValueError(f"{prod(shape)} numbers, more than {most}"[:MAX_REASON])
        nbytes = prod(shape) * dtype.itemsize
        data = file.read(nbytes + 1)
    if len(data) != nbytes:
        got = f"only {len(data)}" if len(data) < nbytes else "more"
        raise ValueError(f"{nbytes} bytes of numbers in its header, and {got} after it")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def read_text(path: str, most: int) -> NDArray[np.float64]:
    """Numbers, separated by white space or commas, of a text file with at most `most` bytes."""
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"more than {most} bytes")
    text = data.decode("utf-8")
    return np.array(text.replace(",", " ").split(), np.float64)
