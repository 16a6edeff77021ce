"""A finished run as text: the panel for people, one JSON object for programs."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engine.outcome import Outcome
from pipeline.engine.verdict import Verdict, verdict_lines
from pipeline.storage.sources import Source
from workflows.aggregation import Aggregation, Drawn
from workflows.rows import RowsOptions

STAGES = ("read", "read+copy", "to device", "kernel", "write", "verify")
RATED_BYTES = 10**8  # of input: with less, starting a task takes longer than what it does, and rates say nothing
SKETCH_COLUMNS = 64
SKETCH_ROWS = 5
BARS = " ▁▂▃▄▅▆▇█"


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The JSON object of a run; ``result`` is independent of where and in how many chunks it was computed."""
    facts = facts_of(outcome)
    return {"job": facts["job"], "input": facts["input"], "result": outcome.result.to_json()} | facts


def facts_of(outcome: Outcome) -> dict[str, Any]:
    """The same without the result, which may have many rows."""
    stages, verdict = outcome.stages, outcome.verdict
    return {
        "job": {"name": outcome.workflow.name, "options": _plain(outcome.options) | _asked(outcome),
                "kernel": _kernel(outcome)},
        "input": _described(outcome),
        "verification": _stated(verdict) | {"verdict": str(verdict)},
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
            "gpus": outcome.gpus or None,
            "devices": sorted(stages.devices),
            "transfers": sorted(stages.transfer_paths),
            "cpu kernels": sorted(stages.kernels),
            "machine": platform.machine(),
            "versions": versions(),
        },
    }  # fmt: skip


def _asked(outcome: Outcome) -> dict[str, Any]:
    """What was asked for besides the job's own options."""
    return dict(outcome.workflow.asked) if isinstance(outcome.workflow, Aggregation) else {}


def _calibrated(outcome: Outcome) -> list[tuple[str, str]]:
    """What the numbers of the result are, if not those of the samples."""
    asked = _asked(outcome)
    if "transform" not in asked:
        return []
    line = f"x * {asked['gain']!r} {'-' if asked['bias'] < 0 else '+'} {abs(asked['bias'])!r}"
    return [("calibrated", line if asked["transform"] == "none" else f"{asked['transform']}({line})")]


