"""Which chunks nvCOMP gets, and how long it is waited for."""

from __future__ import annotations

import struct
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.gpu import decompress
from pipeline.gpu.decompress import Decompressing
from pipeline.gpu.slabs import HEAD, zstd_fits
from tests.cases.device_slabs import kernels, library, samples_of
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES

__all__ = ["kernels", "library"]

DATA = bytes(range(200)) + bytes(500)
SKIPPABLE = b"\x50\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"


def fits(stored: bytes, chunk_bytes: int = len(DATA)) -> bool:
    """Whether nvCOMP would get a chunk that lies before another one."""
    head = (stored + b"\x28" * HEAD)[:HEAD]
    (given,) = zstd_fits(np.frombuffer(head, np.uint8)[None], np.array([len(stored)]), chunk_bytes)
    return bool(given)


def frame(head: bytes, size: bytes, data: bytes = DATA) -> bytes:
    """A Zstandard frame of one block that is not compressed."""
    return b"\x28\xb5\x2f\xfd" + head + size + struct.pack("<I", 1 | len(data) << 3)[:3] + data


@pytest.mark.parametrize("nbytes", [1, 255, 256, 257, 65_791, 65_792, 70_000])
def test_frames_that_say_that_they_have_all(nbytes: int) -> None:
    """As the library writes them, with and without a checksum."""
    data = bytes(nbytes)
    for written in (package_of("numcodecs").zstd.compress(data), package_of("numcodecs").zstd.compress(data, 3, True)):
        assert fits(bytes(written), nbytes)
        assert not any(fits(bytes(written), other) for other in (nbytes - 1, nbytes + 1, nbytes + 256))


def test_frames_of_every_kind() -> None:
    size = len(DATA)
    for head, length in (
        (b"\x60", size - 256), (b"\xa0", 0), (b"\xe0", 0), (b"\x40\x58", size - 256), (b"\x80\x58", 0), (b"\xc0\x58", 0)
    ):  # fmt: skip
        number = (length or size).to_bytes((0, 2, 4, 8)[head[0] >> 6], "little")
        whole = frame(head, number)
        assert fits(whole)
        assert not fits(whole, size + 1)
        assert not fits(frame(bytes([head[0] | 1]) + head[1:], b"\7" + number))  # a dictionary
        assert not fits(frame(bytes([head[0] | 8]) + head[1:], number))  # reserved
        assert not fits(SKIPPABLE + whole)
        assert not fits(b"\x27" + whole[1:])
    assert fits(frame(b"\x20", b"\x0a", DATA[:10]), 10)
    assert not fits(frame(b"\0\x58", b""))  # it does not say
    assert not fits(frame(b"\xa0", size.to_bytes(4, "little"), b"")[:-1])  # no whole block
    assert not fits(b"")


class Event:
    """Comes after so many looks."""

    def __init__(self, looks: float) -> None:
        self.looks = looks

    @property
    def done(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def synchronize(self) -> None:
        assert self.looks < 0


def test_nvcomp_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned = list[int]()
    monkeypatch.setattr(decompress, "LIMIT_SECONDS", 0.05)
    monkeypatch.setattr(decompress, "_endless", threading.Event())
    monkeypatch.setattr(decompress, "abandon", lambda: abandoned.append(1))
    for looks in (0, 3):
        assert Decompressing(Event(looks), lambda: (np.ones(1, bool), True), [], limited=True).right()[1]
    with pytest.raises(PipelineError, match=r"nvCOMP: expected .* within 0 s, got no end; pass --device cpu"):
        Decompressing(Event(float("inf")), lambda: (np.ones(1, bool), True), [], limited=True).get()
    assert abandoned == [1]
    monkeypatch.setattr(decompress, "LIMIT_SECONDS", 600)
    with pytest.raises(PipelineError, match="got no end"):  # at once: what else is there would wait for the same
        Decompressing(Event(float("inf")), lambda: (np.ones(1, bool), True), [], limited=True).get()


@pytest.mark.gpu
def test_heads_behind_nvcomp_that_does_not_end(cp: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the batch before has the whole device."""
    if not library:
        pytest.skip("a stream of CuPy has no such event")

    class Stream(nullcontext[None]):
        def record(self) -> Event:
            return Event(float("inf"))

        def synchronize(self) -> None:
            pytest.fail("waits for ever")

    abandoned = list[int]()
    monkeypatch.setattr(decompress, "LIMIT_SECONDS", 0.05)
    monkeypatch.setattr(decompress, "_endless", threading.Event())
    monkeypatch.setattr(decompress, "abandon", lambda: abandoned.append(1))
    monkeypatch.setattr(decompress, "_stream_to_look", lambda *_: Stream())
    with pytest.raises(PipelineError, match=r"nvCOMP: expected .* within 0 s, got no end; pass --device cpu"):
        decompress._looked_at(cp.zeros(40, np.uint8), np.zeros(1, np.int64), np.full(1, 40), "Crc32c")
    assert abandoned == [1]


@pytest.mark.gpu
def test_chunk_that_keeps_nvcomp_busy_is_named(tmp_path: Path, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written = CASES["zarr 3"].written(tmp_path)
    path = max((one for one in (tmp_path / "a.zarr").rglob("*") if one.is_file()), key=lambda one: one.stat().st_size)
    data = bytearray(path.read_bytes())
    data[30:-9] = bytes(len(data[30:-9]))
    path.write_bytes(data)
    given = []

    def busy(one: Any) -> None:
        given.append(one)
        raise PipelineError("nvCOMP: expected an end")

    monkeypatch.setattr(Decompressing, "get", busy)
    with pytest.raises(PipelineError, match=r"a\.zarr.*expected a block that can be decoded, got "):
        samples_of(written.item, 0, written.array.size)
    assert given
