"""Files as a plan knows them."""

from __future__ import annotations

from pathlib import Path

from pipeline.storage.identity import Identity, identify
from pipeline.storage.pieces import Piece


def piece_of(path: Path, offset: int = 0, nbytes: int | None = None) -> Piece:
    """A piece of a file as it is now."""
    with path.open("rb") as file:
        identity = identify(str(path), file.fileno())
    return Piece(str(path), offset, identity.size - offset if nbytes is None else nbytes, identity)


def imagined(size: int, mtime_ns: int = 0) -> Identity:
    """Of a file that need not exist."""
    return Identity(size, mtime_ns, None, None, 0, 0)
