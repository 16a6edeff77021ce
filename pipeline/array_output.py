"""The array that a job writes: region by region, in a file that is not there under its name before it is whole."""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import ArrayFile, read_region, runs_of
from pipeline.chunks import Piece
from pipeline.errors import PipelineError
from pipeline.files import whole_file
from workflows.array_workflow import Bounds, Spec, along, sizes

# What is touched of the output through a mapping before the pages are given back.
MAPPED_RUNS = 64
MAPPED_BYTES = 2**22


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
        return read_region(self.readable(), region)

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
        if self.mappable:
            # Writing through a file descriptor would wait for all others who write to the file, also elsewhere in it.
            with self._mapped() as (array, mapping):
                for inside, outside in _slabs(region, self.spec.dtype.itemsize):
                    array[outside] = _bits(block)[inside]
                    mapping.madvise(mmap.MADV_DONTNEED)
            return
        data = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
        length, starts = runs_of(self.spec.shape, self.spec.dtype.itemsize, region)
        with _opened(self.path, os.O_WRONLY) as fd:
            for number, start in enumerate(starts.tolist()):
                _put(fd, data[number * length : (number + 1) * length], self.offset + start, self.path)

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[tuple[NDArray[Any], mmap.mmap]]:
        """All of it; what was touched counts as memory of the process until it says that it needs it no more."""
        with _opened(self.path, os.O_RDWR) as fd:
            mapping = mmap.mmap(fd, 0, access=mmap.ACCESS_WRITE)  # closed with the last array that lies in it
            array: NDArray[Any] = np.ndarray(self.spec.shape, self.spec.dtype, mapping, self.offset)
            yield _bits(array), mapping


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """An array as what NumPy copies bit for bit."""
    size = array.dtype.itemsize
    return array.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def _slabs(region: Bounds, itemsize: int) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Parts of a region, not empty, along its first axis that has a length, as indexes of the region and the array."""
    lengths = sizes(region)
    axis = next((number for number, length in enumerate(lengths) if length > 1), None)
    parts: Iterable[tuple[Bounds, tuple[slice, ...]]] = [(region, ())]
    if axis is not None:
        runs, nbytes = prod(lengths[axis + 1 : -1]), prod(lengths[axis + 1 :]) * itemsize
        by_runs = MAPPED_RUNS // runs if axis < len(lengths) - 1 else lengths[axis]
        parts = along(region, axis, max(1, min(by_runs, MAPPED_BYTES // nbytes)))
    for part, inside in parts:
        yield inside, tuple(slice(*ends) for ends in part)


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
