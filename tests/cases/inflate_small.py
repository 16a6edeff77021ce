"""Small chunks in the DEFLATE format: what zlib makes at every level and in every way, what is permitted, damage."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.cases.case import RANDOM, Case
from tests.cases.deflate_bits import ORDER, Writer, flat, with_codes
from tests.cases.lz4_small import decompressed_by, one_by_one, written

STEM = "common/inflate"
WAYS = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE)


def deflated(
    data: bytes, level: int = 6, way: int = zlib.Z_DEFAULT_STRATEGY, bits: int = -15, flushed: int = 0
) -> bytes:
    """A stream of zlib's; with a flush after so many bytes a block ends there, and an empty one follows."""
    making = zlib.compressobj(level, zlib.DEFLATED, bits, 9, way)
    stream = making.compress(data[:flushed])
    if flushed:
        stream += making.flush(zlib.Z_FULL_FLUSH)
    return stream + making.compress(data[flushed:]) + making.flush()


def in_gzip(stream: bytes, room: int, flags: int = 0, behind: bytes = b"") -> bytes:
    """A member that holds a raw stream, with the fields that flags say."""
    fields = b""
    for bit, field in ((4, b"\4\0abcd"), (8, b"name\0"), (16, b"\0"), (2, b"\1\2")):
        fields += field if flags & bit else b""
    head = b"\x1f\x8b\x08" + bytes([flags]) + b"\0\0\0\0\0\xff" + fields
    try:
        data = zlib.decompressobj(-15).decompress(stream)
    except zlib.error:
        data = b"A" * room  # as those of `blocks_refused` would give: else the checksum alone would refuse them
    return head + stream + zlib.crc32(data).to_bytes(4, "little") + room.to_bytes(4, "little") + behind


def by_zlib(stream: bytes, room: int) -> bytes | None:
    """What zlib makes of a raw stream, if that is `room` bytes, and their checksum and number are behind it."""
    making = zlib.decompressobj(-15)
    try:
        data = making.decompress(stream, room + 1)
        more = making.decompress(making.unconsumed_tail, 1) if not making.eof else b""
    except zlib.error:
        return None
    whole = making.eof and len(data) == room and not more
    behind = zlib.crc32(data).to_bytes(4, "little") + room.to_bytes(4, "little")
    return data if whole and making.unused_data[:8] == behind else None


def skewed(room: int) -> bytes:
    """Bytes of which each is half as frequent as the one before: some get codes of 15 bits."""
    kinds = np.repeat(np.arange(30, dtype=np.uint8), np.maximum(2.0 ** -np.arange(1, 31) * 40 * room, 1).astype(int))
    return RANDOM(0).permutation(kinds)[:room].tobytes()


LONG = flat({**{k: k + 1 for k in range(14)}, 14: 15, 256: 15}, 257)


