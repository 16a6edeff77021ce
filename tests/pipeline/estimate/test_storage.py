"""Which parts of a file are in memory, and how fast the others are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.estimate import storage
from pipeline.estimate.storage import WINDOW, rate, uncached


def write(path: Path, nbytes: int) -> None:
    with open(path, "wb") as file:
        file.write(os.urandom(WINDOW) * (nbytes // WINDOW) + b"\1" * (nbytes % WINDOW))
        file.flush()
        os.fsync(file.fileno())


def drop(path: Path) -> None:
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("nbytes", [1, 4097, 5 * WINDOW + 123])
def test_a_file_that_was_just_written_is_in_memory(tmp_path: Path, nbytes: int) -> None:
    write(tmp_path / "file", nbytes)
    (tmp_path / "file").read_bytes()
    assert uncached(str(tmp_path / "file")) == (0, [])


def test_a_file_that_is_not_in_memory(tmp_path: Path) -> None:
    path, nbytes = tmp_path / "file", 8 * WINDOW
    write(path, nbytes)
    drop(path)
    absent, places = uncached(str(path))
    if not absent:
        pytest.skip("this file system keeps everything in memory")
    assert (absent, places) == (nbytes, [place * WINDOW for place in range(8)])
    measured = rate(str(path), places)
    assert measured is None or measured > 0
    assert uncached(str(path)) == (absent, places)  # direct reads and looking bring nothing into memory


def test_a_large_file_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "WINDOWS", 4)
    assert len(list(storage._starts(1000 * WINDOW))) <= 5
    assert list(storage._starts(3 * WINDOW + 1)) == [0, WINDOW, 2 * WINDOW, 3 * WINDOW]


def test_what_cannot_be_looked_at_counts_as_in_memory(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("empty", "missing", "."):
        assert uncached(str(tmp_path / name)) == (0, [])
    assert rate(str(tmp_path / "missing"), [0]) is None
    write(tmp_path / "file", WINDOW)
    assert rate(str(tmp_path / "file"), []) is None
