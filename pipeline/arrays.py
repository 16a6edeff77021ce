"""Arrays in files, read region by region."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.transpose_cpu import transpose_cpu
from pipeline.chunks import Piece
from pipeline.errors import UsageError
from pipeline.read import fill, open_planned
from pipeline.scattered import read_runs
from pipeline.sources import Source
from workflows.array_workflow import Bounds, Spec, sizes

# Runs that are shorter, and not in the page cache, are read by one thread of a process at a time. Each is a call, after
# which a thread waits for the interpreter; where four do so at once, they read less than half of what one does.
SHORT_RUN = 2**16
_GATHERING = threading.Lock()


@dataclass(frozen=True)
class ArrayFile:
    """An array in one or several files, one after another along its first axis.

    Attributes
    ----------
    spec
        Its shape, and its dtype with byte order.
    pieces
        Where its bytes are.
    fortran
        The first index runs fastest; in a single file only.
    """

    spec: Spec
    pieces: tuple[Piece, ...]
    fortran: bool = False

    def run(self, region: Bounds) -> int:
        """Bytes of a region that lie one after another."""
        return run_of(self.spec.shape, self.spec.dtype.itemsize, region)[0]

    def parts(self, region: Bounds) -> Iterator[tuple[Piece, NDArray[np.int64]]]:
        """Where the bytes of a region are: of each file that has some, its runs.

        Yields
        ------
        piece, runs : int64 array, shape (n, 3)
            First byte in the piece, first byte in the region in C order, number of bytes.
        """
        length, starts = runs_of(self.spec.shape, self.spec.dtype.itemsize, region)
        before = 0  # bytes of the array that lie in files before this one
        for piece in self.pieces:
            after = before + piece.nbytes
            first, stop = np.maximum(starts, before), np.minimum(starts + length, after)
            places = length * np.arange(len(starts)) + first - starts
            runs = np.stack([first - before, places, stop - first], axis=1)[first < stop]
            if len(runs):
                yield piece, runs
            before = after


def join(source: Source) -> ArrayFile:
    """The files of a source as one array.

    Raises
    ------
    UsageError
        If there are several and they cannot follow one another along the first axis.
    """
    first = source.files[0]
    for file in source.files[1:]:
        if file.shape[1:] != first.shape[1:] or not file.shape or file.fortran or first.fortran:
            got = f"{file.shape}{' in Fortran order' if file.fortran else ''}"
            raise UsageError(f"{file.path}: expected an array that goes on with the rows of {first.path}, of shape "
                             f"{first.shape} in C order, got {got}; run them separately")  # fmt: skip
    shape = first.shape
    if len(source.files) > 1:
        shape = (sum(file.shape[0] for file in source.files), *first.shape[1:])
    pieces = tuple(Piece(file.path, file.offset, file.nbytes, file.size, file.mtime_ns) for file in source.files)
    return ArrayFile(Spec(shape, source.dtype), pieces, first.fortran)


def read_region(array: ArrayFile, region: Bounds, allocate: Callable[..., NDArray[Any]] = np.empty) -> NDArray[Any]:
    """Elements of a region in native byte order and C order, in memory from `allocate` where they are so in the file.

    Raises
    ------
    PipelineError
        If a file cannot be read or is no longer the one that was planned.
    """
    if array.fortran:
        # The same bytes are an array in C order with its axes the other way round.
        turned = ArrayFile(Spec(array.spec.shape[::-1], array.spec.dtype), array.pieces)
        return transpose_cpu(read_region(turned, region[::-1]))
    block: NDArray[Any] = allocate(sizes(region), array.spec.dtype)
    if block.nbytes:
        _read_runs(array, region, block.reshape(-1).view(np.uint8))
    return block.astype(block.dtype.newbyteorder("="), copy=False)


def _read_runs(array: ArrayFile, region: Bounds, memory: NDArray[np.uint8]) -> None:
    short = array.run(region) < SHORT_RUN
    for piece, runs in array.parts(region):
        with open_planned(piece) as fd:
            if len(runs) > 1:
                runs = runs[~read_runs(fd, memory, runs + np.array([piece.offset, 0, 0]))]
            left = runs.tolist()
            with _GATHERING if short and left else contextlib.nullcontext():
                for start, _, nbytes in left if short else []:  # so that a disk has them all to do at once
                    os.posix_fadvise(fd, piece.offset + start, nbytes, os.POSIX_FADV_WILLNEED)
                for start, at, nbytes in left:
                    fill(fd, memory.data[at : at + nbytes], piece, start)


def runs_of(shape: tuple[int, ...], itemsize: int, region: Bounds) -> tuple[int, NDArray[np.int64]]:
    """Bytes of a run of a region of an array in C order, and where in the array each run begins."""
    length, axis = run_of(shape, itemsize, region)
    starts = np.zeros(1, np.int64)
    for outer in range(axis):
        stride = prod(shape[outer + 1 :]) * itemsize
        starts = (starts[:, None] + np.arange(*region[outer]) * stride).reshape(-1)
    first = region[axis][0] * prod(shape[axis + 1 :]) * itemsize if shape else 0
    return length, starts + first


def run_of(shape: tuple[int, ...], itemsize: int, region: Bounds) -> tuple[int, int]:
    """Bytes of a run, and the axis along which runs are cut: there is one for each index of those before it."""
    axis = len(shape)
    length = itemsize
    while axis and (axis == len(shape) or region[axis] == (0, shape[axis])):
        axis -= 1
        length *= region[axis][1] - region[axis][0]
    return length, axis
