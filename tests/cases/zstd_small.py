"""Small chunks of Zstandard: what the library makes at every level, what else is permitted, and what is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from kernels.common.zstd import LANES
from tests.cases.case import RANDOM, Case
from tests.cases.inflate_small import broken, skewed
from tests.cases.lz4_small import decompressed_by, one_by_one, written
from tests.cases.zstd_bits import Code, block, coded, described, forward, frame, literals, same, sequences, weighed

STEM = "common/zstd"
LEVELS = (-5, 1, 3, 9, 19)


def compressed(data: bytes, level: int = 3, checksum: bool = False) -> bytes:
    """A frame of the library's."""
    from numcodecs.zstd import compress

    return bytes(compress(data, level, checksum))


def by_library(chunk: bytes, room: int) -> bytes | None:
    """What the library makes of a chunk, if that is `room` bytes."""
    from numcodecs.zstd import decompress

    try:
        data = bytes(decompress(chunk))
    except (RuntimeError, ValueError):
        return None
    return data if len(data) == room else None


def kinds(room: int) -> list[bytes]:
    """Bytes of all kinds: repeated, skewed, few, in order, of samples."""
    random = RANDOM(room)
    few = np.where(random.random(room) < 0.2, random.integers(0, 256, room), 7).astype(np.uint8)
    bell = random.normal(0, 9, room).astype(np.int8)
    held = np.repeat(random.integers(0, 999, room, np.int16), 5)[:room]
    return [*written(room), skewed(room) if room > 1 else b"a", few.tobytes(), bell.tobytes(), held.tobytes()[:room]]


def _of_library(room: int, lanes: int, cp: Any) -> None:
    data = kinds(room)
    for level in LEVELS:
        for checksum in (False, True):
            chunks = [compressed(one, level, checksum) for one in data]
            assert decompressed_by(cp, chunks, room, "Zstd", lanes) == data


