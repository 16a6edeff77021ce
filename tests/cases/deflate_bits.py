"""Streams in the DEFLATE format, bit by bit: also such as no library writes."""

from __future__ import annotations

from typing import Any

import numpy as np


class Writer:
    """A stream, bit by bit."""

    def __init__(self) -> None:
        self.bits: list[int] = []

    def put(self, value: int, count: int) -> Writer:
        """So many bits of a number, the least significant one first."""
        self.bits += [value >> k & 1 for k in range(count)]
        return self

    def code(self, value: int, count: int) -> Writer:
        """A code: its most significant bit first."""
        self.bits += [value >> k & 1 for k in reversed(range(count))]
        return self

    def to_bytes(self) -> bytes:
        """The stream, filled up with zeros."""
        return np.packbits(self.bits, bitorder="little").tobytes()


ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)


def codes_of(lengths: list[int]) -> dict[int, tuple[int, int]]:
    """Canonical codes by symbol (RFC 1951, 3.2.2): value and length."""
    codes, value = {}, 0
    for length in range(1, 16):
        for number, one in enumerate(lengths):
            if one == length:
                codes[number] = value, length
                value += 1
        value <<= 1
    return codes


def with_codes(literals: list[int], distances: list[int], symbols: list[Any], of_lengths: int = 19) -> bytes:
    """A last block of symbols, or pairs of (symbol, further bits, number of them), behind codes of these lengths.

    A symbol of 1000 or more is one of a distance. Lengths are written one by one, with a code of four bits each.
    """
    made = Writer().put(1, 1).put(2, 2).put(len(literals) - 257, 5).put(len(distances) - 1, 5).put(of_lengths - 4, 4)
    for number in ORDER[:of_lengths]:
        made.put(4 if number < 16 else 0, 3)
    for length in (*literals, *distances):
        made.code(length, 4)
    of_literals, of_distances = codes_of(literals), codes_of(distances)
    for symbol in symbols:
        number, more, count = symbol if isinstance(symbol, tuple) else (symbol, 0, 0)
        made.code(*(of_distances[number - 1000] if number >= 1000 else of_literals[number])).put(more, count)
    return made.to_bytes()


def flat(symbols: dict[int, int], count: int) -> list[int]:
    """Lengths of `count` codes: those that are said, and no code for others."""
    return [symbols.get(number, 0) for number in range(count)]
