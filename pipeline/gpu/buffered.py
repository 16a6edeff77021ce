"""Blocks of a chunk in a few device buffers: while one block is computed, others are filled and decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from pipeline.gpu.loads import DECODED, Begun, Made
from pipeline.gpu.transfer import finish
from pipeline.timeline import Timeline, stage_range


def buffered_blocks(
    begins: Iterator[Callable[[Any], Begun]], slots: Sequence[Any], events: tuple[Any, Any], timeline: Timeline
) -> Iterator[Any]:
    """Blocks, each begun with the slot that it is read into; other slots are filled while one is computed."""
    free, in_flight, made = deque(slots), deque[tuple[Begun, Any]](), deque[tuple[Made, Any, float]]()
    kernels = _Kernels(timeline)
    before = perf_counter()
    try:
        while True:
            while free and (begin := next(begins, None)) is not None:
                in_flight.append((begin(slot := free.popleft()), slot))
            if not in_flight and not made:
                break
            while in_flight and (not made or (len(made) < DECODED and made[-1][0].began)):
                (arriving, make), slot = in_flight.popleft()
                with stage_range("read+copy"):
                    stored = arriving.result()
                now = perf_counter()
                timeline.add("read+copy", before, now - before, stored.nbytes)
                before = now
                made.append((make(stored), slot, now))
            block, slot, arrived = made.popleft()
            if block.began:
                yield from kernels.launched(block, arrived)
            else:
                # The slot is refilled next, so wait for the kernels that read it.
                yield from computed(block.samples, events, timeline)
            free.append(slot)
        kernels.end()
    finally:  # memory must not be released before
        for block, *_ in made:
            with suppress(RuntimeError):
                block.get()
        finish(arriving for (arriving, _), _ in in_flight)


class _Kernels:
    """The caller's kernels on blocks that were decoded ahead; they are waited for when the next ones can be launched.

    Their span begins with the decoding, or, if that was under way then, where the one before it ended. It is as long as
    the device decodes and computes: between both, the lane may wait for the bytes of the next block.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._last: tuple[float, Made, Any, Any, int] | None = None
        self._before: Any = None
        self._until = 0.0  # end of the span before

    def launched(self, block: Made, arrived: float) -> Iterator[Any]:
        """Yield the samples of a block, whose bytes arrived at a time of `perf_counter`."""
        import cupy

        launched, ended = cupy.cuda.Event(), cupy.cuda.Event()
        with stage_range("kernel"):
            block.get()
            launched.record()
            samples = block.samples()
            self.end()
            nbytes = samples.nbytes
            yield samples
        del samples
        ended.record()
        self._last = arrived, block, launched, ended, nbytes

    def end(self) -> None:
        """Wait for the last ones."""
        import cupy

        if self._last is None:
            return
        arrived, block, launched, ended, nbytes = self._last
        ended.synchronize()
        begins = [block.began] if self._before is None else [block.began, self._before]
        elapsed = cupy.cuda.get_elapsed_time
        decoding = min(elapsed(begin, block.decoded) for begin in begins)  # negative if it ended before
        seconds = (max(decoding, 0.0) + elapsed(launched, ended)) / 1000
        start = max(arrived, self._until)
        self._timeline.add("kernel", start, seconds, nbytes)
        self._last, self._before, self._until = None, ended, start + seconds


def computed(samples: Callable[[], Any], events: tuple[Any, Any], timeline: Timeline) -> Iterator[Any]:
    """Make a block of samples and yield it, then wait for the kernels that the caller launched on it."""
    import cupy

    began, ended = events
    now = perf_counter()
    began.record()
    with stage_range("kernel"):
        block = samples()
        yield block
    ended.record()
    ended.synchronize()
    timeline.add("kernel", now, cupy.cuda.get_elapsed_time(began, ended) / 1000, block.nbytes)
