"""Reading on the CPU: the planned bytes, in order, in bounded memory; or one line that names the file."""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.errors import PipelineError
from pipeline.storage import blocks as storage_blocks
from pipeline.storage.blocks import decoded_ahead, read_blocks
from pipeline.storage.chunks import Chunk
from pipeline.storage.pieces import BlockPiece
from pipeline.storage.sources import DTYPES
from pipeline.timeline import Timeline
from tests.cases.files import opened_in, piece_of


def chunk_of(path: Path, samples: int = 1000) -> Chunk:
    """Write a file of int32 samples; a chunk of all of it."""
    np.arange(samples, dtype="<i4").tofile(path)
    return Chunk(0, (piece_of(path),), np.dtype("<i4"))


def values_of(chunk: Chunk) -> NDArray[Any]:
    return np.concatenate([block.copy() for block in read_blocks(chunk, Timeline())])


@pytest.fixture(autouse=True)
def nothing_stays_open(tmp_path: Path) -> Iterator[None]:
    yield
    assert opened_in(tmp_path) == []


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_blocks, "BLOCK_BYTES", 400)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtype=st.sampled_from(DTYPES),
    byteorder=st.sampled_from("<>"),
    pieces=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 200)), min_size=1, max_size=5),
    block_bytes=st.integers(8, 1000),
)
def test_blocks_are_the_file(
    tmp_path: Path, dtype: str, byteorder: Any, pieces: list[tuple[int, int]], block_bytes: int
) -> None:
    item = np.dtype(dtype).newbyteorder(byteorder)
    path = tmp_path / "samples.bin"
    random = np.random.default_rng(0)
    path.write_bytes(random.bytes(50 + 200 * 8))
    chunk = Chunk(0, tuple(piece_of(path, offset, samples * item.itemsize) for offset, samples in pieces), item)
    expected = np.concatenate([np.fromfile(path, item, samples, offset=offset) for offset, samples in pieces])
    timeline = Timeline(traced=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_blocks, "BLOCK_BYTES", block_bytes)
        blocks = []
        for block in read_blocks(chunk, timeline):
            assert block.dtype == item
            assert 0 < block.nbytes <= block_bytes
            blocks.append(block.copy())
    assert np.concatenate(blocks).tobytes() == expected.tobytes()
    assert len(blocks) == sum(-(-samples // (block_bytes // item.itemsize)) for _, samples in pieces)
    assert timeline.seconds.keys() == {"read"}
    assert [(span.stage, span.nbytes) for span in timeline.spans] == [("read", block.nbytes) for block in blocks]


def test_default_blocks(tmp_path: Path) -> None:
    chunk = chunk_of(tmp_path / "samples.bin", 2**19 + 1)
    assert [len(block) for block in read_blocks(chunk, Timeline())] == [2**19, 1]
    np.testing.assert_array_equal(values_of(chunk), np.arange(2**19 + 1))


@pytest.mark.parametrize("limit", [1, 3, 399])
def test_short_reads_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_blocks: None, limit: int
) -> None:
    """A network file system may return fewer bytes than requested, and partial samples."""
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: whole(fd, [buffers[0][:limit]], offset))
    np.testing.assert_array_equal(values_of(chunk_of(tmp_path / "samples.bin")), np.arange(1000))


@pytest.mark.parametrize("blocks_before", [0, 1, 5])
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "shrank while it was read: expected 4000 bytes, got 0; run again"),
        (3996, "shrank while it was read: expected 4000 bytes, got 3996; run again"),
        (4004, "grew while it was read: expected 4000 bytes, got 4004; run again"),
    ],
)
def test_size_changes(tmp_path: Path, small_blocks: None, blocks_before: int, size: int, expected: str) -> None:
    """Changed before the first block or between blocks; noticed before the last block counts as read."""
    path = tmp_path / "samples.bin"
    blocks = read_blocks(chunk_of(path), Timeline())
    for _ in range(blocks_before):
        next(blocks)
    os.truncate(path, size)
    with pytest.raises(PipelineError) as caught:
        list(blocks)
    assert str(caught.value).startswith(f"{path}: {expected}")


@pytest.mark.parametrize("blocks_before", [0, 1, 10])
def test_rewritten(tmp_path: Path, small_blocks: None, blocks_before: int) -> None:
    """Also with the same size, and after the last byte was read."""
    path = tmp_path / "samples.bin"
    chunk = chunk_of(path)
    blocks = read_blocks(chunk, Timeline())
    for _ in range(blocks_before):
        next(blocks)
    os.utime(path, ns=(0, chunk.pieces[0].identity.mtime_ns + 1))
    with pytest.raises(PipelineError, match=f"^{path}: was written to while it was read; run again"):
        list(blocks)


def test_nothing_is_read_of_a_changed_file(tmp_path: Path) -> None:
    """Not even the first of many blocks."""
    path = tmp_path / "samples.bin"
    chunk = chunk_of(path)
    os.utime(path, ns=(0, 0))
    with pytest.raises(PipelineError):
        next(read_blocks(chunk, Timeline()))


@pytest.mark.parametrize("blocks_before", [0, 1, 10])
def test_replaced(tmp_path: Path, small_blocks: None, blocks_before: int) -> None:
    """By a file of the same size and times; what was read before is not mixed with it."""
    path, other = tmp_path / "samples.bin", tmp_path / "other.bin"
    chunk = chunk_of(path)
    blocks = read_blocks(chunk, Timeline())
    read = np.concatenate([[], *(next(blocks).copy() for _ in range(blocks_before))])
    other.write_bytes(bytes(4000))
    os.utime(other, ns=(0, path.stat().st_mtime_ns))
    os.replace(other, path)
    change = "removed" if blocks_before else "replaced by another file"
    with pytest.raises(PipelineError, match=f"^{path}: was {change} while it was read; run again"):
        for block in blocks:
            read = np.concatenate([read, block])
    np.testing.assert_array_equal(read, np.arange(len(read)))


