"""The output of a job, mapped once per process for all its regions.

Writes through a file descriptor serialize, wherever in the file they go. Through a mapping, threads and processes write
concurrently, as fast as they get pages; requesting pages in one call costs less than a fault for each. A mapping per
region would cost more: the kernel interrupts all cores of the process for every 2 MiB that is unmapped.

System calls go through ctypes, which releases the GIL; the `mmap` module does not.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from math import prod
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.once import once_per_process
from pipeline.errors import PipelineError
from workflows.regions import Bounds, Spec, in_rows, sizes

# Bytes that a Python thread writes before it returns the pages; until then they count as memory of the process. Less
# would suit the cache better, but each call waits for the GIL.
SLAB_BYTES = 2**24
SLAB_RUNS = SLAB_BYTES // mmap.PAGESIZE  # each of them touches a page

# Bytes that C++ threads write before pages are returned; until then they count as memory of the process.
KEPT_BYTES = 2**30
GIVEN_BYTES = 2**26  # returned at a time: meanwhile no other thread of the process can map anything

MADV_POPULATE_WRITE = 23  # since Linux 5.14; without it pages are faulted in one by one

Inside = tuple[Any, ...]  # slices and an ellipsis

_lock = Lock()
_files: dict[str, _MappedFile] = {}
_ended: deque[str] = deque(maxlen=1000)


@once_per_process
def _giving_back() -> ThreadPoolExecutor:
    """A thread that returns pages in order and unmaps last; no caller waits for it."""
    return ThreadPoolExecutor(1, "unmap")


class _MappedFile:
    """A mapping: its file, number of writers, bytes written since pages were returned, whether the job has ended."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.address, self.nbytes, self.file = _map(fd, nbytes), nbytes, _file_of(fd)
        self.writing, self.written, self.ended = 0, 0, False

    def give_back(self) -> None:
        """Return all pages to the kernel, even while other threads write."""
        for start in range(0, self.nbytes, GIVEN_BYTES):
            advise(self.address + start, min(GIVEN_BYTES, self.nbytes - start), mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the file after the last write."""
        self.give_back()
        _system().munmap(self.address, self.nbytes)


@contextmanager
def mapped_file(path: str, fd: int, nbytes: int, writes: int) -> Iterator[int]:
    """Address at which a file is mapped, for writes within the context.

    Parameters
    ----------
    path, fd, nbytes
        The file.
    writes
        Bytes that will be written and whose pages the caller does not return.

    Raises
    ------
    OSError
        If it cannot be mapped.
    PipelineError
        If `end` was called for this path.
    """
    with _lock:
        if path in _ended:
            raise PipelineError(f"{path}: expected a running job, got one that has ended; report this")
        if path in _files and _files[path].file != _file_of(fd):
            _drop(path)  # a run that was killed before it could call `end` had another file of this name
        if path not in _files:
            _files[path] = _MappedFile(fd, nbytes)
        file = _files[path]
        file.writing += 1
    try:
        yield file.address
        with _lock:
            file.written += writes
            many = file.written >= KEPT_BYTES
            file.written *= not many
        if many:
            _giving_back().submit(file.give_back)
    finally:
        with _lock:
            file.writing -= 1
            last = file.ended and not file.writing
        if last:
            _giving_back().submit(file.close)


def begin_again(path: str) -> None:
    """Allow writes to a file for which `end` was called: another run continues it."""
    with _lock:
        while path in _ended:
            _ended.remove(path)


def end(path: str) -> None:
    """Unmap a file, if this process has written to it, as soon as no thread writes to it."""
    with _lock:
        _ended.append(path)
        _drop(path)


def _drop(path: str) -> None:
    """Forget a mapping, with the lock held; it is unmapped as soon as no thread writes to it."""
    if (file := _files.pop(path, None)) is not None:
        file.ended = True
        if not file.writing:
            _giving_back().submit(file.close)


def _file_of(fd: int) -> tuple[int, int]:
    """Device and inode of a file."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def region_at(address: int, spec: Spec, region: Bounds) -> NDArray[Any]:
    """A region, not empty, of an array whose first element is at an address."""
    strides = [spec.dtype.itemsize * prod(spec.shape[axis + 1 :]) for axis in range(len(spec.shape))]
    first = sum(start * stride for (start, _), stride in zip(region, strides, strict=True))
    last = sum((stop - 1) * stride for (_, stop), stride in zip(region, strides, strict=True))
    memory: Any = (ctypes.c_char * (last + spec.dtype.itemsize - first)).from_address(address + first)
    return np.ndarray(sizes(region), spec.dtype, memory, 0, strides)


def slabs(spec: Spec, run: int) -> Iterator[Inside]:
    """Parts of a region of some shape and dtype, with runs of `run` bytes, for one thread each."""
    elements = max(1, min(SLAB_BYTES, SLAB_RUNS * run) // spec.dtype.itemsize)
    for part in in_rows(spec, elements):
        yield (*(slice(*ends) for ends in part), ...)  # an array, also of a single element


def put(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy a slab to its mapping of the same shape and dtype, and return the pages.

    Raises
    ------
    OSError
        If the file system has no space for them.
    """
    target, source = _bits(target), _bits(source)
    begin, end = np.lib.array_utils.byte_bounds(target)
    if target.flags.c_contiguous:
        advise(begin, end - begin, MADV_POPULATE_WRITE)
    target[...] = source
    advise(begin, end - begin, mmap.MADV_DONTNEED)


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """View of an array in a dtype that NumPy copies bit for bit."""
    size = array.dtype.itemsize
    return array.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def _map(fd: int, nbytes: int) -> int:
    """Address at which a file is mapped for writing; OSError if it cannot be."""
    address: int = _system().mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    # Otherwise the kernel marks each page as accessed when it is returned, which takes twice as long as all the rest.
    advise(address, nbytes, mmap.MADV_RANDOM)
    return address


def advise(address: int, nbytes: int, advice: int) -> None:
    """Advise the kernel about all pages of a range of bytes; OSError if it refuses."""
    start = address // mmap.PAGESIZE * mmap.PAGESIZE
    if _system().madvise(start, address + nbytes - start, advice) and (number := ctypes.get_errno()) != errno.EINVAL:
        # EFAULT: a page that the file system cannot provide; touching it would kill the process.
        number = errno.EIO if number == errno.EFAULT else number
        raise OSError(number, os.strerror(number))


@cache
def _system() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    size, whole = ctypes.c_size_t, ctypes.c_int
    library.mmap.argtypes = [ctypes.c_void_p, size, whole, whole, whole, ctypes.c_int64]
    library.mmap.restype = ctypes.c_void_p
    library.munmap.argtypes = [ctypes.c_void_p, size]
    library.madvise.argtypes = [ctypes.c_void_p, size, whole]
    return library
