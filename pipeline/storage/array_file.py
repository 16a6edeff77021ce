"""Arrays in files, read region by region."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.transpose.check import is_transpose
from kernels.transpose.cpu import transpose_cpu
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.alike import with_table
from pipeline.storage.files import Files, SourceFile
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import Opened, fill, open_planned
from pipeline.storage.protocol import RegionFiller, Source
from pipeline.storage.read_runs import read_runs
from pipeline.storage.scratch import aligned_empty
from workflows.regions import Bounds, Spec, sizes

# Shorter runs that are not in the page cache are read by one thread per process at a time. Each run is a call that
# waits for the GIL on return; four threads together read less than half of what one does alone.
SHORT_RUN = 2**16
_GATHERING = threading.Lock()
KEPT_RUNS = 2**13  # of a region, at most


@dataclass(frozen=True)
class ArrayFile:
    """An array in one or several files, concatenated along its first axis.

    Attributes
    ----------
    spec
        Its shape, and its dtype with byte order.
    pieces
        The byte runs of the files.
    fortran
        Whether the first index varies fastest; only for a single file.
    called
        What the files are called, if not by their paths.
    """

    spec: Spec
    pieces: tuple[Piece, ...]
    fortran: bool = False
    called: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files, for messages and reports."""
        return self.called or tuple(piece.path for piece in self.pieces)

    def run(self, region: Bounds) -> int:
        """Length of a region's contiguous byte runs."""
        return run_of(self.spec.shape, self.spec.dtype.itemsize, region)[0]

    def parts(self, region: Bounds) -> Iterator[tuple[Piece, int, NDArray[np.int64]]]:
        """Where the bytes of a region are: the byte runs in each file.

        Yields
        ------
        piece, first, runs : int64 array, shape (n, 3)
            First byte in the piece, after the byte `first` of it; first byte in the region in C order; number of bytes.
        """
        shape, itemsize = self.spec.shape, self.spec.dtype.itemsize
        if len(self.pieces) == 1:
            begin = sum(start * prod(shape[axis + 1 :]) for axis, (start, _) in enumerate(region)) * itemsize
            yield self.pieces[0], begin, _runs_from_zero(shape, itemsize, sizes(region))
            return
        length, starts = runs_of(shape, itemsize, region)
        before = 0  # bytes in the files before this one
        for piece in self.pieces:
            after = before + piece.nbytes
            if len(starts) and not (before < starts[-1] + length and starts[0] < after):
                before = after
                continue
            first, stop = np.maximum(starts, before), np.minimum(starts + length, after)
            places = length * np.arange(len(starts)) + first - starts
            runs = np.stack([first - before, places, stop - first], axis=1)[first < stop]
            if len(runs):
                yield piece, 0, runs
            before = after


@dataclass(frozen=True)
class FilledArray(ArrayFile):
    """An array whose regions are filled by an object: in memory, or in a custom format."""

    filler: RegionFiller | None = None

    def run(self, region: Bounds) -> int:
        """0: it has no byte runs."""
        return 0


def join(source: Source) -> ArrayFile:
    """A source as one array.

    Raises
    ------
    UsageError
        If its parts cannot be concatenated along the first axis, or its regions cannot be read.
    """
    runs = tuple(piece for piece in source.parts if isinstance(piece, Piece)) if isinstance(source, PieceSource) else ()
    if isinstance(source, PieceSource) and len(runs) == len(source.parts):
        return _local(ArrayFile(Spec(source.shape, source.dtype), runs, called=source.names))
    if not isinstance(source, Files):
        if source.shape is None or source.regions is None:
            if (number := len(source.names)) > 1:
                raise UsageError(f"{source.names[0]}: expected one array, or several that are byte runs, got {number}, "
                                 "some of them decoded; write them to one .npy file")  # fmt: skip
            raise UsageError(f"{source.names[0]}: expected an array that is stored in one piece, in chunks or in "
                             "memory, got another one; write the array to one .npy file")  # fmt: skip
        return FilledArray(Spec(source.shape, source.dtype), (), False, source.names, source.regions)
    first = source.files[0]
    for file in source.files[1:]:
        alike = len(file.shape) == len(first.shape) > 0 and file.shape[1:] == first.shape[1:]
        if not alike or file.fortran or first.fortran:
            got = f"{file.shape}{_order(file)}"
            error = UsageError(f"{file.path}: expected an array that goes on with the rows of {first.path}, of shape "
                               f"{first.shape} in C order, got {got}; run them separately")  # fmt: skip
            raise with_table(error, [(_rows(one), one.path) for one in source.files])
    shape = first.shape
    if len(source.files) > 1:
        shape = (sum(file.shape[0] for file in source.files), *first.shape[1:])
    pieces = tuple(file.piece() for file in source.files)
    return _local(ArrayFile(Spec(shape, source.dtype), pieces, first.fortran, source.names))


def _local(array: ArrayFile) -> ArrayFile:
    """The array, read by an object if it is not on this machine."""
    if any(piece.remote for piece in array.pieces):
        return FilledArray(array.spec, (), False, array.names, _Remote(array))
    return array


@dataclass(frozen=True)
class _Remote:
    """Fills regions with elements of an array in remote objects."""

    array: ArrayFile

    def fill_region(self, region: Bounds, block: NDArray[Any]) -> None:
        """Read into the block itself where both are in C order."""
        if self.array.fortran or not block.flags.c_contiguous:
            block[...] = read_region(self.array, region)
        else:
            read_region(self.array, region, lambda *_: block)


