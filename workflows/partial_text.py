"""Partials as text in a document: int64 arrays, whose words are mostly zeros or ones, compressed."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_WORDS = 2**27  # of all partials in a document: a small text could unpack to all of the memory


def packed(words: NDArray[np.int64]) -> str:
    """Base64 of zlib of the words, little endian."""
    return base64.b64encode(zlib.compress(words.astype("<i8").tobytes(), 9)).decode()


def unpacked(text: Any, number: int) -> NDArray[np.int64]:
    """The words of a text.

    Raises
    ------
    ValueError
        If it is something else than that number of words.
    """
    if not isinstance(text, str) or not 0 <= number <= MOST_WORDS:
        raise ValueError(f"expected {number} words as text")
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 8 * number + 1)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ValueError(f"expected {number} words, got what cannot be unpacked ({error})") from None
    if len(content) != 8 * number:
        raise ValueError(f"expected {number} words, got another number")
    return np.frombuffer(content, "<i8").astype(np.int64)
