"""Writing a region of an array in a file through a mapping of the file.

Writing through a file descriptor would wait for all others who write to the file, also elsewhere in it. Through a
mapping threads and processes write at a time, as fast as they get pages: asked for in one call, and written to while
they are in the cache, several times as fast as by a fault for each page.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.promise import wait_for_room
from workflows.array_workflow import Bounds, Spec, in_rows, sizes

Inside = tuple[Any, ...]  # slices and an ellipsis

# What is touched through a mapping before its pages are given back: they count as memory of the process until then.
MAPPED_BYTES = 2**22
MAPPED_RUNS = MAPPED_BYTES // mmap.PAGESIZE  # each of them touches a page

# Pages that are asked for at a time, by bytes.
ASKED_BYTES = 2**20
MADV_POPULATE_WRITE = 23  # since Linux 5.14; without it pages come one by one


def write_mapped(
    fd: int, offset: int, spec: Spec, region: Bounds, run: int, parts: Callable[[Inside], NDArray[Any]]
) -> None:
    """Write a region of an array, not empty, part by part.

    Parameters
    ----------
    fd, offset, spec
        The file, where in it the array begins, its shape and dtype.
    region
    run
        Bytes of it that lie one after another.
    parts
        (where in the region) -> the elements there.

    Raises
    ------
    OSError
        If the file cannot be mapped, or gets no longer.
    """
    lengths, itemsize = sizes(region), spec.dtype.itemsize
    strides = [itemsize * int(np.prod(spec.shape[axis + 1 :], dtype=np.int64)) for axis in range(len(spec.shape))]
    first = offset + sum(start * stride for (start, _), stride in zip(region, strides, strict=True))
    stop = first + sum((length - 1) * stride for length, stride in zip(lengths, strides, strict=True)) + itemsize
    wait_for_room(fd, stop)
    begin = first // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    mapping = mmap.mmap(fd, stop - begin, offset=begin, access=mmap.ACCESS_WRITE)  # closed with the array in it
    target = _bits(np.ndarray(lengths, spec.dtype, mapping, first - begin, strides))
    base = target.ctypes.data - (first - begin)
    for inside in slabs(lengths, itemsize, run):
        _copy(target[inside], _bits(parts(inside)))
        _advise(base, stop - begin, mmap.MADV_DONTNEED)


def slabs(lengths: tuple[int, ...], itemsize: int, run: int) -> Iterator[Inside]:
    """Parts of a region that are touched before pages are given back: its lengths, and bytes of a run of it."""
    elements = max(1, min(MAPPED_BYTES, MAPPED_RUNS * run) // itemsize)
    for part in in_rows(Spec(lengths, np.dtype(np.uint8)), elements):
        yield (*(slice(*ends) for ends in part), ...)  # an array, also of a single element


def _copy(target: NDArray[Any], source: NDArray[Any]) -> None:
    if not (target.flags.c_contiguous and source.flags.c_contiguous):
        target[...] = source
        return
    target, source = target.reshape(-1), source.reshape(-1)
    step = max(1, ASKED_BYTES // target.itemsize)
    for start in range(0, target.size, step):
        part = target[start : start + step]
        _advise(part.ctypes.data, part.nbytes, MADV_POPULATE_WRITE)
        part[...] = source[start : start + step]


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """An array as what NumPy copies bit for bit."""
    size = array.dtype.itemsize
    return array.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def _advise(address: int, nbytes: int, advice: int) -> None:
    """Of all pages that some bytes lie in; the interpreter goes on meanwhile, as it does not in `mmap.madvise`."""
    start = address // mmap.PAGESIZE * mmap.PAGESIZE
    if _madvise()(start, address + nbytes - start, advice) and ctypes.get_errno() != errno.EINVAL:
        # A page that the file system does not give, for which touching it would end the process.
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@cache
def _madvise() -> Any:
    function = ctypes.CDLL(None, use_errno=True).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
