"""Files of samples, as a plan knows them, and how they are refused."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.storage.identity import Identity, identify
from pipeline.storage.pieces import Piece
from pipeline.storage.sources import open_source


def piece_of(path: Path, offset: int = 0, nbytes: int | None = None) -> Piece:
    """A piece of a file as it is now."""
    with path.open("rb") as file:
        identity = identify(str(path), file.fileno())
    return Piece(str(path), offset, identity.size - offset if nbytes is None else nbytes, identity)


def imagined(size: int, mtime_ns: int = 0) -> Identity:
    """Of a file that need not exist."""
    return Identity(size, mtime_ns, None, None, 0, 0)


def opened_in(folder: Path) -> list[str]:
    """What this process has open in a folder. Threads that earlier tests left may open and close other files."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return [name for name in names if Path(name).is_relative_to(folder)]


def values_of(source: Any) -> np.ndarray[Any, Any]:
    """The samples, read the plain way."""
    count = source.dtype.itemsize
    parts = [np.fromfile(file.path, source.dtype, file.nbytes // count, offset=file.offset) for file in source.files]
    return np.concatenate(parts)


def some(dtype: str, samples: int = 7) -> np.ndarray[Any, Any]:
    """Samples whose bytes all differ, so that any shift or swap shows."""
    return np.arange(1, samples * np.dtype(dtype).itemsize + 1, dtype=np.uint8).view(dtype)


def refused(error: type[PipelineError], *patterns: str | Path, **keywords: Any) -> str:
    """The one-line error of opening; exactly this class, because it decides the exit status."""
    with pytest.raises(error) as caught:
        open_source(tuple(map(str, patterns)), **keywords)
    message = str(caught.value)
    assert caught.type is error
    assert "\n" not in message
    assert "expected" in message
    return message
