"""Streams, events, pinned memory and readers without a GPU: every operation completes at once."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.engine import array_gpu
from pipeline.gpu import blocks, transfer
from tests.emulator.array import DeviceArray
from tests.emulator.driver import HostDriver, HostReader, HostWriter


class HostStream(nullcontext[Any]):
    """A stream that is always idle."""

    ptr = 0

    def __init__(self, non_blocking: bool = False, priority: int = 0) -> None:
        super().__init__(self)

    def record(self) -> HostEvent:
        """An event that has occurred."""
        return HostEvent()

    def wait_event(self, event: HostEvent) -> None:
        """Go on at once."""

    def synchronize(self) -> None:
        """Return at once."""


class HostEvent:
    """An event that is always complete."""

    done = True

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """At once."""

    def synchronize(self) -> None:
        """Return at once."""


class HostFile:
    """A file as kvikio opens it; a read runs as late as possible, when its result is requested."""

    opened = 0

    def __init__(self, path: str, flags: str) -> None:
        assert flags == "r"
        self.path, self.closed = path, False

    def __enter__(self) -> HostFile:
        HostFile.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        HostFile.opened -= 1
        self.closed = True

    def pread(self, target: Any, size: int, offset: int, task_size: int | None = None) -> Any:
        """A future that knows how many bytes it read."""

        def get() -> int:
            assert not self.closed
            read = np.fromfile(self.path, np.uint8, size, offset=offset)
            target[: len(read)] = read
            return len(read)

        return SimpleNamespace(get=get)


@cache
def _transfers() -> tuple[HostReader, HostWriter]:
    """For the life of the process, as on a GPU: nothing ends their threads."""
    return HostReader(HostDriver(), 3, 64), HostWriter(HostDriver(), 3, 64)


def install(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace these parts of CuPy and kvikio, without a GPU."""
    monkeypatch.setattr(cp.cuda, "Stream", HostStream, raising=False)
    monkeypatch.setattr(cp.cuda, "Event", HostEvent, raising=False)
    monkeypatch.setattr(cp.cuda, "get_current_stream", HostStream)
    monkeypatch.setattr(cp.cuda, "get_elapsed_time", lambda began, ended: 1.0, raising=False)
    kvikio: Any = ModuleType("kvikio")
    kvikio.CuFile = HostFile
    kvikio.defaults = ModuleType("kvikio.defaults")
    kvikio.defaults.set = lambda values: None
    monkeypatch.setitem(sys.modules, "kvikio", kvikio)
    monkeypatch.setitem(sys.modules, "kvikio.defaults", kvikio.defaults)
    monkeypatch.setattr(cp.cuda, "alloc_pinned_memory", bytearray, raising=False)
    monkeypatch.setattr(transfer, "find_devices", lambda: SimpleNamespace(usable=1))
    monkeypatch.setattr(transfer, "_direct", lambda: False)
    reader, writer = _transfers()
    monkeypatch.setattr(transfer, "_reader", lambda: reader)
    monkeypatch.setattr(array_gpu, "writer", lambda threads, part_bytes: writer)
    monkeypatch.setattr(blocks, "_ready", {})
    monkeypatch.setattr(
        DeviceArray, "set", lambda self, block, stream=None: self.__setitem__(..., block), raising=False
    )
    get = DeviceArray.get

    def get_into(self: DeviceArray, out: Any = None, blocking: bool = True) -> Any:
        value = get(self)
        if out is None:
            return value
        out[...] = value
        return out

    monkeypatch.setattr(DeviceArray, "get", get_into)
