"""The trace of a run: its spans as a Chrome trace for Perfetto, and as a table."""

from __future__ import annotations

import json
import os
from typing import Any

from pipeline.report.pictures import timeline
from pipeline.timeline import Traced
from workflows.pictures import SUFFIXES


def to_perfetto(traces: list[Traced]) -> dict[str, Any]:
    """Spans as a Chrome trace, for Perfetto or chrome://tracing: a process per worker, a row per stage."""
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


def render_trace(traces: list[Traced], path: str = "") -> bytes:
    """The content of a file of this name: a picture if its suffix says so, else a Chrome trace."""
    if path.endswith(SUFFIXES):
        return timeline(traces, os.path.splitext(path)[1])
    return json.dumps(to_perfetto(traces)).encode() + b"\n"
