"""How long a device is said to be busy with blocks that it decodes ahead, by the clock of a model of one."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.gpu.buffered import buffered_blocks
from pipeline.timeline import Timeline

BLOCKS = 6


class Device:
    """Reads take `reading` seconds each, one after another; a stream decodes a block, and another one computes it."""

    def __init__(self, reading: float, decoding: float, computing: float) -> None:
        self.reading, self.decoding, self.computing = reading, decoding, computing
        self.now = self.read_until = self.decoded_until = self.computed_until = 0.0
        self.busy: list[tuple[float, float]] = []  # from, until

    def compute(self) -> None:
        """Launch the kernels of a block."""
        began = max(self.now, self.computed_until)
        self.computed_until = began + self.computing
        self.busy.append((began, self.computed_until))

    def begin(self, slot: Any) -> Any:
        """Start a read; what arrives is decoded after the kernels that were launched by then."""
        self.read_until = arrives = max(self.now, self.read_until) + self.reading

        def result() -> Any:
            self.now = max(self.now, arrives)
            return slot

        def make(stored: Any) -> Any:
            began = max(self.now, self.decoded_until, self.computed_until)
            self.decoded_until = ended = began + self.decoding
            self.busy.append((began, ended))
            decoded = self.event(ended)

            def samples() -> Any:
                decoded.synchronize()
                return stored

            return SimpleNamespace(began=self.event(began), decoded=decoded, get=decoded.synchronize, samples=samples)

        return SimpleNamespace(result=result), make

    def event(self, at: float | None = None) -> Any:
        """What occurs at a time; if none is given, after what is launched when it is recorded."""
        event = SimpleNamespace(at=at)

        def record() -> None:
            event.at = max(self.now, self.computed_until)

        def synchronize() -> None:
            self.now = max(self.now, event.at)

        event.record, event.synchronize = record, synchronize
        return event

    def busy_seconds(self) -> float:
        """Of all that was decoded or computed, whatever overlapped."""
        seconds = until = 0.0
        for begin, end in sorted(self.busy):
            seconds += max(end - max(begin, until), 0.0)
            until = max(until, end)
        return seconds


@pytest.mark.parametrize(
    ("reading", "decoding", "computing"),
    [(10, 2, 1), (10, 1, 2), (10, 2, 2), (0, 2, 1), (0, 1, 2), (3, 2, 2), (0, 1, 0)],
)
def test_kernels_are_busy_while_the_device_decodes_or_computes(
    monkeypatch: pytest.MonkeyPatch, reading: float, decoding: float, computing: float
) -> None:
    """Not while it has nothing to do because the next bytes have not come; what overlaps counts once."""
    device, cupy, timeline = Device(reading, decoding, computing), ModuleType("cupy"), Timeline(True)
    cuda = SimpleNamespace(Event=device.event, get_elapsed_time=lambda began, ended: 1000 * (ended.at - began.at))
    monkeypatch.setattr(cupy, "cuda", cuda, raising=False)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    slots = [np.zeros(number, np.uint8) for number in (1, 2, 3)]
    blocks = buffered_blocks(iter([device.begin] * BLOCKS), slots, (device.event(), device.event()), timeline)
    for _ in blocks:
        device.compute()
    assert timeline.seconds["kernel"] == pytest.approx(device.busy_seconds())
    assert [span.nbytes for span in timeline.spans if span.stage == "kernel"] == [1, 2, 3] * (BLOCKS // 3)
    assert device.now == device.computed_until  # nothing is left to wait for
