"""What reads brought from storage and what they cost; and a file system that takes no advice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.estimate.storage import uncached
from pipeline.storage import page_cache
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Chunk
from pipeline.storage.page_cache import Fetching, give_back
from pipeline.timeline import Timeline
from tests.cases.files import piece_of

SAMPLES = np.arange(2**20, dtype=np.int32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is in memory and on the disk."""
    with open(tmp_path / "samples.bin", "wb") as file:
        SAMPLES.tofile(file)
        file.flush()
        os.fsync(file.fileno())
    return tmp_path / "samples.bin"


def chunk_of(*paths: Path, offset: int = 0) -> Chunk:
    return Chunk(0, tuple(piece_of(path, offset) for path in paths), SAMPLES.dtype)


def read(chunk: Chunk) -> Fetching:
    measured = Fetching()
    blocks = [block.copy() for block in read_blocks(chunk, Timeline(), measured)]
    np.testing.assert_array_equal(np.concatenate(blocks), np.tile(SAMPLES, len(chunk.pieces)))
    return measured


def test_only_reads_of_storage_count(path: Path) -> None:
    """Once the pages were given back, all of them come from storage, and a second read finds them in memory."""
    assert read(chunk_of(path)).nbytes == 0
    give_back(chunk_of(path))
    absent, _ = uncached(str(path))
    if not absent:
        pytest.skip("this file system keeps everything in memory")
    assert read(chunk_of(path)).nbytes >= absent == SAMPLES.nbytes
    assert read(chunk_of(path)).nbytes == 0 == uncached(str(path))[0]


def test_seconds_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the time of a read what its thread did not compute it waited; also of one that fails."""
    wall, cpu, sectors = iter([10.0, 17.0, 20.0, 21.0]), iter([1.0, 3.0, 5.0, 5.5]), iter([7, 9, 100, 103])
    monkeypatch.setattr(page_cache, "perf_counter", lambda: next(wall))
    monkeypatch.setattr(page_cache, "thread_time", lambda: next(cpu))
    monkeypatch.setattr(page_cache, "_sectors", lambda: next(sectors))
    measured = Fetching()
    with measured.reading():
        pass
    assert (measured.copying, measured.waiting, measured.nbytes) == (2, 5, 1024)
    with pytest.raises(OSError, match="torn"), measured.reading():
        raise OSError("torn")
    assert (measured.copying, measured.waiting, measured.nbytes) == (2.5, 5.5, 1024 + 1536)


def test_a_file_system_that_takes_no_advice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is read all the same."""
    refused: list[int] = []

    def refuse(fd: int, start: int, nbytes: int, advice: int) -> None:
        refused.append(advice)
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    read(chunk_of(path))
    give_back(chunk_of(path, path))
    assert refused == [os.POSIX_FADV_WILLNEED] + 2 * [os.POSIX_FADV_DONTNEED]


def test_bytes_are_given_back_as_they_are_in_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []

    def take(fd: int, *of: int) -> None:
        given.append((os.readlink(f"/proc/self/fd/{fd}"), *of))

    monkeypatch.setattr(os, "posix_fadvise", take)
    give_back(chunk_of(path, offset=4096))
    assert given == [(str(path), 4096, SAMPLES.nbytes - 4096, os.POSIX_FADV_DONTNEED)]


@pytest.mark.parametrize(("size", "change"), [(4096, "shrank"), (2 * SAMPLES.nbytes, "grew")])
def test_pages_of_another_file_stay(path: Path, size: int, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = chunk_of(path)
    os.truncate(path, size)
    monkeypatch.setattr(os, "posix_fadvise", lambda *of: pytest.fail("pages of a file that was not planned"))
    with pytest.raises(PipelineError, match=change):
        give_back(chunk)
