"""Arrays in files, read and written region by region: inputs in place, the output in a file that is not there yet."""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.transpose import transpose_cpu
from pipeline.chunks import Piece
from pipeline.errors import PipelineError, UsageError
from pipeline.files import whole_file
from pipeline.read import fill, open_planned
from pipeline.sources import Source
from workflows.array_workflow import Bounds, Spec, sizes

# Runs of the output that are shorter are copied through a mapping of it: one call for all of them, which lets other
# threads go on meanwhile. A call for each would spend its time handing over the interpreter. Inputs are not mapped:
# one that somebody shortens meanwhile has to be a message, through a mapping it would be the end of the process.
MAPPED_BELOW = 2**16
# Runs that are touched before the pages that they lie on are given back.
MAPPED_RUNS = 64


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
        return _runs(self.spec.shape, self.spec.dtype.itemsize, region)[0]

    def parts(self, region: Bounds) -> Iterator[tuple[Piece, list[tuple[int, int, int]]]]:
        """Where the bytes of a region are: of each file that has some, its runs.

        Yields
        ------
        piece, runs
            First byte in the piece, first byte in the region in C order, number of bytes.
        """
        length, starts = _runs(self.spec.shape, self.spec.dtype.itemsize, region)
        before = 0  # bytes of the array that lie in files before this one
        for piece in self.pieces:
            after = before + piece.nbytes
            runs = []
            for number, start in enumerate(starts):
                first, stop = max(start, before), min(start + length, after)
                if first < stop:
                    runs.append((first - before, number * length + first - start, stop - first))
            if runs:
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
        _read_runs(array, region, block.reshape(-1).view(np.uint8).data)
    return block.astype(block.dtype.newbyteorder("="), copy=False)


def _read_runs(array: ArrayFile, region: Bounds, buffer: memoryview) -> None:
    for piece, runs in array.parts(region):
        with open_planned(piece) as fd:
            for start, at, nbytes in runs:
                fill(fd, buffer[at : at + nbytes], piece, start)


@dataclass(frozen=True)
class OutputFile:
    """An array that is being written under a temporary name.

    Attributes
    ----------
    path
        The temporary one.
    offset
        Of the first element.
    spec
        Its shape and dtype.
    mappable
        The file system has promised room for all of it, so that writing through a mapping cannot fail for want of it.
    """

    path: str
    offset: int
    spec: Spec
    mappable: bool

    def read(self, region: Bounds) -> NDArray[Any]:
        """What lies in a region now, in C order."""
        if not self._better_mapped(region):
            return read_region(self.readable(), region)
        block = np.empty(sizes(region), self.spec.dtype)
        with self._mapped(mmap.ACCESS_READ) as (array, mapping):
            for inside, outside in _slabs(region):
                block[inside] = array[outside]
                mapping.madvise(mmap.MADV_DONTNEED)
        return block

    def readable(self) -> ArrayFile:
        """It as an input, to check what lies there."""
        status = os.stat(self.path)
        piece = Piece(self.path, self.offset, self.spec.nbytes, status.st_size, None)
        return ArrayFile(self.spec, (piece,))

    def write(self, region: Bounds, block: NDArray[Any]) -> None:
        """Write a region; several may write at a time, each its own.

        Raises
        ------
        PipelineError
            If the disk refuses.
        """
        expected = Spec(sizes(region), self.spec.dtype)
        if block.shape != expected.shape or block.dtype != expected.dtype:
            raise PipelineError(f"expected a block of {expected}, got {Spec(block.shape, block.dtype)}")
        if not block.nbytes:
            return
        if self._better_mapped(region):
            with self._mapped(mmap.ACCESS_WRITE) as (array, mapping):
                for inside, outside in _slabs(region):
                    array[outside] = block[inside]
                    mapping.madvise(mmap.MADV_DONTNEED)
            return
        data = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
        length, starts = _runs(self.spec.shape, self.spec.dtype.itemsize, region)
        with _opened(self.path, os.O_WRONLY) as fd:
            for number, start in enumerate(starts):
                _put(fd, data[number * length : (number + 1) * length], self.offset + start, self.path)

    def _better_mapped(self, region: Bounds) -> bool:
        nbytes = prod(sizes(region)) * self.spec.dtype.itemsize
        return self.mappable and _runs(self.spec.shape, self.spec.dtype.itemsize, region)[0] < min(nbytes, MAPPED_BELOW)

    @contextlib.contextmanager
    def _mapped(self, access: int) -> Iterator[tuple[NDArray[Any], mmap.mmap]]:
        """All of it; what was touched counts as memory of the process until it says that it needs it no more."""
        with _opened(self.path, os.O_RDWR) as fd:
            mapping = mmap.mmap(fd, 0, access=access)  # closed with the last array that lies in it
            yield np.ndarray(self.spec.shape, self.spec.dtype, mapping, self.offset), mapping


