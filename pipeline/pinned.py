"""Bytes of files to a device through pinned memory, by threads of C++ (`pinned.cpp`), which do not wait for Python."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from kernels import native

# Of libcuda, in the order of `Driver` in pinned.cpp.
FUNCTIONS = ("cuCtxSetCurrent", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate", "cuMemcpyHtoDAsync_v2",
             "cuEventRecord", "cuEventSynchronize")  # fmt: skip
SOURCE = Path(__file__).with_suffix(".cpp")

_making = Lock()


class Read:
    """Bytes on their way; to be waited for once, whatever else happens."""

    def __init__(self, library: Any, reader: int, read: int) -> None:
        self._library, self._reader, self._read = library, reader, read

    def get(self) -> int:
        """How many bytes there were, once all of them are on the device.

        Raises
        ------
        OSError
            If the system refuses.
        CUDADriverError
            If the driver does.
        """
        failed = ctypes.c_int()
        found = int(self._library.end_read(self._reader, self._read, ctypes.byref(failed)))
        if failed.value:
            raise _refusal(failed.value)
        if found < 0:
            raise OSError(-found, os.strerror(-found))
        return found


class Reader:
    """Threads that bring bytes to the current device, through pinned memory of their own.

    Parameters
    ----------
    library
        Of pinned.cpp.
    functions
        Addresses of FUNCTIONS.
    context
        CUDA's, of the device.
    threads
    part_bytes
        That a thread reads at a time, into one of its two buffers.
    """

    def __init__(self, library: Any, functions: list[int], context: int, threads: int, part_bytes: int) -> None:
        library.open_reader.restype = library.start_read.restype = ctypes.c_void_p
        library.end_read.restype = ctypes.c_int64
        library.open_reader.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_size_t,
            ctypes.c_void_p,
        ]
        library.start_read.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t,
                                       ctypes.c_int64]  # fmt: skip
        library.end_read.argtypes = [ctypes.c_void_p] * 3
        status = ctypes.c_int()
        driver = (ctypes.c_void_p * len(functions))(*functions)
        self._library = library
        self._reader = library.open_reader(driver, context, threads, part_bytes, ctypes.byref(status))
        if not self._reader:
            raise _refusal(status.value)

    def pread(self, fd: int, target: Any, offset: int, order: int) -> Read:
        """Start to read from an offset of a file until `target`, bytes on the device, is full or the file ends.

        Of several reads that of the lowest order goes first.
        """
        started = self._library.start_read(self._reader, fd, offset, target.data.ptr, target.nbytes, order)
        return Read(self._library, self._reader, started)


def _refusal(status: int) -> Exception:
    from cupy.cuda import driver

    refusal: Exception = driver.CUDADriverError(status)
    return refusal


def reader(threads: int, part_bytes: int) -> Reader | None:
    """That of the current device, which lives as long as the process; None where pinned.cpp cannot be compiled."""
    import cupy

    with _making:
        return _reader(int(cupy.cuda.runtime.getDevice()), threads, part_bytes)


@cache
def _reader(device: int, threads: int, part_bytes: int) -> Reader | None:
    import cupy

    library = native.library(SOURCE)
    if library is None:
        return None
    cuda = ctypes.CDLL("libcuda.so.1")
    functions = [ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value or 0 for name in FUNCTIONS]
    cupy.cuda.runtime.free(0)  # makes the context
    return Reader(library, functions, cupy.cuda.driver.ctxGetCurrent(), threads, part_bytes)
