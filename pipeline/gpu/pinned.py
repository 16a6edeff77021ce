"""Transfers between files and a device through pinned memory, by C++ threads (`pinned.cpp`) that never take the GIL."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.compiled_check import CompiledCheck, calls_of
from pipeline.storage.identity import Identity, this_machine
from pipeline.storage.pieces import Piece

Kind = TypeVar("Kind")

# Functions of libcuda, in the order of `Driver` in pinned.hpp.
FUNCTIONS = ("cuCtxSetCurrent", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate", "cuMemcpyHtoDAsync_v2",
             "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventQuery")  # fmt: skip
SOURCE = Path(__file__).with_suffix(".cpp")

_making = Lock()


# As in pinned_file.hpp; flags of `known` say which numbers are compared.
PLANNED = np.dtype([("path", np.uint64), *((name, np.int64) for name in ("fd", "known", "size", "mtime", "ctime")),
                    ("inode", np.uint64), ("device", np.uint64)])  # fmt: skip
IDENTIFIED, MTIME, CTIME, INODE, DEVICE = 1, 2, 4, 8, 16


class RefusedError(OSError):
    """What could not be read: the number of a file, and the offset there; ESTALE if it is not the planned one."""

    file = offset = -1


class Pending:
    """A transfer in flight; callers must wait for it exactly once, whatever else happens.

    Parameters
    ----------
    end
        Function of pinned.cpp that waits for it.
    threads, started
        Its arguments.
    kept
        What has to stay alive until then.
    """

    def __init__(self, end: Any, threads: int, started: int, kept: Any = None) -> None:
        self._end, self._threads, self._started, self._kept = end, threads, started, kept

    def get(self) -> int:
        """Wait for the transfer and return the number of bytes moved.

        Raises
        ------
        RefusedError
            If the operating system reports an error.
        CUDADriverError
            If the CUDA driver reports an error.
        """
        failed = (ctypes.c_int64 * 3)()
        nbytes = int(self._end(self._threads, self._started, failed))
        if failed[0]:
            raise _refusal(failed[0])
        if nbytes < 0:
            error = RefusedError(-nbytes, os.strerror(-nbytes))
            error.file, error.offset = failed[1:]
            raise error
        return nbytes


class Checks:
    """Checks of samples beside their read: several equal sets, each used by one thread at a time.

    Parameters
    ----------
    sets
        All of the same dtype. What a set has seen are random parts of what is checked.
    itemsize
        Of their dtype, in bytes.
    """

    def __init__(self, sets: Sequence[Sequence[CompiledCheck]], itemsize: int) -> None:
        library = cxx.library(SOURCE)
        assert library is not None  # there are compiled checks
        self._library, self.sets = _declared(library), sets
        self._calls = calls_of([check for set_ in sets for check in set_])
        self.address: int = library.begin_checks(self._calls, len(sets[0]), len(sets), itemsize)

    def end(self) -> NDArray[np.int64]:
        """Bytes that each set has been given, and the nanoseconds that this took, shape (sets, 2); once, after all
        reads."""
        spent = np.zeros((len(self.sets), 2), np.int64)
        self._library.end_checks(self.address, spent.ctypes.data)
        return spent


class Beside(NamedTuple):
    """What is read for checks beside a read of one run: from another descriptor, runs ordered by their offsets, none of
    them empty; int64 array of shape (n, 3): offset in the file, number of bytes, index of the first sample."""

    checks: Checks
    fd: int
    runs: NDArray[np.int64]


class _Threads:
    """Threads for the current device, each with its own pinned memory.

    Parameters
    ----------
    library
        The compiled pinned.cpp.
    functions
        Addresses of FUNCTIONS.
    context
        CUDA context of the device.
    threads
    part_bytes
        Bytes that a thread copies at a time, through one of its two buffers.
    """

    OPEN: ClassVar[str]  # function of pinned.cpp that starts them

    def __init__(self, library: Any, functions: list[int], context: int, threads: int, part_bytes: int) -> None:
        status = ctypes.c_int()
        driver = (ctypes.c_void_p * len(functions))(*functions)
        self._library = _declared(library)
        opened = getattr(library, self.OPEN)(driver, context, threads, part_bytes, ctypes.byref(status))
        if not opened:
            raise _refusal(status.value)
        self._threads: int = opened


class Reader(_Threads):
    """Threads that copy byte runs of files to a device."""

    OPEN = "open_reader"

    def read(self, fd: int, target: Any, runs: NDArray[np.int64], order: int, beside: Beside | None = None) -> Pending:
        """Start to read runs of a file, one after another, into `target`, bytes on the device.

        `runs` has shape (n, 2): offset in the file, number of bytes. If a file ends early, fewer bytes are read. Reads
        of the lowest order go first. What is checked beside it is complete when all bytes have arrived.
        """
        file = np.zeros(1, PLANNED)
        file["fd"] = fd
        return self._start(file, np.insert(runs, 0, 0, 1), target, order, beside, file)

    def read_planned(self, files: Sequence[Piece], target: Any, runs: NDArray[np.int64], order: int) -> Pending:
        """The same of several planned files, which the threads open, check before and after, and close.

        `runs` has shape (n, 3): number of the file, offset, number of bytes. A file that is not the planned one or ends
        early is an error.
        """
        paths = [os.fsencode(file.path) for file in files]
        addresses = (ctypes.c_char_p * len(paths))(*paths)
        planned = np.array([(0, *_known(file)) for file in files], PLANNED)
        planned["path"] = (ctypes.c_uint64 * len(paths)).from_buffer(addresses)
        return self._start(planned, runs, target, order, None, (addresses, planned))

    def _start(
        self, files: NDArray[Any], runs: NDArray[np.int64], target: Any, order: int, beside: Beside | None, kept: Any
    ) -> Pending:  # fmt: skip
        runs = np.ascontiguousarray(runs, np.int64)
        assert runs[:, 2].sum() == target.nbytes
        where = files.ctypes.data, len(files), runs.ctypes.data, len(runs), target.data.ptr
        checked: tuple[Any, ...] = (None, -1, None, 0)
        if beside is not None and len(beside.runs):
            own = np.ascontiguousarray(beside.runs, np.int64)
            checked = beside.checks.address, beside.fd, own.ctypes.data, len(own)
        started = self._library.start_read(self._threads, *where, order, *checked)
        return Pending(self._library.end_read, self._threads, started, (beside, kept))


def _known(file: Piece) -> tuple[int, ...]:
    """What `PLANNED` has behind the path."""
    if not isinstance(identity := file.identity, Identity):
        return (-1, 0, 0, 0, 0, 0, 0)
    size, mtime, ctime, inode, device, machine = identity
    known = IDENTIFIED | (mtime is not None and MTIME) | (ctime is not None and CTIME) | (inode is not None and INODE)
    known |= device is not None and machine == this_machine() and DEVICE
    return -1, known, size, mtime or 0, ctime or 0, inode or 0, device or 0


class Writer(_Threads):
    """Threads that copy bytes from a device to a mapped file."""

    OPEN = "open_writer"

    def write(self, source: Any, run_bytes: int, addresses: NDArray[np.int64]) -> Pending:
        """Start to write `source`, a contiguous array on the device, in runs of `run_bytes` to these addresses."""
        targets = np.ascontiguousarray(addresses, np.int64)
        runs = len(targets)
        assert run_bytes * runs == source.nbytes > 0
        at = targets.ctypes.data
        started = self._library.start_write(self._threads, source.data.ptr, run_bytes, at, runs)
        return Pending(self._library.end_write, self._threads, started, (source, targets))


_ADDRESS, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
SIGNATURES = {
    "open_reader": (_ADDRESS, (_ADDRESS, _ADDRESS, _INT, _SIZE, _ADDRESS)),
    "open_writer": (_ADDRESS, (_ADDRESS, _ADDRESS, _INT, _SIZE, _ADDRESS)),
    "start_read": (_ADDRESS, (_ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _SIZE, ctypes.c_uint64, ctypes.c_int64, _ADDRESS,
                              _INT, _ADDRESS, _SIZE)),
    "begin_checks": (_ADDRESS, (_ADDRESS, _SIZE, _SIZE, _SIZE)),
    "end_checks": (None, (_ADDRESS, _ADDRESS)),
    "start_write": (_ADDRESS, (_ADDRESS, ctypes.c_uint64, _SIZE, _ADDRESS, _SIZE)),
    "end_read": (ctypes.c_int64, (_ADDRESS, _ADDRESS, _ADDRESS)),
    "end_write": (ctypes.c_int64, (_ADDRESS, _ADDRESS, _ADDRESS)),
}  # fmt: skip


def _declared(library: Any) -> Any:
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _refusal(status: int) -> Exception:
    from cupy.cuda import driver

    refusal: Exception = driver.CUDADriverError(status)
    return refusal


def reader(threads: int, part_bytes: int) -> Reader | None:
    """Reader of the current device, for the life of the process; None if pinned.cpp cannot be compiled."""
    return _of_device(Reader, threads, part_bytes)


def writer(threads: int, part_bytes: int) -> Writer | None:
    """Writer of the current device, for the life of the process; None if pinned.cpp cannot be compiled."""
    return _of_device(Writer, threads, part_bytes)


def _of_device(kind: type[Kind], threads: int, part_bytes: int) -> Kind | None:
    import cupy

    with _making:
        return cast("Kind | None", _made(cast(Any, kind), int(cupy.cuda.runtime.getDevice()), threads, part_bytes))


@cache
def _made(kind: Any, device: int, threads: int, part_bytes: int) -> Any:
    import cupy

    library = cxx.library(SOURCE)
    if library is None:
        return None
    cuda = ctypes.CDLL("libcuda.so.1")
    functions = [ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value or 0 for name in FUNCTIONS]
    cupy.cuda.runtime.free(0)  # creates the context
    return kind(library, functions, cupy.cuda.driver.ctxGetCurrent(), threads, part_bytes)
