"""Writing a region of an array in a file through a mapping of the file.

Writing through a file descriptor would wait for all others who write to the file, also elsewhere in it. Through a
mapping threads and processes write at a time, as fast as they get pages; those asked for in one call cost less
than a fault for each. System calls go through ctypes, during which the interpreter goes on; in the `mmap` module all
threads wait.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workflows.regions import Bounds, Spec, in_rows, sizes

# What a thread touches through a mapping before it gives the pages back; until then the process has them in memory.
# Less would be better for the cache, but after each call a thread waits for the interpreter.
MAPPED_BYTES = 2**24
MAPPED_RUNS = MAPPED_BYTES // mmap.PAGESIZE  # each of them touches a page

MADV_POPULATE_WRITE = 23  # since Linux 5.14; without it pages come one by one

Inside = tuple[Any, ...]  # slices and an ellipsis


@contextmanager
def mapped(fd: int, offset: int, spec: Spec, region: Bounds) -> Iterator[NDArray[Any]]:
    """A region of an array in a file, not empty, to be written to.

    Parameters
    ----------
    fd, offset, spec
        The file, where in it the array begins, its shape and dtype.
    region

    Raises
    ------
    OSError
        If the file cannot be mapped.
    """
    strides = [spec.dtype.itemsize * prod(spec.shape[axis + 1 :]) for axis in range(len(spec.shape))]
    first = offset + sum(start * stride for (start, _), stride in zip(region, strides, strict=True))
    last = offset + sum((stop - 1) * stride for (_, stop), stride in zip(region, strides, strict=True))
    begin = first // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    nbytes = last + spec.dtype.itemsize - begin
    address = map_file(fd, begin, nbytes)
    try:
        memory: Any = (ctypes.c_char * nbytes).from_address(address)
        yield np.ndarray(sizes(region), spec.dtype, memory, first - begin, strides)
    finally:
        unmap(address, nbytes)


def map_file(fd: int, begin: int, nbytes: int) -> int:
    """Address at which bytes of a file are mapped, to be written to; OSError if they cannot be."""
    address: int = _system().mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, begin)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    # Nobody is to remember that pages were used: for those that were asked for in one call, that takes twice as long as
    # all else that is done when they are given back.
    advise(address, nbytes, mmap.MADV_RANDOM)
    return address


def unmap(address: int, nbytes: int) -> None:
    """What `map_file` mapped."""
    _system().munmap(address, nbytes)


def slabs(spec: Spec, run: int) -> Iterator[Inside]:
    """Parts of a region of some shape and dtype, with runs of so many bytes, for one thread each."""
    elements = max(1, min(MAPPED_BYTES, MAPPED_RUNS * run) // spec.dtype.itemsize)
    for part in in_rows(spec, elements):
        yield (*(slice(*ends) for ends in part), ...)  # an array, also of a single element


def put(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy a slab, of the same shape and dtype, to where it is mapped, and give the pages back.

    Raises
    ------
    OSError
        If the file system has no room for them.
    """
    target, source = _bits(target), _bits(source)
    begin, end = np.lib.array_utils.byte_bounds(target)
    if target.flags.c_contiguous:
        advise(begin, end - begin, MADV_POPULATE_WRITE)
    target[...] = source
    advise(begin, end - begin, mmap.MADV_DONTNEED)


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """An array as what NumPy copies bit for bit."""
    size = array.dtype.itemsize
    return array.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def advise(address: int, nbytes: int, advice: int) -> None:
    """Advise the system of all pages that some bytes lie in; OSError if it refuses."""
    start = address // mmap.PAGESIZE * mmap.PAGESIZE
    if _system().madvise(start, address + nbytes - start, advice) and (number := ctypes.get_errno()) != errno.EINVAL:
        # EFAULT: a page that the file system does not give, for which touching it would end the process.
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