def _of_zlib(room: int, cp: Any) -> None:
    data = [*written(room), skewed(room) if room > 1 else b"a"]
    for level, way in ((0, WAYS[0]), (1, WAYS[0]), (9, WAYS[0]), (6, WAYS[1]), (6, WAYS[2]), (6, WAYS[3])):
        for flushed in {0, room // 2}:
            streams = [deflated(one, level, way, -15, flushed) for one in data]
            framed = [in_gzip(one, room, 4 * number, b"behind") for number, one in enumerate(streams)]
            assert decompressed_by(cp, framed, room, "Gzip", 8) == data
            framed = [deflated(one, level, way, 15, flushed) + b"b" * (room % 2) for one in data]
            assert decompressed_by(cp, framed, room, "Zlib", 8) == data


def _many(cp: Any) -> None:
    """Distances up to 32 KiB, stored blocks of 65,535 bytes, sums beyond 65,521."""
    room = 100_001
    random = RANDOM(0).bytes(32_768)
    data = [(random + random + b"\xff" * room)[:room], b"\xff" * room, RANDOM(1).bytes(room)]
    for level in (0, 6):
        assert decompressed_by(cp, [deflated(one, level, bits=15) for one in data], room, "Zlib", 8) == data
        assert decompressed_by(cp, [deflated(one, level, bits=31) for one in data], room, "Gzip", 8) == data


def broken(stream: bytes, seed: int) -> Iterator[bytes]:
    """The stream with a wrong bit, at its beginning more often, cut, or with other bytes."""
    random = RANDOM(seed)
    for number in range(24):
        wrong = bytearray(stream)
        wrong[random.integers(min(len(wrong), 60) if number % 2 else len(wrong))] ^= 1 << random.integers(8)
        yield bytes(wrong)
    for end in (0, 1, len(stream) // 2, len(stream) - 1):
        yield stream[:end]
    yield random.bytes(len(stream))
    yield stream[: len(stream) // 2] + random.bytes(len(stream) - len(stream) // 2)


def _broken(room: int, cp: Any) -> None:
    """The same verdict as zlib's."""
    streams = [
        deflated(data, level, way) for data in written(room) for level, way in ((6, 0), (6, zlib.Z_FIXED), (0, 0))
    ]
    every = [wrong for seed, stream in enumerate(streams) for wrong in broken(stream, seed)]
    size = room.to_bytes(4, "little")
    members = [in_gzip(stream, room, 0, 3 * size) for stream in every]
    assert decompressed_by(cp, members, room, "Gzip", 8) == [by_zlib(member[10:], room) for member in members]
    framed = [deflated(data, bits=15) for data in written(room)]
    wrong = [wrong for seed, stream in enumerate(framed) for wrong in broken(stream, seed)]
    got = decompressed_by(cp, wrong, room, "Zlib", 8)
    for stream, ours in zip(wrong, got, strict=True):
        making = zlib.decompressobj(15)
        try:
            data = making.decompress(stream)
            assert ours == (data if making.eof and len(data) == room else None)
        except zlib.error:
            assert ours is None


def blocks_of_codes() -> dict[str, tuple[bytes, int]]:
    """Last blocks with codes of their own, and how many bytes they would give."""
    single = flat({65: 1, 256: 1}, 257)
    match = flat({65: 2, 66: 2, 256: 2, 257: 2}, 258)
    return {
        "codes of 1 to 15 bits": (with_codes(LONG, [0], [*range(15), *range(14, -1, -1), 256]), 30),
        "one literal": (with_codes(single, [0], [65] * 20 + [256]), 20),
        "one distance": (with_codes(match, [1], [65, 257, 1000, 66, 257, 1000, 256]), 8),
        "half of a code": (with_codes(flat({256: 1}, 257), [0], [256]), 0),
        "distance without a code": (with_codes(match, [0, 1], [65, 257, (1001, 0, 0), 256]), 4),
        "distance beyond": (with_codes(match, [0, 1], [65, 66, 257, (1001, 0, 0), 256]), 5),
        "distance 30": (with_codes(match, flat({0: 1}, 31), [65, 257, 1000, 256]), 4),
        "too few codes": (with_codes(flat({65: 2, 256: 2}, 257), [0], [65, 256]), 1),
        "too many codes": (with_codes(flat({65: 1, 66: 1, 256: 1}, 257), [0], [65, 256]), 1),
        "too few distances": (with_codes(match, [2, 2, 2], [65, 257, 1000, 256]), 4),
        "too many distances": (with_codes(match, [1, 1, 1], [65, 257, 1000, 256]), 4),
        "no end": (with_codes(flat({65: 1, 66: 1}, 257), [0], [65, 66]), 2),
        "287 literals": (with_codes(flat({65: 1, 256: 1}, 287), [0], [65, 256]), 1),
        "286 literals": (with_codes(flat({65: 1, 256: 1}, 286), [0], [65, 256]), 1),
        "lengths of 258 and less": (with_codes(flat({65: 2, 284: 2, 285: 2, 256: 2}, 286), [1, 1], [
            65, (284, 30, 5), 1000, 285, 1000, (284, 31, 5), 1000, 256]), 1 + 257 + 258 + 258),
        "long codes": (far_codes(), FAR),
        "fewer lengths of codes": (with_codes(flat({65: 1, 256: 1}, 257), [0], [65, 256], 18), 1),
    }  # fmt: skip


FAR = 1 + 64 * 258 + 232 + sum(number + 2 + 232 for number in range(24))  # bytes that `far_codes` gives
OF_FAR = flat({65: 1, 256: 2, **{k: k + 3 for k in range(11)}, 285: 14, 284: 15, 283: 15}, 286)


def far_codes() -> bytes:
    """Matches with 15 and 5 bits of their length, 15 and 13 of their distance, or behind literals of 9 bits each; other
    codes before them take from 1 to 24 bits."""
    distances = flat({k: k + 1 for k in range(14)} | {28: 15, 29: 15}, 30)
    more = [one for number in range(24) for one in ([65] * number, [6, 6, (284, 5, 5), 1000])]
    symbols = [65, *[285, 1000] * 64, (284, 5, 5), (1028, 0b101, 13), *[one for some in more for one in some], 256]
    return with_codes(OF_FAR, distances, symbols)


def blocks_refused() -> dict[str, tuple[bytes, int]]:
    """Last blocks that zlib refuses, and how many bytes they would give otherwise."""
    fixed, many = Writer().put(1, 1).put(1, 2).code(0x30 + 65, 8), 128
    for _ in range(many):
        fixed.code(0xC0 + 5, 8).code(0, 5)  # 258 bytes, at a distance of 1
    before, literal = [*fixed.bits], [*Writer().put(1, 1).put(1, 2).code(0x30 + 65, 8).bits]

    def then(bits: list[int]) -> Writer:
        writer = Writer()
        writer.bits = [*bits]
        return writer

    again = Writer().put(1, 1).put(2, 2).put(0, 5).put(0, 5).put(14, 4)
    for number in ORDER[:18]:
        again.put(1 if number in (1, 16) else 0, 3)
    whole = with_codes(flat({65: 1, 256: 1}, 257), [0], [65] * 20 + [256])
    return {
        "length 286": (then(literal).code(0xC0 + 6, 8).put(0, 6).code(0, 5).code(0, 7).to_bytes(), 1 + 323),
        "distance 30": (
            then(before).code(0xC0 + 5, 8).code(30, 5).put(0, 14).code(0, 7).to_bytes(),
            1 + 258 * (many + 1),
        ),
        "a long literal beyond": (with_codes(OF_FAR, [0], [65, 10, 256]), 1),
        "as before the first": (again.code(1, 1).put(0, 2).put(0, 64).to_bytes(), 1),
        "kind 3": (bytes([whole[0] | 6]) + whole[1:], 20),
        "no code of lengths": (Writer().put(1, 1).put(2, 2).put(0, 14).put(0, 12).put(0, 400).to_bytes(), 1),
    }


def _codes(cp: Any) -> None:
    for stream, room in blocks_refused().values():
        assert by_zlib(in_gzip(stream, room)[10:], room) is None
        assert one_by_one(cp, [in_gzip(stream, room)], room, "Gzip", 8) == [None]
    for stream, room in blocks_of_codes().values():
        expected = by_zlib(in_gzip(stream, max(room, 1))[10:], max(room, 1))
        got = one_by_one(cp, [in_gzip(stream, max(room, 1))], max(room, 1), "Gzip", 8)
        assert got == [expected]


def _blocks(cp: Any) -> None:
    """More of them than so few bytes may have, for which zlib has no limit."""
    room, empty = 66, Writer().put(0, 1).put(1, 2).code(0, 7).bits
    last = Writer().put(1, 1).put(1, 2)
    for number in range(room):
        last.code(0x30 + number, 8)
    last.code(0, 7)
    streams = []
    for blocks in (18, 19):
        writer = Writer()
        writer.bits = [*empty * (blocks - 1), *last.bits]
        streams.append(writer.to_bytes())
    data = bytes(range(room))
    assert [by_zlib(in_gzip(stream, room)[10:], room) for stream in streams] == [data] * 2
    got = one_by_one(cp, [in_gzip(stream, room) for stream in streams], room, "Gzip", 8)
    assert got == [data, None]


def flipped(data: bytes, place: int) -> bytes:
    """The same with a wrong bit in a byte."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def _framings(cp: Any) -> None:
    """Headers and ends, each with nothing behind it."""
    data = bytes(range(64)) * 2
    room, whole, member = 128, zlib.compress(data), gzip.compress(data)
    smaller = bytes([0x48, 0x89]) + whole[2:]  # a window of 4 KiB
    good = [whole, whole + b"behind", smaller, zlib.compress(data, 0)]
    given = zlib.compressobj(zdict=data)
    wrong = [
        whole[:-1], whole[:-5], whole[:5], b"", b"\x77" + whole[1:], b"\x88\x1c" + whole[2:],
        b"\x78\x01\x01\0\0\0", b"\x78\x01\x01\x64\0\x9b\xff" + data[:50], zlib.compress(data + b"a", 0),
        whole[:1] + b"\x9d" + whole[2:], zlib.compress(data + b"a"), zlib.compress(data[:-1]),
        given.compress(data) + given.flush(), *(flipped(whole, len(whole) - k) for k in range(1, 5)),
    ]  # fmt: skip
    assert one_by_one(cp, [*good, *wrong], room, "Zlib", 8) == [data] * len(good) + [None] * len(wrong)
    raw = deflated(data)
    checked = {flags: in_gzip(raw, room, flags) for flags in range(32)}  # 2: by a checksum of the header
    behind = b"behind", b"\x1f", b"\x1f\x8a", b"\x1e\x8b"
    good = [member, *(member + more for more in behind), *(one for flags, one in checked.items() if not flags & 2)]
    wrong = [
        member[:-1], member[:17], member[:-5], b"", b"\x1e" + member[1:], member[:1] + b"\x8a" + member[2:],
        member[:2] + b"\7" + member[3:], member[:3] + b"\x20" + member[4:], in_gzip(raw, room + 1),
        in_gzip(raw, room + 2**24),
        gzip.compress(data[:60]) + gzip.compress(data[60:]), in_gzip(raw, room, 8)[:14] + bytes([1]) * 8,
        *(flipped(member, len(member) - k) for k in range(1, 9)), member + b"\x1f\x8b",
        member[:3] + b"\2" + member[4:], *(one for flags, one in checked.items() if flags & 2),
        b"\x1f\x8b\x08\4\0\0\0\0\0\0\xff\xff" + bytes(10), b"\x1f\x8b\x08\2\0\0\0\0\0\0\0\0" + bytes(6),
    ]  # fmt: skip
    assert one_by_one(cp, [*good, *wrong], room, "Gzip", 8) == [data] * len(good) + [None] * len(wrong)


def inflate_cases() -> Iterator[Case]:
    """More chunks than a block has groups; sizes around those of copies."""
    for room in (1, 5, 300, 3001):
        yield Case(STEM, "inflate", f"of zlib, {room} bytes", partial(_of_zlib, room))
    for room in (64, 900):
        yield Case(STEM, "inflate", f"broken, {room} bytes", partial(_broken, room))
    yield Case(STEM, "inflate", "codes", _codes)
    yield Case(STEM, "inflate", "blocks", _blocks)
    yield Case(STEM, "inflate", "framings", _framings)
    yield Case(STEM, "inflate", "many bytes", _many)
