"""Times of a chunk: seconds of each stage always, every single span for a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, NamedTuple


class Span(NamedTuple):
    """One piece of work: stage, seconds since the epoch when it began, seconds it took, bytes."""

    stage: str
    began: float
    seconds: float
    nbytes: int


# The wall clock lines up spans of different processes; perf_counter has the resolution within one.
_EPOCH = time() - perf_counter()


@dataclass
class Timeline:
    """Times of one chunk.

    Attributes
    ----------
    traced
        Whether to keep spans.
    seconds, nbytes
        Sums by stage; stages overlap, so that all together may exceed the time that passed.
    spans
        In the order in which they ended.
    transfer_paths
        How bytes went from files to a device.
    kernels
        What computed on a CPU: compiled code or NumPy.
    """

    traced: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    nbytes: dict[str, int] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    transfer_paths: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)

    def add(self, stage: str, began: float, seconds: float, nbytes: int = 0) -> None:
        """Add a span that began at `began` of ``time.perf_counter``."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.nbytes[stage] = self.nbytes.get(stage, 0) + nbytes
        if self.traced:
            self.spans.append(Span(stage, _EPOCH + began, seconds, nbytes))

    @contextmanager
    def measure(self, stage: str, nbytes: int = 0) -> Iterator[None]:
        """Add what is done inside as a span."""
        began = perf_counter()
        try:
            yield
        finally:
            self.add(stage, began, perf_counter() - began, nbytes)


class Traced(NamedTuple):
    """The spans of a chunk, and where they ran."""

    chunk: int
    worker: str
    device: str
    spans: list[Span]


def to_perfetto(traces: list[Traced]) -> dict[str, Any]:
    """Spans as a Chrome trace, which Perfetto and chrome://tracing show: a process per worker, a row per stage."""
    workers = sorted({(trace.worker, trace.device) for trace in traces})
    stages = sorted({span.stage for trace in traces for span in trace.spans})
    first = min((span.began for trace in traces for span in trace.spans), default=0.0)
    events: list[dict[str, Any]] = []
    for number, (worker, device) in enumerate(workers):
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"{device} {worker}"}})
        for row, stage in enumerate(stages):
            events.append({"ph": "M", "name": "thread_name", "pid": number, "tid": row, "args": {"name": stage}})
    for trace in traces:
        for span in trace.spans:
            events.append({
                "ph": "X", "name": span.stage, "cat": "block",
                "pid": workers.index((trace.worker, trace.device)), "tid": stages.index(span.stage),
                "ts": 1e6 * (span.began - first), "dur": 1e6 * span.seconds,
                "args": {"chunk": trace.chunk, "bytes": span.nbytes},
            })  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def to_table(traces: list[Traced]) -> list[str]:
    """Spans summed by device and stage, as lines of text."""
    sums: dict[tuple[str, str, str], list[float]] = {}
    for trace in traces:
        for span in trace.spans:
            total = sums.setdefault((trace.worker, trace.device, span.stage), [0.0, 0.0, 0.0])
            for i, value in enumerate((1, span.seconds, span.nbytes)):
                total[i] += value
    lines = [f"{'worker':<34} {'device':<14} {'stage':<12} {'spans':>7} {'ms':>10} {'ms each':>9} {'GB/s':>8}"]
    for (worker, device, stage), (count, seconds, nbytes) in sorted(sums.items()):
        rate = f"{nbytes / seconds / 1e9:8.2f}" if nbytes and seconds else f"{'':8}"
        lines.append(f"{worker:<34} {device:<14} {stage:<12} {count:7.0f} {1e3 * seconds:10.2f} "
                     f"{1e3 * seconds / count:9.3f} {rate}")  # fmt: skip
    return lines


def write_trace(file: Any, traces: list[Traced]) -> None:
    """Write a Chrome trace to a binary file."""
    file.write(json.dumps(to_perfetto(traces)).encode() + b"\n")