def _many(lanes: int, cp: Any) -> None:
    """Several blocks, which have codes and distances in common."""
    random, room = RANDOM(0), 300_001
    words = [random.bytes(int(random.integers(3, 40))) for _ in range(300)]
    text = b"".join(words[k] for k in random.integers(0, 300, 20_000))[:room]
    bell = random.normal(0, 5, room).astype(np.int8).tobytes()
    data = [text, bell, (bell[: room // 3] + text)[:room]]
    for level in (1, 9):
        chunks = [compressed(one, level, level == 1) for one in data]
        assert decompressed_by(cp, chunks, room, "Zstd", lanes) == data


def _broken(room: int, lanes: int, cp: Any) -> None:
    """What the library refuses is refused, and what it takes gives the same or is left to it."""
    every = [
        wrong for seed, data in enumerate(kinds(room)) for level in (1, 19)
        for wrong in broken(compressed(data, level, level == 1), seed)
    ]  # fmt: skip
    got = decompressed_by(cp, every, room, "Zstd", lanes)
    expected = [by_library(chunk, room) for chunk in every]
    assert all(ours in (None, theirs) for ours, theirs in zip(got, expected, strict=True))
    assert sum(ours is None and theirs is not None for ours, theirs in zip(got, expected, strict=True)) < len(every) / 9


SKEWED = [1, 1, 2, 3, 4, 5, 6, 7, 8]  # weights of bytes from 0 on; the last one has a code of one bit
DATA = bytes(k for k in range(9) for _ in range(3)) + bytes([8] * 40)
DIRECT, BY_CODE = weighed(SKEWED), weighed(SKEWED, (5, (0, 6, 4, 4, 4, 4, 4, 6)))
SOME = literals(b"abcdefghij" * 3)
SEVERAL = [
    (9, 4 + 3, 3),
    (2, 1, 4),
    (0, 1, 3),
    (1, 2, 5),
    (0, 2, 3),
    (1, 3, 4),
    (1, 9, 3),
    (0, 3, 3),
    (2, 9, 6),
    (1, 7, 3),
    (0, 1, 9),
]
MADE = 30 + sum(length for _, _, length in SEVERAL)
TURNS = [(60, 40 + 3, 3), (1, 20 + 3, 3), (1, 10 + 3, 3), *[(1, k, 3) for k in (2, 3, 1, 3, 2, 2, 3)],
         *[(0, k, 3) for k in (1, 2, 1, 3, 2)]]  # fmt: skip
EVEN = 5, (0, 16, 16)  # weights 1 and 2 are as frequent
NEAR = Code(2, 5, (16, 8, 4, 4))
FIRST = Code(2, 6, (30, 16, 8, *[0] * 6, 10))
SPREAD = Code(2, 9, (400, 100, 5, 5, 0, 0, 1, 0, 0, 0, -1))
LONG = [(31, 7, 34), (16, 5, 35), (23, 6, 50), (200, 7, 300), (66_000, 303, 50_000), (0, 60_003, 40)]
OF_LONG = 70_300 + sum(length for _, _, length in LONG)


def one(body: bytes, room: int, **more: Any) -> tuple[bytes, int]:
    """A frame of one compressed block."""
    return frame(block(body), room, **more), room


@cache
def permitted() -> dict[str, tuple[bytes, int]]:
    """Frames that the library takes, and how many bytes they give."""
    whole, many = literals(b"abcdefgh") + sequences([(8, 4 + 3, 25)]), len(DATA)
    heads = [(kind, form, number) for kind in (0, 1) for form, number in ((0, 2), (0, 3), (1, 2), (3, 2))]
    return {
        "one match": one(whole, 33),
        "no size": (frame(block(whole), None, window=0), 33),
        "a window": one(whole, 33, window=9, size=4),
        "size of 2 bytes": (frame(block(b"a", 1, number=300), 300), 300),
        "size of 8 bytes": one(whole, 33, size=8),
        "a bit without a meaning": one(whole, 33, flags=16),
        "bytes as they are": (frame(block(b"abc", 0, False) + block(b"", 0, False) + block(b"d", 0), 4), 4),
        "one byte": (frame(block(b"a", 1, False, 5) + block(b"b", 1, number=200), 205), 205),
        "no sequences": one(literals(b"abc" * 3) + b"\0", 9, window=0, size=4),
        "literals of one byte": one(literals(b"a" * 40, 1) + sequences([(20, 4, 9)]), 49),
        "many of one byte": one(literals(b"b" * 5000, 1) + sequences([(4000, 1, 50)]), 5050),
        "heads of literals": (frame(b"".join(
            block(literals(b"a" * number, kind, form) + b"\0", 2, (kind, form) == (1, 3))
            for kind, form, number in heads), 18, 0, 4), 18),
        "weights": one(coded(DATA, SKEWED, DIRECT) + b"\0", many),
        "weights in a code": one(coded(DATA, SKEWED, BY_CODE) + b"\0", many),
        "weights in two states": one(coded(b"\0\1\2" * 9, [1, 1, 2], weighed([1, 1, 2], EVEN)) + b"\0", 27, window=0),
        "two weights": one(coded(b"\0\1\1\0" * 3, [1, 1], weighed([1, 1])) + b"\0", 12),
        "four streams": one(coded(DATA, SKEWED, DIRECT, 1) + b"\0", many),
        "longer heads": (frame(b"".join(
            block(coded(DATA, SKEWED, DIRECT, form) + b"\0", 2, form == 3) for form in (2, 3)), 2 * many), 2 * many),
        "weights of the block before": (frame(
            block(coded(DATA, SKEWED, BY_CODE, 1) + b"\0", 2, False) +
            block(coded(DATA[::-1], SKEWED, None) + b"\0"), 2 * many), 2 * many),
        "distances": one(SOME + sequences(SEVERAL), MADE),
        "codes of one symbol": one(literals(b"abc" * 9) + sequences(
            [(3, 5, 4), (3, 6, 4), (3, 7, 4)], [same(3), same(2), same(1)]), 39),
        "codes of one symbol behind coded literals": one(coded(DATA[::-1], SKEWED, DIRECT, 1) + sequences(
            [(3, 5, 4), (3, 6, 4), (3, 7, 4)], [same(3), same(2), same(1)]), many + 12),
        "codes of their own, then the same": (frame(
            block(SOME + sequences(SEVERAL, [FIRST, NEAR, SPREAD]), 2, False) +
            block(SOME + sequences(SEVERAL, [code._replace(mode=3) for code in (FIRST, NEAR, SPREAD)])), 2 * MADE),
            2 * MADE),
        "the last distances": one(literals(bytes(range(200))) + sequences(TURNS), 200 + 3 * len(TURNS)),
        "no literals in a code": (frame(
            block(coded(b"", SKEWED, DIRECT) + b"\0", 2, False) + block(b"abc", 0), 3, 0, 4), 3),
        "long lengths": one(literals(RANDOM(1).bytes(70_300)) + sequences(LONG), OF_LONG),
        "128 sequences": one(literals(b"a" * 128, 1) + sequences([(1, 4, 3)] * 128, [same(1), same(2), same(0)]), 512),
        "32,513 sequences": one(literals(b"a", 1) + sequences(
            [(1, 4, 3), *[(0, 4, 3)] * 32_512], [Code(2, 5, (31, 1)), same(2), same(0)]), 1 + 3 * 32_513),
    }  # fmt: skip


def _permitted(lanes: int, cp: Any) -> None:
    for name, (chunk, room) in permitted().items():
        expected = by_library(chunk, room)
        assert expected is not None, name
        assert one_by_one(cp, [chunk], room, "Zstd", lanes) == [expected], name


# What the library takes against the format: longer blocks and codes, states that no bits say.
LAX = {"a code of 12 bits", "a longer block", "more from a block", "short weights"}


@cache
def refused() -> dict[str, tuple[bytes, int]]:
    """Frames that are wrong, or that are left to the library, and how many bytes they would give."""
    whole, many = literals(b"abcdefgh") + sequences([(8, 4 + 3, 25)]), len(DATA)
    good, of_code = frame(block(whole), 33), coded(DATA, SKEWED, DIRECT, 1)
    none, of_weights = literals(b"abc" * 4), forward(described(EVEN[1], EVEN[0]))
    short = bytes([len(of_weights) + 1]) + of_weights + b"\1"
    stays = forward(described((32,), 5)) + b"\0\4"  # no bits follow its only state, of which two are read first

    def tree(weights: list[int], data: bytes = b"\0\1" * 20) -> tuple[bytes, int]:
        return one(coded(data, SKEWED, weighed(weights)) + b"\0", len(data), window=0)

    def cut(stored: int, body: bytes, form: int = 0) -> bytes:
        """Literals that end within what they need."""
        return (2 | form << 2 | many << 4 | stored << 14).to_bytes(3, "little") + body

    def coded_by(code: Code, place: int) -> tuple[bytes, int]:
        return one(none + sequences([(9, 4, 3)], [code if k == place else Code() for k in range(3)]), 15, window=0)

    def described_as(mode: int, *bytes_: int) -> tuple[bytes, int]:
        return one(none + bytes([1, mode, *bytes_]), 15, window=0)

    return {
        "empty": (b"", 33), "cut": (good[:5], 33), "magic": (b"\x29" + good[1:], 33),
        "a dictionary": one(whole, 33, flags=1), "a bit for later": one(whole, 33, flags=8),
        "a checksum is missing": one(whole, 33, flags=4),
        "a checksum is wrong": (one(whole, 33, flags=4)[0] + b"abcd", 33),
        "a window of 2^32": one(whole, 33, window=22 << 3), "another size": (frame(block(whole), 34), 33),
        "a size of 2^32 more": (frame(block(whole), 33 + 2**32, size=8), 33),
        "size is cut": (good[:4] + b"\xe0abc", 33), "behind": (good + b"a", 33),
        "another frame": (good + good, 33), "kind 3": (frame(block(b"a" * 9, 3), 9), 9),
        "a longer block": (frame(block(b"a", 1, True, 140_000), 140_000), 140_000),
        "more from a block": one(literals(b"a" * 1000, 1) + sequences([(9, 4, 100)]), 1100, window=0),
        "more literals than the window": one(literals(b"a" * 2000, 1) + b"\0", 2000, window=0),
        "no last block": (frame(block(whole, 2, False), 33), 33), "fewer bytes": (frame(block(b"abc", 0), None, 0), 4),
        "more bytes": (frame(block(b"abc", 0), None, 0), 2),
        "more of one byte": (frame(block(b"a", 1, True, 9), None, 0), 8),
        "bytes are cut": (frame(block(b"abc", 0, True, 4), 4), 4),
        "one byte is missing": (frame(block(b"", 1, True, 4), 4), 4),
        "more than the window": (frame(block(b"a", 1, True, 1025), None, 0), 1025),
        "empty block": (frame(block(b""), None, 0), 1),
        "no sequences at all": one(literals(b"abc"), 3, window=0), "literals are cut": one(b"\x28abc", 5, window=0),
        "head of literals is cut": one(b"\x0c\0", 3, window=0), "no byte of literals": one(b"\x29", 5, window=0),
        "more literals than room": one(literals(b"a" * 40, 1) + b"\0", 39, window=0),
        "streams are cut": one(of_code[:-1], many, window=0),
        "weights are cut": one(cut(len(DIRECT) - 2, DIRECT) + coded(DATA, SKEWED, None)[3:] + b"\0", many, window=0),
        "nothing but weights": one(cut(len(DIRECT), DIRECT), many, window=0),
        "no weights": one(cut(0, DIRECT) + coded(DATA, SKEWED, None)[3:] + b"\0", many, window=0),
        "sizes of streams are cut": one(cut(len(DIRECT) + 5, of_code[3:], 1) + b"\0", many, window=0),
        "streams of 2^16 bytes and more": one(
            of_code[: 3 + len(DIRECT)] + b"\xff\xff\1\0\1\0" + of_code[9 + len(DIRECT) :] + b"\0", many, window=0),
        "short weights": one(coded(b"\0\1\2" * 9, [1, 1, 2], short) + b"\0", 27, window=0),
        "weights without an end": one(
            coded(b"\0\1\2" * 9, [1, 1, 2], bytes([len(stays)]) + stays) + b"\0", 27, window=0),
        "no code before": one(coded(DATA, SKEWED, None) + b"\0", many, window=0),
        "no weight of 1": one(coded(b"\0\1" * 9, [2, 2, 3], weighed([2, 2, 3])) + b"\0", 18, window=0),
        "a weight of 12": tree([12, 1, 1]),
        "a sum of 2^16 and more": one(
            coded(b"\0\1B" * 9, [1, 1, *[0] * 64, 2], weighed([1, 1, *[11] * 64, 0])) + b"\0", 27, window=0),
        "weights without a sum": tree([0, 0, 0]), "weights that miss more than one": tree([1, 1, 3, 1, 1, 4, 0]),
        "a code of 12 bits": tree([1, *range(1, 12), 0]),
        "few literals in four streams": one(coded(DATA[:4], SKEWED, DIRECT, 1) + b"\0", 4, window=0),
        "no modes": one(none + b"\1", 12, window=0), "numbers are cut": one(none + b"\x80", 12, window=0),
        "long numbers are cut": one(none + b"\xff\1", 12, window=0),
        "bits of modes": described_as(1, 0, 1), "no code of literals before": described_as(3 << 6, 1),
        "no code of offsets before": described_as(3 << 4, 1), "no code of matches before": described_as(3 << 2, 1),
        "a code of literals 36": described_as(0x54, 36, 1, 0, 1),
        "a code of offsets 32": described_as(0x54, 0, 32, 0, 1),
        "a code of matches 53": described_as(0x54, 0, 1, 53, 1), "symbols are cut": described_as(0x54, 0, 1),
        "no stream": described_as(0x54, 0, 1, 0), "no bit begins the stream": described_as(0x54, 0, 1, 0, 0),
        "more states of literals": coded_by(Code(2, 10, (*[0] * 9, 1024)), 0),
        "more states of offsets": coded_by(Code(2, 9, (0, 0, 512)), 1),
        "more states of matches": coded_by(Code(2, 10, (1024,)), 2), "a code is cut": described_as(8, 0),
        "a code that goes on in the next block": (
            frame(block(none + b"\1\x08\xe0", 2, False) + b"\x0f\0\0", 15, window=0), 15),
        "33 offsets": coded_by(Code(2, 6, (*[1] * 32, 32)), 1),
        "zeros up to 61 matches": coded_by(Code(2, 5, (31, *[0] * 60, 1)), 2),
        "more bits": one(none + sequences([(1, 4, 3)], more=[(1, 1)]), 15, window=0),
        "fewer bits": one(none + bytes([2, 0x54, 0, 2, 0, 0b101]), 18, window=0),
        "more literals than there are": one(none + sequences([(13, 4, 3)]), 16, window=0),
        "a distance beyond": one(none + sequences([(9, 3 + 10, 3)]), 15, window=0),
        "no distance": one(none + sequences([(9, 4, 3), (0, 3, 3)]), 18, window=0),
        "a match beyond": one(none + sequences([(9, 4, 4)]), 15, window=0),
        "bytes behind no sequences": one(none + b"\0\0", 12, window=0),
    }  # fmt: skip


def _refused(lanes: int, cp: Any) -> None:
    for name, (chunk, room) in refused().items():
        assert name in LAX or by_library(chunk, room) is None, name
        assert one_by_one(cp, [chunk], room, "Zstd", lanes) == [None], name
        assert decompressed_by(cp, [chunk] * 4, room, "Zstd", lanes) == [None] * 4, name  # of all groups of a block


def _blocks(lanes: int, cp: Any) -> None:
    """More of them than so few bytes may have, for which the library has no limit."""
    room = 700
    some = [frame(block(b"", 0, False) * (blocks - 1) + block(b"a", 1, True, room), room) for blocks in (18, 19)]
    assert [by_library(chunk, room) for chunk in some] == [b"a" * room] * 2
    assert one_by_one(cp, some, room, "Zstd", lanes) == [b"a" * room, None]


def zstd_cases() -> Iterator[Case]:
    """More chunks than a block has groups; sizes around those of copies, and of blocks; fewer of larger groups."""
    few, more, most = (f"zstd<{lanes}>" for lanes in LANES)
    for room in (1, 5, 31, 32, 300, 3001):
        yield Case(STEM, few, f"of the library, {room} bytes", partial(_of_library, room, LANES[0]))
    for variant, lanes in ((more, LANES[1]), (most, LANES[2])):
        for room in (32, 3001):
            yield Case(STEM, variant, f"of the library, {room} bytes", partial(_of_library, room, lanes))
    yield Case(STEM, few, "broken, 900 bytes", partial(_broken, 900, LANES[0]))
    yield Case(STEM, most, "broken, 300 bytes", partial(_broken, 300, LANES[2]))
    yield Case(STEM, few, "permitted", partial(_permitted, LANES[0]))
    yield Case(STEM, more, "permitted", partial(_permitted, LANES[1]))
    yield Case(STEM, few, "refused", partial(_refused, LANES[0]))
    yield Case(STEM, few, "blocks", partial(_blocks, LANES[0]))
    yield Case(STEM, few, "many bytes", partial(_many, LANES[0]))
    yield Case(STEM, most, "many bytes", partial(_many, LANES[2]))