def _rows(file: SourceFile) -> str:
    """Shape and order, without the number of rows."""
    return f"({', '.join(map(str, ('rows', *file.shape[1:]) if file.shape else ()))}){_order(file)}"


def _order(file: SourceFile) -> str:
    return " in Fortran order" if file.fortran else ""


@dataclass(frozen=True)
class Stored:
    """Fills regions with elements of a dtype, as bytes of its native variant."""

    filler: RegionFiller
    dtype: np.dtype[Any]

    def fill_region(self, region: Bounds, block: NDArray[Any]) -> None:
        self.filler.fill_region(region, block.view(self.dtype))


def as_stored(array: ArrayFile) -> ArrayFile:
    """The array with every byte as it is, of the native variant of its dtype: for jobs that only move elements."""
    spec = Spec(array.spec.shape, array.spec.dtype.newbyteorder("="))
    if isinstance(array, FilledArray):
        assert array.filler is not None
        return replace(array, spec=spec, filler=Stored(array.filler, array.spec.dtype))
    return replace(array, spec=spec)


def read_region(
    array: ArrayFile,
    region: Bounds,
    allocate: Callable[..., NDArray[Any]] = aligned_empty,
    opened: Opened = open_planned,
) -> NDArray[Any]:
    """Elements of a region in native byte order and C order; in memory from `allocate` if the file has both orders.

    Raises
    ------
    PipelineError
        If a file cannot be read or is no longer the one that was planned.
    """
    block: NDArray[Any]
    if array.fortran:
        # The same bytes are an array in C order with its axes reversed.
        turned = ArrayFile(Spec(array.spec.shape[::-1], array.spec.dtype), array.pieces)
        stored = read_region(turned, region[::-1], opened=opened)
        block = transpose_cpu(stored)
        if not is_transpose(block, stored):  # compute and check would both use the wrong elements
            raise PipelineError(f"{array.pieces[0].path}: expected to read {array.spec} in Fortran order in C order, "
                                "got other elements; report this")  # fmt: skip
        return block
    block = allocate(sizes(region), array.spec.dtype)
    if isinstance(array, FilledArray):
        assert array.filler is not None
        array.filler.fill_region(region, block)
    elif block.nbytes:
        _read_runs(array, region, block.reshape(-1).view(np.uint8), opened)
    return block.astype(block.dtype.newbyteorder("="), copy=False)


def is_plain(array: ArrayFile) -> bool:
    """Whether elements are read to their place in memory as they are in files."""
    return type(array) is ArrayFile and not array.fortran and array.spec.dtype.isnative


def _read_runs(array: ArrayFile, region: Bounds, memory: NDArray[np.uint8], opened: Opened) -> None:
    short = array.run(region) < SHORT_RUN
    for piece, first, runs in array.parts(region):
        if piece.remote:
            from pipeline.storage.remote.runs import read_runs_of_object

            read_runs_of_object(piece, first, runs, memory)
            continue
        with opened(piece) as fd:
            left = runs if len(runs) == 1 else runs[read_runs(fd, memory, runs, piece.offset + first)]
            with _GATHERING if short and len(left) else contextlib.nullcontext():
                for start, _, nbytes in left.tolist() if short else []:  # so that the disk gets all of them at once
                    os.posix_fadvise(fd, piece.offset + first + start, nbytes, os.POSIX_FADV_WILLNEED)
                for start, at, nbytes in left.tolist():
                    fill(fd, memory.data[at : at + nbytes], piece, first + start)


def _runs_from_zero(shape: tuple[int, ...], itemsize: int, lengths: tuple[int, ...]) -> NDArray[np.int64]:
    """Runs of a region with these lengths at the origin of an array; cached, so not to be modified."""
    _, axis = run_of(shape, itemsize, tuple((0, length) for length in lengths))
    return (_runs_kept if prod(lengths[:axis]) <= KEPT_RUNS else _runs)(shape, itemsize, lengths)


def _runs(shape: tuple[int, ...], itemsize: int, lengths: tuple[int, ...]) -> NDArray[np.int64]:
    length, starts = runs_of(shape, itemsize, tuple((0, end) for end in lengths))
    return np.stack([starts, length * np.arange(len(starts)), np.full(len(starts), length)], axis=1)


# Successive regions have runs at the same strides, and each NumPy call may have to wait for the GIL.
_runs_kept = lru_cache(maxsize=64)(_runs)


def runs_of(shape: tuple[int, ...], itemsize: int, region: Bounds) -> tuple[int, NDArray[np.int64]]:
    """Length of the byte runs of a region of an array in C order, and the offset of each run in the array."""
    length, axis = run_of(shape, itemsize, region)
    starts = np.zeros(1, np.int64)
    for outer in range(axis):
        stride = prod(shape[outer + 1 :]) * itemsize
        starts = (starts[:, None] + np.arange(*region[outer]) * stride).reshape(-1)
    first = region[axis][0] * prod(shape[axis + 1 :]) * itemsize if shape else 0
    return length, starts + first


def run_of(shape: tuple[int, ...], itemsize: int, region: Bounds) -> tuple[int, int]:
    """Length of a run, and the axis along which runs are cut: there is one for each index of the axes before it."""
    axis = len(shape)
    length = itemsize
    while axis and (axis == len(shape) or region[axis] == (0, shape[axis])):
        axis -= 1
        length *= region[axis][1] - region[axis][0]
    return length, axis
