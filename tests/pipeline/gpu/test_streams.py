"""Batches on a model of a device whose streams run as late as their order allows, and whose memory is used again."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common import decompress, nvrtc
from pipeline.gpu import decoding
from pipeline.gpu.blocks import device_blocks
from pipeline.timeline import Timeline
from tests.cases.device_slabs import in_files, on_device
from tests.emulator.array import DeviceArray, Memory
from tests.emulator.device import HOST
from tests.emulator.kvikio import HostStream

__all__ = ["on_device"]

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_device")]

Operation = Callable[[], Any]


class Stream:
    """Runs what was launched when somebody waits for it; or at once, if it may, beside lanes, which have a priority."""

    made: list[Stream]
    current: list[Stream]
    eager = False

    def __init__(self, non_blocking: bool = False, priority: int = 0) -> None:
        self.operations: list[Operation | Event] = []
        self.done, self.beside = 0, priority == 0
        self.free: dict[int, list[Any]] = {}  # memory that was freed, by its bytes
        self.made.append(self)
        self.ptr = len(self.made)

    def __enter__(self) -> Stream:
        self.current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.current.pop()

    def launch(self, operation: Operation | Event) -> None:
        """Start something, or wait for an event, after all before it."""
        self.operations.append(operation)
        while self.eager and self.beside and self.done < len(self.operations) and self.ready():
            self.run()

    wait_event = launch

    def ready(self) -> bool:
        """Whether the next operation need not wait for another stream."""
        operation = self.operations[self.done]
        return not isinstance(operation, Event) or operation.stream.done >= operation.place

    def run(self) -> None:
        """Run the next operation."""
        operation = self.operations[self.done]
        operation.synchronize() if isinstance(operation, Event) else operation()
        self.done += 1

    def record(self) -> Event:
        """An event after all that was launched."""
        event = Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Run all."""
        self.record().synchronize()


class Event:
    """A place in a stream."""

    def record(self, stream: Stream | None = None) -> None:
        """Move it behind what was launched."""
        self.stream = stream or Stream.current[-1]
        self.place = len(self.stream.operations)

    @property
    def done(self) -> bool:
        """Whether all before it has run, as it has sooner or later."""
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """Run what is before it."""
        while self.stream.done < self.place:
            self.stream.run()


def empty(job: str, count: int, dtype: Any) -> DeviceArray:
    """Memory that the current stream has freed, if it has some: without a value, and not marked as such."""
    stream, nbytes = Stream.current[-1], count * np.dtype(dtype).itemsize
    free = stream.free.setdefault(nbytes, [])
    memory = Memory(nbytes, True)
    if free:
        memory.bytes = free.pop()
    weakref.finalize(memory, free.append, memory.bytes)
    return DeviceArray(memory.bytes.view(dtype), memory)


def to_pinned(array: DeviceArray) -> Any:
    """What is copied when the stream comes to it; by address, as a device does."""
    host = np.empty(array.shape, array.dtype)
    given = host.ctypes.data, int(array.host.ctypes.data), host.nbytes
    Stream.current[-1].launch(lambda: ctypes.memmove(*given))
    return host


def load(source: Path, instance: str) -> Callable[[Any, Any, Any], None]:
    """A kernel that runs when the stream comes to it; by address, too: what it is given may be freed by then."""
    kernel = HOST.load(source, instance)

    def launch(grid: Any, block: Any, given: Any) -> None:
        late = [DeviceArray(one.host, copy(one.memory)) if isinstance(one, DeviceArray) else one for one in given]
        Stream.current[-1].launch(lambda: kernel(grid, block, late))

    return launch


@pytest.fixture(params=[False, True])
def device(cp: Any, on_device: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """The model; what is beside a lane runs as late, or as early, as it may."""
    if cp.cuda.Stream is not HostStream:
        pytest.skip("a model of what a GPU does by itself")
    for name, value in (("made", []), ("current", []), ("eager", request.param)):
        monkeypatch.setattr(Stream, name, value, raising=False)
    Stream.current.append(Stream())
    for name, value in (("Stream", Stream), ("Event", Event), ("get_current_stream", lambda: Stream.current[-1])):
        monkeypatch.setattr(cp.cuda, name, value)
    monkeypatch.setattr(nvrtc, "load", load)
    for module in (decoding, decompress):
        monkeypatch.setattr(module, "empty", empty)
    monkeypatch.setattr(decoding, "to_pinned", to_pinned)
    decoding._streams_beside.cache_clear()
    yield
    decoding._streams_beside.cache_clear()


def counted(block: DeviceArray) -> Any:
    """As by kernels, which have an address only: the block may be freed once they are launched."""
    return to_pinned(block)


def under_way() -> list[Stream]:
    """Streams beside lanes that have something to do."""
    return [stream for stream in Stream.made if stream.beside and stream.done < len(stream.operations)]


@pytest.mark.usefixtures("device")
def test_memory_is_used_again_only_after_what_was_launched_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk, samples, nbytes = in_files(tmp_path, monkeypatch)
    found = []
    with closing(device_blocks(chunk, Timeline(), nbytes)) as blocks:
        for block in blocks:
            found.append(counted(block))
            del block
    np.testing.assert_array_equal(np.concatenate(found), samples)
    assert not under_way() and any(stream.free.get(200) for stream in Stream.made)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_nothing_is_under_way_when_a_lane_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """By a caller who stops, or for lack of memory."""
    chunk, samples, nbytes = in_files(tmp_path, monkeypatch)
    with closing(device_blocks(chunk, Timeline(), nbytes)) as blocks:
        for _ in range(number):
            counted(next(blocks))
    assert not under_way()
    start, started = decoding.start, list[Any]()

    def failing(*given: Any) -> Any:
        if len(started) == number:
            raise MemoryError("planted")
        started.append(start(*given))
        return started[-1]

    with monkeypatch.context() as patch, pytest.raises(MemoryError, match="planted"):
        patch.setattr(decoding, "start", failing)
        for block in device_blocks(chunk, Timeline(), nbytes):
            counted(block)
            del block
    assert not under_way()
    found = [counted(block) for block in device_blocks(chunk, Timeline(), nbytes)]
    np.testing.assert_array_equal(np.concatenate(found), samples)
