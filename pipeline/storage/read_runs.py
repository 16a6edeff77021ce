"""Many runs of a file in a few calls, of what is in the page cache.

A call for each run would have a thread wait for the interpreter after every few KiB. So a function of C++ reads all of
them; where there is no compiler, Linux's asynchronous reads: what is cached the kernel copies while runs are submitted,
many of them in one call, without the interpreter. That takes half as long again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx

SOURCE = Path(__file__).with_suffix(".cpp")

BATCH = 256  # runs to a call; the system has 65,536 in all for those who ask first
READ = 0  # IOCB_CMD_PREAD
SETUP, GET_EVENTS, SUBMIT = range(3)
NUMBERS = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}  # of the system calls

# struct iocb and struct io_event of linux/aio_abi.h, little endian.
IOCB = np.dtype([("data", "u8"), ("key", "u4"), ("flags", "i4"), ("opcode", "u2"), ("priority", "i2"), ("fd", "u4"),
                 ("address", "u8"), ("nbytes", "u8"), ("offset", "i8"), ("rest", "u8", 2)])  # fmt: skip
EVENT = np.dtype([("data", "u8"), ("iocb", "u8"), ("result", "i8"), ("result2", "i8")])


@dataclass(frozen=True)
class Context:
    """What one thread at a time submits with."""

    handle: ctypes.c_ulong
    requests: NDArray[Any]
    pointers: NDArray[np.uint64]
    events: NDArray[Any]


_contexts: list[Context] = []  # nobody uses


def read_runs(fd: int, memory: NDArray[np.uint8], runs: NDArray[np.int64], offset: int = 0) -> NDArray[np.int64]:
    """Read what is cached of some runs of a file.

    Parameters
    ----------
    fd
    memory : uint8 array, contiguous
    runs : int64 array, shape (n, 3)
        First byte in the file after `offset`, first byte in memory, number of bytes.
    offset

    Returns
    -------
    int64 array
        Which runs were not read, whole. They have to be read in another way, which says what is wrong with them if
        anything is; all of them, where the system has no such reads.
    """
    library = cxx.library(SOURCE)
    if library is None:
        return np.flatnonzero(~_read_submitted(fd, memory, runs + np.array([offset, 0, 0])))
    runs, function, address, size = np.ascontiguousarray(runs), library.read_cached, ctypes.c_void_p, ctypes.c_size_t
    function.argtypes, function.restype = (ctypes.c_int, ctypes.c_int64, address, address, size, address), size
    left = np.empty(len(runs), np.int64)
    where = memory.ctypes.data, runs.ctypes.data, len(runs), left.ctypes.data
    return left[: function(fd, offset, *where)]


def _read_submitted(fd: int, memory: NDArray[np.uint8], runs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which runs were read."""
    done = np.zeros(len(runs), np.bool_)
    with _context() as context:
        if context is None:
            return done
        flags = os.RWF_NOWAIT
        for first in range(0, len(runs), BATCH):
            batch = runs[first : first + BATCH]
            requests = context.requests[: len(batch)]
            requests["fd"], requests["flags"] = fd, flags
            requests["offset"], requests["nbytes"] = batch[:, 0], batch[:, 2]
            requests["address"] = memory.ctypes.data + batch[:, 1]
            results = _submitted(context, len(batch))
            if results is None and flags:  # a file system that cannot say what is cached: one in memory
                requests["flags"] = flags = 0
                results = _submitted(context, len(batch))
            if results is None:
                break
            done[first : first + len(batch)] = results == batch[:, 2]
    return done


def _submitted(context: Context, number: int) -> NDArray[np.int64] | None:
    """Bytes that each of the first requests read, or minus an error; None if the first one is not accepted."""
    results = np.full(number, -errno.EAGAIN, np.int64)
    at = 0
    while at < number:
        pointers = ctypes.c_void_p(context.pointers[at:].ctypes.data)
        accepted = _call(SUBMIT, context.handle, ctypes.c_long(number - at), pointers)
        if accepted <= 0:
            return results if at else None
        waiting = accepted
        while waiting:
            events = ctypes.c_void_p(context.events.ctypes.data)
            got = _call(GET_EVENTS, context.handle, ctypes.c_long(waiting), ctypes.c_long(waiting), events, None)
            if got < 0 and ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), "io_getevents")  # memory must not be given up before the answer
            found = context.events[: max(got, 0)]
            results[found["data"].astype(np.int64)] = found["result"]
            waiting -= len(found)
        at += accepted
    return results


@contextmanager
def _context() -> Iterator[Context | None]:
    """One that nobody else uses meanwhile; None where there can be none."""
    try:
        context: Context | None = _contexts.pop()
    except IndexError:
        context = _make_context()
    try:
        yield context
    finally:
        if context is not None:
            _contexts.append(context)


def _make_context() -> Context | None:
    handle = ctypes.c_ulong(0)
    if platform.machine() not in NUMBERS or _call(SETUP, ctypes.c_uint(BATCH), ctypes.byref(handle)):
        return None
    requests = np.zeros(BATCH, IOCB)
    requests["data"], requests["opcode"] = np.arange(BATCH), READ
    pointers = requests.ctypes.data + IOCB.itemsize * np.arange(BATCH, dtype=np.uint64)
    return Context(handle, requests, pointers, np.zeros(BATCH, EVENT))


def _call(which: int, *arguments: Any) -> int:
    """A system call; the interpreter goes on meanwhile."""
    return int(_syscall()(ctypes.c_long(NUMBERS[platform.machine()][which]), *arguments))


@cache
def _syscall() -> Any:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function
