"""Bytes on their way to a device: what is said where they do not arrive, and that none are left on their way."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from pipeline.chunks import Piece
from pipeline.errors import PipelineError
from pipeline.transfer import Transfer, finish

PIECE = Piece("a.bin", 100, 50, None, None)


class CudaError(RuntimeError):
    """As CuPy has them."""

    status = 700


def failing(error: Exception, waited: list[Exception]) -> Transfer:
    """A transfer that fails, and notes that somebody waited for it."""

    def get() -> int:
        waited.append(error)
        raise error

    return Transfer(SimpleNamespace(get=get), PIECE, 7, bytes(10))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EIO, os.strerror(errno.EIO)), "a.bin: reading at byte 107 failed: Input/output error"),
        (RuntimeError("no such file\nmore"), "a.bin: reading at byte 107 failed: no such file"),
    ],
)
def test_what_refuses_is_told(error: Exception, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        failing(error, []).result()
    assert str(caught.value) == message


def test_error_of_the_device_stays_what_it_is() -> None:
    """A worker ends by it where the device is lost."""
    with pytest.raises(CudaError):
        failing(CudaError("lost"), []).result()


def test_all_are_waited_for_where_several_fail() -> None:
    """Their memory is given up right after; the first one is told."""
    waited: list[Exception] = []
    errors = [OSError(errno.EIO, "first"), OSError(errno.EIO, "second"), CudaError("third")]
    with pytest.raises(PipelineError, match="first"):
        finish(failing(error, waited) for error in errors)
    assert waited == errors
