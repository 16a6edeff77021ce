"""Readers for options whose value is a small file: limited in size, and safe with hostile content."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def read_npy(path: str, most: int) -> NDArray[Any]:
    """The array of a .npy file of integers or floats with at most `most` elements."""
    # Mapped, because np.load would first allocate whatever the header claims.
    array = np.lib.format.open_memmap(path, mode="r")
    if array.dtype.kind not in "iuf":
        raise ValueError(f"no integers or floats but {array.dtype}")
    if array.size > most:
        raise ValueError(f"{array.size} numbers, more than {most}")
    return np.array(array)


def read_text(path: str, most: int) -> NDArray[np.float64]:
    """Numbers, separated by white space or commas, of a text file with at most `most` characters."""
    with open(path, encoding="utf-8") as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"more than {most} characters")
    return np.array(text.replace(",", " ").split(), np.float64)
