"""Pictures as files, PNG, SVG or PDF: of a result, and of a run as a timeline of its stages."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.timeline import Traced
from workflows import pictures
from workflows.aggregation import Mapped, Result
from workflows.shown import two_axes

COLUMNS = 800  # moments of a timeline
ROW_INCHES = 0.28
STAGES = ("read", "read+copy", "to device", "kernel", "to host", "write", "verify")
# The same result gives the same bytes: neither date nor random names in a file.
STABLE: dict[str, dict[str, Any]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_picture(path: str) -> None:
    """Refuse a picture without matplotlib, before anything is computed; UsageError."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UsageError(f"{path}: {pictures.MISSING}") from None


def picture(result: Result, suffix: str, how: str = "counts") -> bytes:
    """A result as a picture: counts, a logarithmic scale, or shares up to a value (`workflows.pictures.HOW`)."""
    figure = pictures.new_figure()
    if isinstance(result, Mapped):
        values, edges, what, names = result.heat()
        pictures.draw_map(figure.add_subplot(), values, edges, what, names, how)
    else:
        pictures.draw_histogram(figure.add_subplot(), result, how)
    return content(figure, suffix)


def ratio(result: Any, other: Any, names: Sequence[str], suffix: str, how: str = "counts") -> bytes:
    """Two histograms and their ratio as a picture; ValueError if their bins differ."""
    figure = pictures.new_figure(pictures.SIZE[1] * 1.4)
    result.plot(two_axes(figure), how, other, pictures.literal(names))
    return content(figure, suffix)


def content(figure: Any, suffix: str) -> bytes:
    """A figure as the bytes of a file."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "baru"}):
        figure.savefig(file, format=suffix[1:], metadata=STABLE[suffix])
    return file.getvalue()


def timeline(traces: Sequence[Traced], suffix: str) -> bytes:
    """When each stage was busy on each worker: a row for each of both, darker where several tasks were in it."""
    names, busy, seconds = busy_rows(traces)
    figure = pictures.new_figure(1.5 + ROW_INCHES * len(names))
    axes = figure.add_subplot()
    top = max(1.0, float(busy.max(initial=0.0)))
    drawn = axes.pcolormesh(np.linspace(0, seconds, COLUMNS + 1), np.arange(len(names) + 1) - 0.5, busy,
                            cmap="Greys", vmin=0, vmax=top, rasterized=True)  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    for row in range(1, len(names)):
        new = names[row].partition(":")[0] != names[row - 1].partition(":")[0]
        axes.axhline(row - 0.5, color="0.3" if new else "0.85", linewidth=1.2 if new else 0.5)
    axes.set(xlabel="seconds since the first read", ylim=(max(len(names), 1) - 0.5, -0.5), xlim=(0, seconds))
    axes.xaxis.set_major_formatter(lambda value, _: pictures.plain(value))
    figure.colorbar(drawn, ax=axes, label="tasks in the stage", ticks=range(0, int(top) + 1, max(1, int(top) // 5)))
    return content(figure, suffix)


def busy_rows(traces: Sequence[Traced]) -> tuple[list[str], NDArray[np.float64], float]:
    """Names of the rows; how many tasks were in a stage, on average, in each of `COLUMNS` moments; seconds in all."""
    workers = sorted({(trace.device, trace.worker) for trace in traces})
    present = {(trace.worker, span.stage) for trace in traces for span in trace.spans}
    keys = [(worker, stage) for _, worker in workers for stage in STAGES if (worker, stage) in present]
    numbers = {worker: f"{device} {number}" if len(workers) > 1 else device
               for number, (device, worker) in enumerate(workers)}  # fmt: skip
    spans = [(keys.index((trace.worker, span.stage)), span) for trace in traces for span in trace.spans
             if span.stage in STAGES]  # fmt: skip
    first = min((span.began for _, span in spans), default=0.0)
    seconds = max((span.began + span.seconds - first for _, span in spans), default=0.0) or 1.0
    busy = np.zeros((len(keys), COLUMNS))
    for row, span in spans:
        start = (span.began - first) / seconds * COLUMNS
        stop = start + span.seconds / seconds * COLUMNS
        low, high = int(start), min(int(stop), COLUMNS - 1)
        if low >= COLUMNS:
            continue
        busy[row, low : high + 1] += 1
        busy[row, low] -= start - low
        busy[row, high] -= max(high + 1 - stop, 0.0)
    return [f"{numbers[worker]}: {'check' if stage == 'verify' else stage}" for worker, stage in keys], busy, seconds