def test_second_piece_changes(tmp_path: Path) -> None:
    first, second = (chunk_of(tmp_path / name).pieces[0] for name in ("first.bin", "second.bin"))
    blocks = read_blocks(Chunk(0, (first, second), np.dtype("<i4")), Timeline())
    next(blocks)
    os.truncate(second.path, 8)
    with pytest.raises(PipelineError, match=f"^{second.path}: shrank"):
        list(blocks)


def fail_from(monkeypatch: pytest.MonkeyPatch, place: int, result: Callable[[], int]) -> None:
    """Reads succeed up to a given byte of the file, but are short."""
    whole = os.preadv

    def limited(fd: int, buffers: list[memoryview], offset: int) -> int:
        return whole(fd, [buffers[0][: min(150, place - offset)]], offset) if offset < place else result()

    monkeypatch.setattr(os, "preadv", limited)


@pytest.mark.parametrize("place", [40, 440, 1003])
def test_shrank_and_grew_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_blocks: None, place: int) -> None:
    """A file that ends early despite unchanged size and time is an error, not a shorter input."""
    path = tmp_path / "samples.bin"
    chunk_of(path)
    fail_from(monkeypatch, place, lambda: 0)
    with pytest.raises(PipelineError, match=f"^{path}: ended at byte {place}, expected 4000; run again"):
        values_of(Chunk(0, (piece_of(path, 40),), np.dtype("<i4")))


def test_missing(tmp_path: Path) -> None:
    path = tmp_path / "samples.bin"
    chunk = chunk_of(path)
    path.unlink()
    with pytest.raises(PipelineError, match=f"^{path}: expected the file that was planned, got 'No such file"):
        values_of(chunk)


@pytest.mark.parametrize("place", [40, 440, 1003])
def test_failing_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_blocks: None, place: int) -> None:
    path = tmp_path / "samples.bin"
    chunk_of(path)

    def broken() -> int:
        raise OSError(5, "Input/output error")

    fail_from(monkeypatch, place, broken)
    with pytest.raises(PipelineError, match=f"^{path}: reading at byte {place} failed: Input/output error"):
        values_of(Chunk(0, (piece_of(path, 40),), np.dtype("<i4")))


def test_given_up(tmp_path: Path, small_blocks: None) -> None:
    """Stopping in the middle leaves no file open."""
    blocks = read_blocks(chunk_of(tmp_path / "samples.bin"), Timeline())
    next(blocks)
    assert opened_in(tmp_path) == [str(tmp_path / "samples.bin")]
    blocks.close()  # type: ignore[attr-defined]
    assert opened_in(tmp_path) == []


def test_memory_is_bounded(tmp_path: Path) -> None:
    """64 MiB are read in little more memory than a block."""
    path = tmp_path / "samples.bin"
    path.touch()
    os.truncate(path, 2**26)
    chunk = Chunk(0, (piece_of(path),), np.dtype("<i4"))
    tracemalloc.start()
    try:
        read_samples = sum(len(block) for block in read_blocks(chunk, Timeline()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read_samples == 2**24
    assert peak < 2 * storage_blocks.BLOCK_BYTES


def test_read_ahead_covers_the_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read-ahead requests every byte before its block, and not once per block."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, start, length, advice: asked.append((start, start + length)))
    monkeypatch.setattr(storage_blocks, "BLOCK_BYTES", 400)
    monkeypatch.setattr(storage_blocks, "AHEAD_BYTES", 1600)
    path = tmp_path / "samples.bin"
    chunk_of(path, 2000)
    chunk = Chunk(0, (piece_of(path, 40),), np.dtype("<i4"))
    for number, block in enumerate(read_blocks(chunk, Timeline())):
        assert asked[-1][0] <= 40 + number * 400
        assert asked[-1][1] >= 40 + number * 400 + block.nbytes
    assert len(asked) == 5


@dataclass
class Slow:
    """A block that takes as long to read as it is told."""

    number: int
    read_by: list[tuple[int, str]]
    damaged: bool = False

    def read(self) -> NDArray[Any]:
        self.read_by.append((self.number, threading.current_thread().name))
        time.sleep(0.02 * (3 - self.number % 3))
        if self.damaged:
            raise ValueError("damage")
        return np.full(100, self.number, np.int32)


def test_blocks_are_decoded_ahead_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """By several threads, as many at a time as memory allows; parts of blocks are parts of their samples."""
    monkeypatch.setattr(storage_blocks, "DECODED_BYTES", 3 * 400)
    read_by: list[tuple[int, str]] = []
    pieces = [BlockPiece(Slow(number, read_by), f"b{number}", 400, 40, 200) for number in range(9)]
    for number, samples in enumerate(decoded_ahead(pieces, np.dtype(np.int32))):
        assert samples.tolist() == [number] * 50
        assert len(read_by) <= number + 3
    assert len({name for _, name in read_by} - {threading.current_thread().name}) > 1


def test_first_block_that_cannot_be_decoded_ends_it() -> None:
    pieces = [BlockPiece(Slow(number, [], number == 1), f"b{number}", 400, 0, 400) for number in range(4)]
    blocks = decoded_ahead(pieces, np.dtype(np.int32))
    assert next(blocks)[0] == 0
    with pytest.raises(PipelineError, match="b1: expected a block that can be decoded, got damage"):
        next(blocks)