def _kernel(outcome: Outcome) -> str | None:
    """What computed, if it was not the job's own kernel."""
    return f"study/{outcome.workflow.kernel}" if outcome.workflow.kernel else None


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that computed the result."""
    installed = {"python": platform.python_version()}
    for name in ("baru", "numpy", "dask", "distributed", "dask-cuda", "cupy-cuda12x", "cupy-cuda13x"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def _replayed(verdict: Verdict) -> str:
    """What was computed again, if anything."""
    if not verdict.replayed:
        return ""
    where = f"{verdict.elsewhere:,} of them on another device" if verdict.elsewhere else "on the same device"
    return f"{verdict.replayed:,} tasks computed again, {where}: the same bits"


def summary(outcome: Outcome) -> str:
    """One line: the job, its input, and the verdict."""
    return f"{outcome.workflow.name} of {_named(outcome)}: {next(filter(None, verdict_lines(outcome.verdict)))}"


def panel(outcome: Outcome) -> list[str]:
    """Lines of the result panel."""
    stages = outcome.stages
    title = f"{outcome.workflow.name} of {_named(outcome)}"
    facts = [*_calibrated(outcome), *outcome.result.lines(), ("", "")]
    if outcome.verdict.read_once:  # from standard input
        facts = [(name, text.replace("--range auto", "--range auto --spool")) for name, text in facts]
    results = len(facts) - 1
    rated, kernel = _input_bytes(outcome) >= RATED_BYTES, _kernel(outcome)
    for stage, _, rate in _rates(outcome) if rated else []:
        how = f" {' and '.join(sorted(stages.transfer_paths))}" if stage == "read+copy" else ""
        if stage == "kernel" and kernel:
            how = f" by {kernel}"
        facts.append((stage, f"{_gigabytes(rate)}{how}{'  ← bound the run' if stage == _bound(outcome) else ''}"))
    if kernel and not rated:
        facts.append(("kernel", kernel))
    facts += [
        *((("BLAKE3", f"{outcome.blake3} of all samples"),) if outcome.blake3 else ()),
        ("whole run", f"{f'{_gigabytes(stages.nbytes / stages.wall)}, ' if rated else ''}{stages.wall:.2f} s after "
                      f"{stages.start_up:.2f} s of start-up, on {outcome.where}"),
        *((("", outcome.gpus),) if outcome.gpus else ()),
        ("", ""),
        *zip(("verdict", ""), filter(None, verdict_lines(outcome.verdict)), strict=False),
        *((("", line),) if (line := _replayed(outcome.verdict)) else ()),
    ]  # fmt: skip
    width = max(len(name) for name, _ in facts)
    lines = [f"{name:<{width}}  {text}".rstrip() for name, text in facts]
    return [
        title,
        "─" * len(title),
        *lines[:results],
        *shape_of(outcome.result),
        *lines[results + 1 :],
    ]


def shape_of(result: Any) -> list[str]:
    """The sketch of a result that can be drawn, between empty lines; one of these if there is nothing to draw."""
    if not isinstance(result, Drawn):
        return [""]
    values, edges = result.steps()
    if not values.any():
        return [""]
    return ["", *sketch(values), _axis(edges), ""]


def sketch(values: NDArray[Any]) -> list[str]:
    """Draw values as a bar chart of a few rows of text; if there are many, neighbours share a column."""
    columns = min(SKETCH_COLUMNS, len(values))
    borders = np.arange(columns) * len(values) // columns
    # Means, so that columns over different numbers of values compare.
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
    if isinstance(source, Source):
        return _input_name(source.names, source.paths, source.dtype.name)
    return " and ".join(
        _input_name(array.names, [piece.path for piece in array.pieces], str(array.spec)) for array in source
    )


def _input_name(names: Sequence[str], paths: Sequence[str], what: str) -> str:
    """Paths as a person would type them; the JSON object has the whole path."""
    if len(names) > 1:
        return f"{len(names)} {'files' if len(paths) == len(names) else 'sources'} ({what})"
    near = names[0]
    if paths:
        with suppress(FileNotFoundError):  # the working folder was removed
            near = os.path.relpath(near)
    return f"{names[0] if near.startswith('..') else near} ({what})"


def _samples(outcome: Outcome, source: Source) -> int:
    """Number of samples; a source of unknown length does not know its shape or size, even afterwards."""
    return outcome.verdict.samples if source.samples is None else source.samples


def _input_bytes(outcome: Outcome) -> int:
    source = outcome.source
    if isinstance(source, Source):
        return _samples(outcome, source) * source.dtype.itemsize
    return sum(int(array.spec.nbytes) for array in source)


def _described(outcome: Outcome) -> Any:
    """Where the data came from: an object for samples, a list of objects for arrays."""
    source = outcome.source
    if isinstance(source, Source):
        samples = _samples(outcome, source)
        shape = [samples] if source.shape is None else list(source.shape)
        return {"files": list(source.names), **_dtype(source.dtype), "shape": shape, "samples": samples,
                "bytes": _input_bytes(outcome)} | ({"blake3": outcome.blake3} if outcome.blake3 else {})  # fmt: skip
    return [
        {"files": list(array.names), **_dtype(array.spec.dtype), "shape": list(array.spec.shape),
         "bytes": array.spec.nbytes}
        for array in source
    ]  # fmt: skip


def _dtype(dtype: np.dtype[Any]) -> dict[str, str]:
    return {"dtype": dtype.name, "byteorder": "big" if dtype.byteorder == ">" else "little"}


def _rates(outcome: Outcome) -> list[tuple[str, float, float]]:
    """Stage, busy seconds, and the bytes per second that it would reach alone."""
    moved = outcome.stages.moved
    return [(stage, seconds, moved[stage] / max(seconds, 1e-9)) for stage, seconds in _busy(outcome).items()]


def _busy(outcome: Outcome) -> dict[str, float]:
    """Busy seconds of every stage that moved bytes; checking invariants alone moves none."""
    busy = outcome.stages.busy()
    return {stage: busy[stage] for stage in STAGES if stage in busy and (stage != "verify" or outcome.verdict.checked)}


def _bound(outcome: Outcome) -> str | None:
    """The stage that took longest; none of a small input, where starting tasks did."""
    busy = _busy(outcome) if _input_bytes(outcome) >= RATED_BYTES else {}
    return max(busy, key=busy.__getitem__, default=None)


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.3g} GB/s"


def _stated(verdict: Verdict) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(verdict).items() if value is not None}


def _plain(options: Any) -> dict[str, Any]:
    """The options as JSON types; of jobs on rows also what a row is."""
    if isinstance(options, RowsOptions):
        return _plain(options.of(0)) | {"rows": options.described()}
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