def _slabs(region: Bounds) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Parts of a region along its first axis that has a length, of few runs each, in the region and in the array."""
    axis = next(number for number, (start, stop) in enumerate(region) if stop - start > 1)
    start, stop = region[axis]
    runs = prod(sizes(region[axis + 1 : -1]))
    step = max(1, MAPPED_RUNS // runs)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        inside = (*(slice(None) for _ in range(axis)), slice(first - start, last - start))
        outside = (
            *(slice(*ends) for ends in region[:axis]),
            slice(first, last),
            *(slice(*e) for e in region[axis + 1 :]),
        )
        yield inside, outside


@contextlib.contextmanager
def output_file(path: str, spec: Spec) -> Iterator[OutputFile]:
    """Make room for an array beside `path`: `.npy`, or raw little endian under any other suffix.

    On success it is flushed to the disk and takes its name, else it is removed.

    Raises
    ------
    PipelineError
        If it cannot be written, or there is no room for it: the bytes needed and free.
    """
    header = b""
    if path.endswith(".npy"):
        text = io.BytesIO()
        dtype = np.lib.format.dtype_to_descr(spec.dtype.newbyteorder("<"))
        np.lib.format.write_array_header_1_0(text, {"descr": dtype, "fortran_order": False, "shape": spec.shape})
        header = text.getvalue()
    with whole_file(path, len(header) + spec.nbytes) as file:
        file.write(header)
        promised = bool(spec.nbytes) and _make_room(file.fileno(), len(header) + spec.nbytes, path)
        file.flush()
        yield OutputFile(file.name, len(header), spec, promised)


def _make_room(fd: int, nbytes: int, path: str) -> bool:
    """What is promised now is there when the last region is written, hours later. False if nothing is promised."""
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot promise
            os.ftruncate(fd, nbytes)
            return False
        folder = os.path.dirname(os.path.abspath(path))
        raise PipelineError(f"{path}: expected room for {nbytes} bytes in {folder}, got {error.strerror!r} with "
                            f"{shutil.disk_usage(folder).free} free; ask for less or free space") from None  # fmt: skip
    return True


def _runs(shape: tuple[int, ...], itemsize: int, region: Bounds) -> tuple[int, list[int]]:
    axis = len(shape)
    length = itemsize
    while axis and (axis == len(shape) or region[axis] == (0, shape[axis])):
        axis -= 1
        length *= region[axis][1] - region[axis][0]
    starts = np.zeros(1, np.int64)
    for outer in range(axis):
        stride = prod(shape[outer + 1 :]) * itemsize
        starts = (starts[:, None] + np.arange(*region[outer]) * stride).reshape(-1)
    first = region[axis][0] * prod(shape[axis + 1 :]) * itemsize if shape else 0
    return length, (starts + first).tolist()


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    try:
        fd = os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        raise _lost(path, error) from None
    try:
        yield fd
    finally:
        os.close(fd)


def _lost(path: str, error: OSError) -> PipelineError:
    return PipelineError(f"the output: expected to write to {os.path.dirname(path)}, got {error.strerror!r}; "
                         "nothing was kept")  # fmt: skip


def _put(fd: int, data: memoryview, offset: int, path: str) -> None:
    done = 0
    while done < len(data):
        try:
            done += os.pwrite(fd, data[done:], offset + done)
        except OSError as error:
            raise _lost(path, error) from None
