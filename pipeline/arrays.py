"""Arrays in files, read and written region by region: inputs in place, the output in a file that is not there yet."""

from __future__ import annotations

import contextlib
import errno
import io
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

    def runs(self, region: Bounds) -> tuple[int, list[int]]:
        """Bytes that lie one after another, and where each run of them begins, in the C order of the region."""
        return _runs(self.spec.shape, self.spec.dtype.itemsize, region)


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
    length, starts = array.runs(region)
    before = 0  # bytes of the array that lie in files before this one
    for piece in array.pieces:
        after = before + piece.nbytes
        inside = [number for number, start in enumerate(starts) if start < after and start + length > before]
        if inside:
            with open_planned(piece) as fd:
                for number in inside:
                    start, stop = max(starts[number], before), min(starts[number] + length, after)
                    at = number * length + start - starts[number]
                    fill(fd, buffer[at : at + stop - start], piece, start - before)
        before = after


@dataclass(frozen=True)
class OutputFile:
    """An array that is being written under a temporary name."""

    path: str
    offset: int
    spec: Spec

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
        data = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
        length, starts = _runs(self.spec.shape, self.spec.dtype.itemsize, region)
        with _opened(self.path) as fd:
            for number, start in enumerate(starts):
                _put(fd, data[number * length : (number + 1) * length], self.offset + start, self.path)


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
        if spec.nbytes:
            _make_room(file.fileno(), len(header) + spec.nbytes, path)
        file.flush()
        yield OutputFile(file.name, len(header), spec)


def _make_room(fd: int, nbytes: int, path: str) -> None:
    """What is promised now is there when the last region is written, hours later."""
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot promise
            os.ftruncate(fd, nbytes)
            return
        folder = os.path.dirname(os.path.abspath(path))
        raise PipelineError(f"{path}: expected room for {nbytes} bytes in {folder}, got {error.strerror!r} with "
                            f"{shutil.disk_usage(folder).free} free; ask for less or free space") from None  # fmt: skip


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
def _opened(path: str) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        folder = os.path.dirname(path)
        raise PipelineError(f"the output: expected to write to {folder}, got {error.strerror!r}") from None
    try:
        yield fd
    finally:
        os.close(fd)


def _put(fd: int, data: memoryview, offset: int, path: str) -> None:
    done = 0
    while done < len(data):
        try:
            done += os.pwrite(fd, data[done:], offset + done)
        except OSError as error:
            raise PipelineError(f"the output: expected to write to {os.path.dirname(path)}, got {error.strerror!r}; "
                                "nothing was kept") from None  # fmt: skip
