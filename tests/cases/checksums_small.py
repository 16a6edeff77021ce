"""Small chunks with checksums behind them: right ones, and each with a wrong bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernels.common.checksums import CHECKSUMS, agree
from tests.cases.case import RANDOM, Case

STEM = "common/checksums"


def crc32c(data: bytes) -> int:
    """CRC-32C as its definition has it, bit by bit."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def fletcher32(data: bytes) -> int:
    """Fletcher's checksum of big-endian words, word by word; an odd byte has a zero behind it."""
    data += bytes(len(data) % 2)
    low = high = 0
    for place in range(0, len(data), 2):
        low = (low + (data[place] << 8 | data[place + 1])) % 65535
        high = (high + low) % 65535
    return high << 16 | low


def swapped(value: int) -> int:
    """With the bytes of each half swapped."""
    return int(np.array([value], np.uint32).view(np.uint16).byteswap().view(np.uint32)[0])


DEFINED: dict[str, Callable[[bytes], int]] = {"Crc32c": crc32c, "Fletcher32": fletcher32}


def agreeing(cp: Any, chunks: Sequence[bytes], checksum: str) -> list[int]:
    """What the kernel says of chunks that lie apart, at any address."""
    sizes = np.array([len(chunk) for chunk in chunks])
    gaps = np.arange(len(chunks)) % 3
    starts = np.cumsum(gaps + sizes) - sizes
    stored = b"".join(bytes([0xA5]) * int(gap) + chunk for gap, chunk in zip(gaps, chunks, strict=True))
    return agree(cp.asarray(np.frombuffer(stored, np.uint8)), starts, sizes, checksum).get().tolist()


def behind(data: bytes, value: int) -> bytes:
    """A chunk."""
    return data + value.to_bytes(4, "little")


def _right(checksum: str, cp: Any) -> None:
    lengths = [0, 1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000, 4099]
    data = [some for length in lengths for some in (bytes(length), b"\xff" * length, RANDOM(length).bytes(length))]
    assert agreeing(cp, [behind(one, DEFINED[checksum](one)) for one in data], checksum) == [1] * len(data)
    every = [agreeing(cp, [behind(one, DEFINED[checksum](one))], checksum) for one in data]  # nothing is behind it
    assert every == [[1]] * len(data)


def _wrong(checksum: str, cp: Any) -> None:
    """Each bit of a chunk, and chunks that have no room for a checksum."""
    for length in (1, 2, 33, 70):
        chunk = behind(data := RANDOM(length).bytes(length), DEFINED[checksum](data))
        flipped = []
        for bit in range(8 * len(chunk)):
            wrong = bytearray(chunk)
            wrong[bit // 8] ^= 1 << bit % 8
            flipped.append(bytes(wrong))
        assert agreeing(cp, [*flipped, chunk, b"", b"\0", b"\0\0", b"\0\0\0"], checksum) == [
            *[0] * len(flipped), 1, 0, 0, 0, 0,
        ]  # fmt: skip
        assert agreeing(cp, [b""], checksum) == [0]


def _old(cp: Any) -> None:
    """HDF5 1.6.2 swapped bytes; where both sums are multiples of 65535, either is stored as 0 or as that."""
    data = [RANDOM(length).bytes(length) for length in range(1, 40)]
    assert agreeing(cp, [behind(one, swapped(fletcher32(one))) for one in data], "Fletcher32") == [1] * len(data)
    ones = b"\xff" * 10
    values = [0, 0xFFFF, 0xFFFF0000, 0xFFFFFFFF, 1, 0x10000]
    assert agreeing(cp, [behind(ones, value) for value in values], "Fletcher32") == [1, 1, 1, 1, 0, 0]


def _long(cp: Any) -> None:
    """More words than the modulus of Fletcher's checksum; a lane's sum of words has more than 32 bits."""
    words, word = 32 * 65_600 + 5, 0xFFFE
    high, low = word * words * (words + 1) // 2 % 65535, word * words % 65535
    data = word.to_bytes(2, "big") * words
    assert agreeing(cp, [behind(data, high << 16 | low)], "Fletcher32") == [1]
    assert agreeing(cp, [behind(data, high << 16 | low ^ 1)], "Fletcher32") == [0]


def checksums_cases() -> Iterator[Case]:
    """Of `kernels.common.checksums`."""
    for checksum in CHECKSUMS:
        yield Case(STEM, checksum, "right", partial(_right, checksum))
        yield Case(STEM, checksum, "wrong", partial(_wrong, checksum))
    yield Case(STEM, "Fletcher32", "old", _old)
    yield Case(STEM, "Fletcher32", "long", _long)
