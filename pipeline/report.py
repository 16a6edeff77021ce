"""What a person and a program see of a finished run: the panel, and the one JSON object."""

from __future__ import annotations

import dataclasses
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.run import Outcome, Verdict

STAGES = ("read", "read+copy", "kernel", "verify")
SKETCH_COLUMNS = 64
SKETCH_ROWS = 5
BARS = " ▁▂▃▄▅▆▇█"


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The JSON object of a run; ``result`` does not depend on where or in how many chunks it was computed."""
    source, stages, verdict = outcome.source, outcome.stages, outcome.verdict
    return {
        "job": {"name": outcome.workflow.name, "options": _plain(outcome.options)},
        "input": {
            "files": [file.path for file in source.files],
            "dtype": source.dtype.name,
            "byteorder": "big" if source.dtype.byteorder == ">" else "little",
            "samples": source.samples,
            "bytes": source.nbytes,
        },
        "result": outcome.result.to_json(),
        "verification": dataclasses.asdict(verdict) | {"verdict": verdict_line(verdict)},
        "performance": {
            "start_up_seconds": stages.start_up,
            "seconds": stages.wall,
            "bytes_per_second": stages.nbytes / stages.wall,
            "stages": {
                stage: {"busy_seconds": busy, "bytes_per_second": rate} for stage, busy, rate in _rates(outcome)
            },
            "bound_by": _bound(outcome),
        },
        "environment": {
            "where": outcome.where,
            "devices": sorted(stages.devices),
            "machine": platform.machine(),
            "versions": versions(),
        },
    }


def versions() -> dict[str, str]:
    """Versions of what computed the result."""
    found = {"python": platform.python_version()}
    for name in ("baru", "numpy", "dask", "distributed", "dask-cuda", "cupy-cuda12x", "cupy-cuda13x"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def verdict_line(verdict: Verdict) -> str:
    """What was verified, in words that claim no more than was done."""
    invariants = f"every invariant holds on all {verdict.chunks:,} chunks"
    if verdict.mode == "off":
        return f"not compared with the reference (--verify off); {invariants}"
    share = 100 * verdict.checked / verdict.samples
    if verdict.checked < verdict.samples:
        share = min(share, 99.9)  # what is not all never rounds to 100
    seed = f", seed {verdict.seed}" if verdict.mode == "sample" else ""
    return (
        f"{verdict.checked:,} of {verdict.samples:,} samples ({share:.3g} %) equal to the reference{seed}; {invariants}"
    )


def panel(outcome: Outcome) -> list[str]:
    """Lines of the result panel."""
    stages = outcome.stages
    title = f"{outcome.workflow.name} of {_named(outcome)}"
    facts = [*outcome.result.lines(), ("", "")]
    for stage, _, rate in _rates(outcome):
        facts.append((stage, f"{_gigabytes(rate)}{'  ← bound the run' if stage == _bound(outcome) else ''}"))
    facts += [
        ("whole run", f"{_gigabytes(stages.nbytes / stages.wall)}, {stages.wall:.2f} s after {stages.start_up:.2f} s "
                      f"of start-up, on {outcome.where}"),
        ("", ""),
        ("verdict", verdict_line(outcome.verdict)),
    ]  # fmt: skip
    width = max(len(name) for name, _ in facts)
    lines = [f"{name:<{width}}  {text}".rstrip() for name, text in facts]
    values, edges = outcome.result.steps()
    shape = ["", *sketch(values), _axis(edges), ""]
    return [
        title,
        "─" * len(title),
        *lines[: len(outcome.result.lines())],
        *shape,
        *lines[len(outcome.result.lines()) + 1 :],
    ]


def sketch(values: NDArray[Any]) -> list[str]:
    """Values as a bar chart of a few rows of text; neighbours share a column where there are many."""
    columns = min(SKETCH_COLUMNS, len(values))
    borders = np.arange(columns) * len(values) // columns
    # The mean of each column's values, so that columns of different width compare.
    widths = np.diff(np.append(borders, len(values)))
    heights = np.add.reduceat(values.astype(np.float64), borders) / widths
    steps = len(BARS) - 1
    top = heights.max() or 1.0
    eighths = np.ceil(heights / top * SKETCH_ROWS * steps).astype(int)
    rows = range(SKETCH_ROWS - 1, -1, -1)
    return ["".join(BARS[min(max(height - row * steps, 0), steps)] for height in eighths) for row in rows]


def _axis(edges: NDArray[np.float64]) -> str:
    left, right = f"{edges[0]:g}", f"{edges[-1]:g}"
    return left + right.rjust(max(min(SKETCH_COLUMNS, len(edges) - 1) - len(left), len(right) + 1))


def _named(outcome: Outcome) -> str:
    source = outcome.source
    if len(source.files) > 1:
        return f"{len(source.files)} files ({source.dtype.name})"
    # As a person would type it; the JSON object has the whole path.
    path = source.files[0].path
    name = path if os.path.relpath(path).startswith("..") else os.path.relpath(path)
    return f"{name} ({source.dtype.name})"


def _rates(outcome: Outcome) -> list[tuple[str, float, float]]:
    """Stage, seconds it was busy, and bytes per second it would reach alone."""
    # Every pass over the data is verified alike.
    checked = outcome.stages.nbytes * outcome.verdict.checked / outcome.verdict.samples
    return [
        (stage, seconds, (checked if stage == "verify" else outcome.stages.nbytes) / max(seconds, 1e-9))
        for stage, seconds in _busy(outcome).items()
    ]


def _busy(outcome: Outcome) -> dict[str, float]:
    """Seconds of every stage that moved bytes: invariants alone have no rate."""
    busy = outcome.stages.busy()
    return {stage: busy[stage] for stage in STAGES if stage in busy and (stage != "verify" or outcome.verdict.checked)}


def _bound(outcome: Outcome) -> str:
    busy = _busy(outcome)
    return max(busy, key=busy.__getitem__)


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.3g} GB/s"


def _plain(options: Any) -> dict[str, Any]:
    """Fields of the options as JSON takes them."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
