"""Small chunks in LZ4's block format: what writers make of samples, what the format permits, and what is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from kernels.common import device, lz4, zstd
from kernels.common.decompress import decompress
from kernels.common.lz4 import LANES
from tests.cases.case import RANDOM, Case

STEM = "common/lz4"
GUARD = 0xA5  # what is around chunks, decompressed ones and stored ones


def by_library(stream: bytes, room: int) -> bytes | None:
    """What LZ4's own library decompresses a stream to; None if it refuses it."""
    from numcodecs.lz4 import decompress as decompressed_by_library

    out = np.empty(room, np.uint8)
    try:
        decompressed_by_library(room.to_bytes(4, "little") + stream, out)
    except (RuntimeError, ValueError):
        return None
    return out.tobytes()


def compressed(data: bytes) -> bytes:
    """A stream of the library's."""
    from numcodecs.lz4 import compress

    return bytes(compress(data))[4:]


def length(number: int) -> tuple[int, bytes]:
    """The four bits of a token, and the bytes that follow it."""
    if number < 15:
        return number, b""
    rest = number - 15
    return 15, b"\xff" * (rest // 255) + bytes([rest % 255])


def permitted(nbytes: int, seed: int) -> tuple[bytes, bytes]:
    """A stream of random sequences, as no writer makes them, and what it stands for; at least 13 bytes."""
    random, made, stream = RANDOM(seed), bytearray(), bytearray()
    while True:
        left = nbytes - len(made)
        literals = int(random.choice([0, 1, 3, 14, 15, 16, 31, 32, 33, 100, 269, 270, 271, 600])) or int(not made)
        if left - literals < 12 + 4 or random.random() < 0.02:
            literals, last = left, True
        else:
            last = False
        bits, more = length(literals)
        some = random.integers(0, 256, literals, np.uint8).tobytes()
        made += some
        if last:
            stream += bytes([bits << 4]) + more + some
            return bytes(stream), bytes(made)
        most = nbytes - len(made) - 5
        match = min(int(random.choice([4, 5, 18, 19, 20, 60, 273, 274, 275, 700])), most)
        offset = min(int(random.choice([1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 300, 2**16 - 1])), len(made))
        of_match, further = length(match - 4)
        stream += bytes([bits << 4 | of_match]) + more + some + offset.to_bytes(2, "little") + further
        for _ in range(match):
            made.append(made[-offset])


def sized(stream: bytes, room: int) -> bytes:
    """A chunk of numcodecs."""
    return room.to_bytes(4, "little") + stream


def blocks(parts: Sequence[bytes], most: int, room: int, behind: bytes = b"") -> bytes:
    """A chunk of HDF5's filter, of stored blocks."""
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return room.to_bytes(8, "big") + most.to_bytes(4, "big") + framed + behind


def of_hdf5(data: bytes, most: int) -> bytes:
    """As the filter writes it: blocks that do not get smaller are not compressed."""
    parts = [data[start : start + most] for start in range(0, len(data), most)]
    stored = [stream if len(stream := compressed(part)) < len(part) else part for part in parts]
    return blocks(stored, most, len(data))


def decompressed_by(cp: Any, chunks: Sequence[bytes], room: int, framing: str, lanes: int) -> list[bytes | None]:
    """What the kernel makes of chunks, None of those it refuses; nothing around them is changed."""
    places = RANDOM(len(chunks)).permutation(2 * len(chunks))[: len(chunks)]
    gaps = [bytes([GUARD]) * (number % 3) for number in range(len(chunks))]
    sizes = np.array([len(chunk) for chunk in chunks])
    before = np.array([len(gap) for gap in gaps])
    starts = np.cumsum(before + sizes) - sizes
    stored = np.frombuffer(b"".join(gap + chunk for gap, chunk in zip(gaps, chunks, strict=True)), np.uint8)
    out = cp.asarray(np.full(2 * len(chunks) * room, GUARD, np.uint8))
    least = (zstd if framing in zstd.FRAMINGS else lz4).LANES[0]
    most = lanes * len(chunks) // device.limits().multiprocessors + 1 if lanes > least else 0
    with patch.object(lz4, "THREADS_AT_ONCE", most), patch.object(zstd, "THREADS_AT_ONCE", most):
        right = decompress(cp.asarray(stored), starts, sizes, out, places, room, framing)
    rows, right = out.get().reshape(-1, room), right.get()
    others = np.setdiff1d(np.arange(len(rows)), places)
    assert (rows[others] == GUARD).all() and set(right.tolist()) <= {0, 1}
    return [rows[place].tobytes() if good else None for place, good in zip(places, right, strict=True)]


def one_by_one(cp: Any, chunks: Sequence[bytes], room: int, framing: str, lanes: int) -> list[bytes | None]:
    """The same of chunks with nothing behind them: what is read there is noticed."""
    return [decompressed_by(cp, [chunk], room, framing, lanes)[0] for chunk in chunks]


def _many(cp: Any) -> None:
    """Numbers of more than 16 bits, of each kind, which do not end in the window of few lanes."""
    room = 70_001
    data = [bytes(room), RANDOM(0).bytes(room), bytes(room - 9) + bytes(range(9))]
    for lanes in (LANES[0], LANES[-1]):
        assert decompressed_by(cp, [sized(compressed(one), room) for one in data], room, "Sized", lanes) == data
    for most in (room, 68_000):
        assert decompressed_by(cp, [of_hdf5(one, most) for one in data], room, "Blocks", 32) == data


def written(room: int) -> list[bytes]:
    """Chunks of samples: held, noise, zeros, few bytes."""
    random = RANDOM(room)
    held = np.repeat(random.integers(0, 4096, room, np.int16), random.integers(1, 14, room))[: room // 2 + 1]
    kinds = held.tobytes(), random.bytes(room), bytes(room), random.integers(0, 3, room, np.uint8).tobytes()
    return [data[:room] for data in kinds]


def _of_writers(room: int, lanes: int, cp: Any) -> None:
    data = written(room)
    got = decompressed_by(cp, [sized(compressed(one), room) for one in data], room, "Sized", lanes)
    assert got == data
    for most in (2**30, room, max(room // 3, 1)):
        assert decompressed_by(cp, [of_hdf5(one, most) for one in data], room, "Blocks", lanes) == data


def _permitted(room: int, lanes: int, cp: Any) -> None:
    streams = [permitted(room, seed) for seed in range(12)]
    assert all(by_library(stream, room) == made for stream, made in streams)
    expected = [made for _, made in streams]
    got = decompressed_by(cp, [sized(stream, room) for stream, _ in streams], room, "Sized", lanes)
    assert got == expected
    framed = [blocks([stream], room, room, b"behind") for stream, _ in streams]
    assert decompressed_by(cp, framed, room, "Blocks", lanes) == expected


def broken(stream: bytes, seed: int) -> Iterator[bytes]:
    """The stream with a wrong bit, cut, with other bytes at its end or in all."""
    random = RANDOM(seed)
    for _ in range(6):
        wrong = bytearray(stream)
        wrong[random.integers(len(wrong))] ^= 1 << random.integers(8)
        yield bytes(wrong)
    for end in (0, 1, len(stream) // 2, len(stream) - 1):
        yield stream[:end]
    yield stream + b"\0"
    yield stream[: len(stream) // 2] + random.bytes(len(stream) - len(stream) // 2)
    yield random.bytes(len(stream))


def _broken(room: int, lanes: int, cp: Any) -> None:
    """The same verdict as the library's, but on a distance of 0, which it permits and nothing defines."""
    streams = [permitted(room, seed)[0] for seed in range(3)] + [compressed(data) for data in written(room)]
    every = [wrong for seed, stream in enumerate(streams) for wrong in broken(stream, seed)]
    expected = [by_library(stream, room) for stream in every]
    for framing, framed in (
        ("Sized", [sized(stream, room) for stream in every]), ("Blocks", [blocks([one], room, room) for one in every])
    ):  # fmt: skip
        got = decompressed_by(cp, framed, room, framing, lanes)
        for stream, ours, theirs in zip(every, got, expected, strict=True):
            raw = framing == "Blocks" and len(stream) == room
            assert ours in ((stream,) if raw else (theirs,) if ours is not None or not has_zero(stream) else (None,))


def has_zero(stream: bytes) -> bool:
    """Whether a distance in a stream may be 0."""
    return b"\0\0" in stream


ENDS = {  # of 40 bytes: the last literals and where the last match begins and ends, at its limits and beyond
    "5 literals": (b"\x1fA\x01\0" + bytes([34 - 19]) + b"\x50" + b"vwxyz", True),
    "4 literals": (b"\x1fA\x01\0" + bytes([35 - 19]) + b"\x40" + b"wxyz", False),
    "match 12 before the end": (b"\xf3" + bytes([28 - 15]) + bytes(28) + b"\x01\0" + b"\x50vwxyz", True),
    "match 11 before the end": (b"\xf2" + bytes([29 - 15]) + bytes(29) + b"\x01\0" + b"\x50vwxyz", False),
    "literals only": (b"\xf0" + bytes([40 - 15]) + bytes(range(40)), True),
    "a literal more": (b"\xf0" + bytes([41 - 15]) + bytes(range(41)), False),
    "a literal less": (b"\xf0" + bytes([39 - 15]) + bytes(range(39)), False),
    "distance of all": (b"\x1fA\x01\0" + bytes([34 - 19]) + b"\x50" + b"vwxyz", True),
    "distance beyond": (b"\x1fA\x02\0" + bytes([34 - 19]) + b"\x50" + b"vwxyz", False),
    "distance 0": (b"\x1fA\0\0" + bytes([34 - 19]) + b"\x50" + b"vwxyz", False),
    "literals beyond": (b"\x1fA\x01\0" + bytes([34 - 19]) + b"\x60" + b"uvwxyz", False),
    "ends in literals": (b"\xf0" + bytes([40 - 15]) + bytes(range(39)), False),
    "ends in a token": (b"\x1fA\x01\0" + bytes([34 - 19]), False),
    "ends in a distance": (b"\x1fA\x01", False),
    "ends in a length": (b"\xf0", False),
    "ends in a length that goes on": (b"\xf0\xff", False),
    "ends in the length of a match": (b"\x1fA\x01\0", False),
    "length beyond 2^32": (b"\xf0" + b"\xff" * (2**32 // 255 // 2**8) + b"\x10", False),
}


def _ends(lanes: int, cp: Any) -> None:
    streams, good = [stream for stream, _ in ENDS.values()], [right for _, right in ENDS.values()]
    for stream, right in ENDS.values():
        if stream != ENDS["distance 0"][0]:
            assert (by_library(stream, 40) is not None) == right
    for framing, framed in (
        ("Sized", [sized(stream, 40) for stream in streams]),
        ("Blocks", [blocks([stream], 2**32 - 1, 40) for stream in streams]),
    ):
        got = one_by_one(cp, framed, 40, framing, lanes)
        assert got == [by_library(one, 40) if right else None for one, right in zip(streams, good, strict=True)]


def _framings(cp: Any) -> None:
    """Sizes that disagree, blocks that are missing or too large; what is behind the last block is not looked at."""
    data = bytes(range(20))
    streams = [compressed(bytes(20)), b"\xf0\x05" + data]
    wrong = [b"", b"\x14", b"\x14\0\0", sized(streams[0], 21), sized(streams[0], 20 + 2**24), sized(b"", 20)]
    got = one_by_one(cp, [sized(streams[1], 20), *wrong], 20, "Sized", 32)
    assert got == [data] + [None] * len(wrong)
    parts = [data[:9], compressed(data[9:18]), data[18:]]
    right = [blocks(parts, 9, 20), blocks(parts, 9, 20, b"behind"), blocks([data], 20, 20), blocks([data], 21, 20)]
    full = blocks(parts, 9, 20)
    wrong = [
        full[:end] for end in (0, 11, 12, 15, 20, 25, len(full) - 1)
    ] + [
        blocks(parts, 9, 21), blocks(parts, 8, 20), blocks(parts, 0, 20), blocks(parts[:2], 9, 20),
        b"\1" + full[1:], full[:3] + b"\1" + full[4:], full[:12] + b"\xff\xff\xff\xff" + full[16:],
        blocks([data[:9], data[9:17], data[18:]], 9, 20),
    ]  # fmt: skip
    got = one_by_one(cp, right + wrong, 20, "Blocks", 32)
    assert got == [data] * len(right) + [None] * len(wrong)


def _many_blocks(cp: Any) -> None:
    """As many as are allowed, stored as they are or not; and one more."""
    for room, most, right in ((16, 1, True), (17, 1, False), (34, 2, False), (512, 29, True), (512, 28, False)):
        data = RANDOM(room).bytes(room)
        parts = [data[start : start + most] for start in range(0, room, most)]
        literals = [bytes([length(len(part))[0] << 4]) + length(len(part))[1] + part for part in parts]
        got = one_by_one(cp, [blocks(parts, most, room), blocks(literals, most, room)], room, "Blocks", LANES[0])
        assert got == ([data, data] if right else [None, None])


def lz4_cases() -> Iterator[Case]:
    """One lane per byte of a short chunk, several rounds; more chunks than a block has groups."""
    for lanes in LANES:
        for room in (1, 12, 13, 300, 3001):
            yield Case(STEM, "lz4", f"written, {room} bytes, {lanes} lanes", partial(_of_writers, room, lanes))
        for room in (13, 700, 9000):
            yield Case(STEM, "lz4", f"permitted, {room} bytes, {lanes} lanes", partial(_permitted, room, lanes))
        for room in (40, 900):
            yield Case(STEM, "lz4", f"broken, {room} bytes, {lanes} lanes", partial(_broken, room, lanes))
        yield Case(STEM, "lz4", f"ends, {lanes} lanes", partial(_ends, lanes))
    yield Case(STEM, "lz4", "framings", _framings)
    yield Case(STEM, "lz4", "many blocks", _many_blocks)
    yield Case(STEM, "lz4", "many bytes", _many)
