"""The CUDA driver calls of `pipeline.gpu.pinned` without a GPU; copies happen as late as a driver may defer them."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from itertools import count
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.common import cxx
from pipeline.gpu.pinned import SOURCE, Pending, Reader, Writer

Address, Size, Flags = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
Out = ctypes.POINTER(ctypes.c_void_p)
REFUSED = 2  # CUDA_ERROR_OUT_OF_MEMORY
NOT_READY = 600  # CUDA_ERROR_NOT_READY
LOST = 700  # CUDA_ERROR_ILLEGAL_ADDRESS
_kept: list[Any] = []


class HostDriver:
    """Copies are deferred until somebody asks for the second time whether an event after them has occurred.

    Attributes
    ----------
    copied
        Target addresses of the latest copies, in the order of the calls.
    refuses
        Status of each function, by name, that fails from now on.
    """

    def __init__(self) -> None:
        self.copied: deque[int] = deque(maxlen=1000)
        self.refuses: dict[str, int] = {}
        self._lock = Lock()
        self._numbers = count(1)
        self._memory: list[Any] = []
        self._asked: dict[int, list[list[int]]] = {}  # copies by stream; a finished one is empty
        self._behind: dict[int, list[list[int]]] = {}  # copies before an event
        self._asked_for: set[int] = set()  # events, once
        kinds = {
            "set_context": (Address,), "allocate": (Out, Size, Flags), "create_stream": (Out, Flags),
            "create_event": (Out, Flags), "to_device": (ctypes.c_uint64, Address, Size, Address),
            "to_host": (Address, ctypes.c_uint64, Size, Address), "record": (Address, Address),
            "query": (Address,),
        }  # fmt: skip
        self._calls = [self._call(name, kind) for name, kind in kinds.items()]

    def functions(self) -> list[int]:
        """Function addresses, for `Reader` and `Writer`."""
        return [ctypes.cast(call, ctypes.c_void_p).value or 0 for call in self._calls]

    def _call(self, name: str, kind: tuple[Any, ...]) -> Any:
        work: Callable[..., int | None] = getattr(self, f"_{name}")

        def call(*arguments: Any) -> int:
            with self._lock:
                status = None if name in self.refuses else work(*arguments)
                return self.refuses.get(name, status or 0)

        return ctypes.CFUNCTYPE(ctypes.c_int, *kind)(call)

    def _set_context(self, context: int) -> None:
        assert context == 1

    def _allocate(self, memory: Any, nbytes: int, flags: int) -> None:
        self._memory.append(np.empty(nbytes, np.uint8))
        memory[0] = self._memory[-1].ctypes.data

    def _create_stream(self, stream: Any, flags: int) -> None:
        stream[0] = next(self._numbers)
        self._asked[stream[0]] = []

    def _create_event(self, event: Any, flags: int) -> None:
        event[0] = next(self._numbers)
        self._behind[event[0]] = []

    def _to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._asked[stream].append([target, source, nbytes])
        self.copied.append(target)

    _to_host = _to_device

    def _record(self, event: int, stream: int) -> None:
        self._asked[stream] = [copy for copy in self._asked[stream] if copy]
        self._behind[event] = list(self._asked[stream])

    def _query(self, event: int) -> int:
        if event not in self._asked_for:
            self._asked_for.add(event)
            return NOT_READY
        self._asked_for.remove(event)
        for copy in self._behind[event]:
            if copy:
                ctypes.memmove(*copy)
                copy.clear()
        return 0


class Target:
    """Device memory, initially zeros."""

    def __init__(self, nbytes: int) -> None:
        self.host = np.zeros(nbytes, np.uint8)
        self.has_value = np.zeros(nbytes, np.uint8)
        self.nbytes, self.data = nbytes, SimpleNamespace(ptr=self.host.ctypes.data)


def host_library() -> Any:
    """The library of gpu/pinned.cpp."""
    library = cxx.library(SOURCE)
    assert library, "a compiler is needed here"
    return library


class HostReader(Reader):
    """A reader into emulated device memory, which marks the bytes it fills as written."""

    def __init__(self, driver: HostDriver, threads: int, part_bytes: int) -> None:
        _kept.append(driver)  # its threads call the driver until they end
        super().__init__(host_library(), driver.functions(), 1, threads, part_bytes)

    def _start(self, files: Any, runs: Any, target: Any, *others: Any) -> Pending:
        """As on a GPU."""
        pending = super()._start(files, runs, target, *others)
        return _Marking(pending._end, pending._threads, pending._started, (pending._kept, target))


class _Marking(Pending):
    """A read that marks what it has filled. A function in place of `get` would be a cycle, which holds hundreds of
    MB until the garbage collector happens to run."""

    def get(self) -> int:
        """As on a GPU."""
        got = super().get()
        self._kept[1].has_value[:got] = 1
        return got


class HostWriter(Writer):
    """A writer from emulated device memory."""

    def __init__(self, driver: HostDriver, threads: int, part_bytes: int) -> None:
        _kept.append(driver)
        super().__init__(host_library(), driver.functions(), 1, threads, part_bytes)
