"""Planned files that are read repeatedly: opened once while cached, and changes are noticed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.storage import planned_file
from pipeline.storage.chunks import Chunk
from tests.cases.files import opened_in, piece_of


def chunk_of(path: Path, samples: int = 1000) -> Chunk:
    """Write a file of int32 samples; a chunk of all of it."""
    np.arange(samples, dtype="<i4").tofile(path)
    return Chunk(0, (piece_of(path),), np.dtype("<i4"))


@pytest.fixture(autouse=True)
def nothing_stays_open(tmp_path: Path) -> Iterator[None]:
    yield
    assert opened_in(tmp_path) == []


def test_files_are_opened_once_as_far_as_they_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more, **named: (names.append(Path(path).name), real(path, *more, **named))[1]
    )
    pieces = [chunk_of(tmp_path / str(number)).pieces[0] for number in range(planned_file.KEPT_OPEN + 2)]
    with planned_file.kept_open() as opened:
        for _ in range(3):
            for number, piece in enumerate(pieces):
                with opened(piece) as fd:
                    assert os.pread(fd, 8, 4 * number) == np.array([number, number + 1], "<i4").tobytes()
        assert len(opened_in(tmp_path)) == planned_file.KEPT_OPEN
    assert names == [*map(str, range(len(pieces))), *["8", "9"] * 2]


@pytest.mark.parametrize("number", [0, planned_file.KEPT_OPEN])
def test_kept_files_that_change_are_noticed(tmp_path: Path, number: int) -> None:
    pieces = [chunk_of(tmp_path / str(name)).pieces[0] for name in range(planned_file.KEPT_OPEN + 1)]
    with pytest.raises(PipelineError, match=rf"{number}: shrank while it was read"), planned_file.kept_open() as opened:
        for piece in pieces:
            with opened(piece):
                if piece is pieces[number]:
                    os.truncate(piece.path, 8)


def test_missing_file_is_not_kept(tmp_path: Path) -> None:
    piece = chunk_of(tmp_path / "a").pieces[0]
    os.unlink(piece.path)
    with planned_file.kept_open() as opened:
        for _ in range(2):
            with pytest.raises(PipelineError, match="expected the file that was planned"), opened(piece):
                pass


def test_stored_blocks_that_lie_close_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they are asked for: backwards, overlapping, apart, empty, and of two files."""
    content = np.random.default_rng(0).bytes(1000)
    monkeypatch.setattr(planned_file, "RUN_BYTES", 100)
    monkeypatch.setattr(planned_file, "GAP_BYTES", 10)
    reads: list[int] = []
    real = planned_file.fill
    monkeypatch.setattr(
        planned_file, "fill", lambda fd, block, *more: (reads.append(len(block)), real(fd, block, *more))
    )
    for name in "ab":
        (tmp_path / name).write_bytes(content)
    places = [
        (0, 30),
        (30, 30),
        (70, 30),
        (100, 1),
        (500, 20),
        (490, 10),
        (495, 20),
        (531, 5),
        (0, 0),
        (0, 300),
        (305, 9),
    ]
    a, b = piece_of(tmp_path / "a"), piece_of(tmp_path / "b")
    pieces = [one.cut(*place) for one in (a, b) for place in places]
    stored = [bytes(block) for block in planned_file.stored_bytes(iter(pieces))]
    assert stored == [content[start : start + nbytes] for start, nbytes in places] * 2
    assert reads == [100, 1, 20, 10, 20, 5, 0, 300, 9] * 2


def test_file_that_ends_within_stored_blocks(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    piece = piece_of(tmp_path / "a")
    blocks = planned_file.stored_bytes([piece.cut(0, 400), piece.cut(400, 600)])
    os.truncate(tmp_path / "a", 900)
    with pytest.raises(PipelineError, match="a: shrank while it was read"):
        list(blocks)
