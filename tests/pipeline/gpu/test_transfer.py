"""Transfers to a device: errors when they fail, and no transfer left in flight."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.gpu.pinned import RefusedError
from pipeline.gpu.transfer import Gathered, Transfer, _Reads, finish
from pipeline.storage.files import whole
from pipeline.storage.pieces import Piece

PIECE = Piece("a.bin", 100, 50, None)


class CudaError(RuntimeError):
    """As CuPy has them."""

    status = 700


def failing(error: Exception, waited: list[Exception]) -> Transfer:
    """A failing transfer that records whether it was waited for."""

    def get() -> int:
        waited.append(error)
        raise error

    return Transfer(SimpleNamespace(get=get), PIECE, 7, bytes(10))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.EIO, os.strerror(errno.EIO)),
            "a.bin: reading at byte 107 failed: Input/output error; check the disk",
        ),
        (RuntimeError("no such file\nmore"), "a.bin: reading at byte 107 failed: no such file; check the disk"),
    ],
)
def test_what_refuses_is_told(error: Exception, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        failing(error, []).result()
    assert str(caught.value) == message


@pytest.mark.parametrize(("number", "reason"), [(errno.EIO, "Input/output error"),
                                               (errno.ESTALE, "it changed meanwhile")])  # fmt: skip
def test_what_refuses_one_of_several_files_is_told(tmp_path: Path, number: int, reason: str) -> None:
    """By the file itself if it is not the planned one, else by the system's reason."""
    (tmp_path / "a.bin").write_bytes(b"12345")
    files = [PIECE, whole(str(tmp_path / "a.bin"))]

    def get() -> int:
        error = RefusedError(number, os.strerror(number))
        error.file, error.offset = 1, 3
        raise error

    gathered = Gathered(SimpleNamespace(get=get), files, bytes(10))
    with pytest.raises(PipelineError, match=rf"a\.bin: reading at byte 3 failed: {reason}; check the disk$"):
        gathered.result()
    (tmp_path / "a.bin").write_bytes(b"1234")
    with pytest.raises(PipelineError, match=r"a\.bin: shrank while it was read: expected 5 bytes, got 4"):
        gathered.result()
    os.unlink(tmp_path / "a.bin")
    with pytest.raises(PipelineError, match=r"a\.bin: expected the file that was planned, got 'No such file"):
        gathered.result()


def test_error_of_the_device_stays_what_it_is() -> None:
    """It ends the worker if the device is lost."""
    with pytest.raises(CudaError):
        failing(CudaError("lost"), []).result()


class Reads:
    """A file of kvikio of which some reads cannot be started and others fail; `ended` are those waited for."""

    def __init__(self, unstarted: int, failing: tuple[int, ...]) -> None:
        self.unstarted, self.failing, self.started = unstarted, failing, 0
        self.ended: list[int] = []
        self.asked: list[tuple[int, bytes]] = []

    def pread(self, target: bytes, nbytes: int, offset: int) -> Any:
        number, self.started = self.started, self.started + 1
        if number == self.unstarted:
            raise RuntimeError("not started")
        assert len(target) == nbytes
        self.asked.append((offset, target))

        def get() -> int:
            self.ended.append(number)
            if number in self.failing:
                raise RuntimeError(f"failed {number}")
            return nbytes

        return SimpleNamespace(get=get)


def test_kvikio_reads_run_by_run() -> None:
    file = Reads(-1, ())
    assert _Reads(file, b"abcdefghi", np.array([[100, 2], [7, 3], [0, 4]])).get() == 9
    assert file.asked == [(100, b"ab"), (7, b"cde"), (0, b"fghi")]
    assert file.ended == [0, 1, 2]


@pytest.mark.parametrize(("unstarted", "failing", "message"), [(2, (), "not started"), (2, (0,), "not started"),
                                                               (-1, (0, 2), "failed 0")])  # fmt: skip
def test_all_reads_of_kvikio_are_waited_for(unstarted: int, failing: tuple[int, ...], message: str) -> None:
    file = Reads(unstarted, failing)
    with pytest.raises(RuntimeError, match=message):
        _Reads(file, bytes(9), np.array([[100, 2], [7, 3], [0, 4]])).get()
    assert file.ended == list(range(2 if unstarted == 2 else 3))


def test_all_are_waited_for_where_several_fail() -> None:
    """Their memory is released right after; the first error is reported."""
    waited: list[Exception] = []
    errors = [OSError(errno.EIO, "first"), OSError(errno.EIO, "second"), CudaError("third")]
    with pytest.raises(PipelineError, match="first"):
        finish(failing(error, waited) for error in errors)
    assert waited == errors
