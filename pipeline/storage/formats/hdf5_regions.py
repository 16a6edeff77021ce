"""Data sets of HDF5 files by links within the file, and their elements as HDF5 itself reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.formats.common import library
from pipeline.storage.formats.hdf5_filters import Filter, begin_of, check_declared, filters_of, missing, outer_of
from pipeline.storage.formats.places import Places
from pipeline.storage.formats.slabs import Grid
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import file_for_library, stored_bytes

WHAT = "an HDF5 file"
MOST_LINKS = 64  # on the way to a member
AT_ONCE = 2**11  # chunks that HDF5 reads: it takes 13 KB for each


@contextmanager
def opened_file(file: Piece) -> Iterator[Any]:
    """The planned file, whatever has its name now, as h5py sees it."""
    with library(file.path, WHAT, "hdf5"):
        import h5py
    with file_for_library(file) as name, h5py.File(name, "r", locking=False, rdcc_nbytes=0) as opened:
        yield opened


def find(opened: Any, name: str) -> Any:
    """A data set, by links within the file only; KeyError or ValueError if there is none."""
    import h5py

    parts, node, links = _steps(name), opened, 0
    while parts:
        part, links = parts.pop(), links + 1
        link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
        if link is None or links > MOST_LINKS:
            raise KeyError(f"no {part!r}")
        if isinstance(link, h5py.SoftLink):
            parts += _steps(link.path)
            node = opened if link.path.startswith("/") else node
        elif isinstance(link, h5py.HardLink):
            node = node[part]
        else:
            raise ValueError(f"{part!r}, a link to another file")
    return node


def _steps(name: str) -> list[str]:
    """The last one first; `.` is the group itself."""
    return [step for step in reversed(name.split("/")) if step not in ("", ".")]


@dataclass(frozen=True)
class Regions:
    """What has HDF5 read elements."""

    file: Piece
    member: str
    grid: Grid
    filters: list[Filter]
    places: Places
    masks: NDArray[np.int64]
    fill: bytes

    def __call__(self, ranges: tuple[range, ...]) -> Region:
        crossed = list(product(*self.grid.hit(ranges)))
        hit = ((self.places.piece(index), int(self.masks[index])) for index in crossed)
        chunks = tuple((piece, outer) for piece, mask in hit if piece and (outer := outer_of(self.filters, mask)))
        how = self.grid.dtype, self.fill, chunks, self.grid.chunk_bytes, len(crossed)
        return Region(self.file, self.member, ranges, *how)


@dataclass(frozen=True)
class Region:
    """Has HDF5 read the elements at products of indices, with whatever filters."""

    file: Piece
    member: str
    ranges: tuple[range, ...]
    dtype: np.dtype[Any]
    fill: bytes  # HDF5 leaves what was never written as it is if its fill value is never to be written
    chunks: tuple[tuple[Piece, Filter], ...]
    chunk_bytes: int
    crossed: int  # chunks, encoded or not

    def read(self) -> NDArray[Any]:
        """The samples."""
        begins = (begin_of(chunk, outer) for chunk, outer in self.chunks)
        for (_, outer), begin in zip(self.chunks, stored_bytes(begins), strict=True):
            check_declared(begin, outer, self.chunk_bytes)
        with opened_file(self.file) as opened:
            data = find(opened, self.member)
            missing(filters_of(data))  # registers them in this process, too
            axis = max(range(len(self.ranges)), key=lambda one: len(self.ranges[one]), default=0)
            samples, done = np.full([*map(len, self.ranges)], np.frombuffer(self.fill, self.dtype)[0], self.dtype), 0
            for part in self._parts(axis):
                target = (*map(slice, samples.shape[:axis]), slice(done, done := done + len(part[axis])))
                data.read_direct(samples, tuple(slice(one.start, one.stop, one.step) for one in part), target)
        return samples.reshape(-1)

    def _parts(self, axis: int) -> Iterator[tuple[range, ...]]:
        """Ranges along an axis that cross few chunks each."""
        if self.crossed <= AT_ONCE:
            yield self.ranges
            return
        long = self.ranges[axis]
        step = -(-len(long) // -(-self.crossed // AT_ONCE))
        for first in range(0, len(long), step):
            yield (*self.ranges[:axis], long[first : first + step], *self.ranges[axis + 1 :])
