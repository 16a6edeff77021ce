"""A file that gets its name once it is whole, for tests of what happens until then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from pipeline.storage.atomic_file import reserved
from pipeline.storage.leftovers import Resumable


@contextmanager
def whole_file(
    path: str | os.PathLike[str], nbytes: int, keep: bool = False, later: Resumable | None = None
) -> Iterator[BinaryIO]:
    """`Target.whole` of a path that is reserved meanwhile."""
    with reserved(path) as target, target.whole(nbytes, keep, later) as file:
        yield file
