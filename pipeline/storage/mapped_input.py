"""Regions of arrays in files as views of a mapping: nothing is copied, and no new memory has to be filled with zeros.

Only for a process that may die: whoever touches a page beyond the end of a file that has shrunk is killed.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.array_file import ArrayFile, is_plain, read_region
from pipeline.storage.mapped_output import advise, region_at
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import Opened
from workflows.regions import Bounds, sizes

MADV_POPULATE_READ = 22  # since Linux 5.14; without it pages are faulted in some at a time
AT_ONCE = 2**26  # bytes that one thread asks for, at most; what is larger, several threads touch


class MappedFiles:
    """Maps files when they are first read, and keeps them mapped."""

    def __init__(self) -> None:
        self._memory: dict[Piece, NDArray[np.uint8]] = {}
        self._lock = Lock()

    def region(
        self, array: ArrayFile, region: Bounds, allocate: Callable[..., NDArray[Any]], opened: Opened
    ) -> NDArray[Any]:
        """As `read_region`; a view of the file, not to be written to, where its bytes are the elements in C order."""
        if not _is_view(array) or 0 in sizes(region):
            return read_region(array, region, allocate, opened)
        (piece,) = array.pieces
        with opened(piece) as fd:
            with self._lock:
                if piece not in self._memory:
                    file = mmap.mmap(fd, piece.offset + piece.nbytes, access=mmap.ACCESS_READ)
                    self._memory[piece] = np.frombuffer(file, np.uint8)
            elements = region_at(self._memory[piece].ctypes.data + piece.offset, array.spec, region)
            if elements.flags.c_contiguous and elements.nbytes <= AT_ONCE:
                advise(elements.ctypes.data, elements.nbytes, MADV_POPULATE_READ)
        return elements


def _is_view(array: ArrayFile) -> bool:
    """Whether a region is a view of one file on this machine."""
    if not is_plain(array) or len(array.pieces) != 1:
        return False
    (piece,) = array.pieces
    return not piece.remote and piece.offset % array.spec.dtype.alignment == 0
