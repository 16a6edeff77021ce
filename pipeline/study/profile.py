"""A table in the manner of nvprof: what the GPU did and what the calls took, of one run of each variant.

Activities are timed by CUDA events, calls by the host's clock. nsys, where it is installed, shows the driver's records.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.study.data import SEED
from workflows.study.study import Arrays, Case, Study

ACTIVITIES, CALLS = "GPU activities", "API calls"
TO_DEVICE, TO_HOST = "[copy host to device]", "[copy device to host]"


class Tracer(Protocol):
    """Does what a course's program does, and records how long each step took."""

    steps: list[tuple[str, str, float]]  # (`ACTIVITIES` or `CALLS`, name, milliseconds), in order

    def upload(self, array: NDArray[Any]) -> Any:
        """Allocate and copy."""

    def launch(self, name: str, work: Callable[[], Any]) -> Any:
        """Launch and wait."""

    def download(self, array: Any) -> None:
        """Copy back."""


@dataclass(frozen=True)
class Line:
    """A line of the table; times in milliseconds, the share of all lines of its kind."""

    kind: str
    name: str
    share: float
    total: float
    calls: int
    mean: float
    least: float
    most: float


def profile(study: Study, cases: Sequence[Case], tracer: Tracer) -> tuple[Line, ...]:
    """The table of one run of each right kernel, on its smallest case."""
    for case in _smallest_cases(study, cases):
        trace(study, case, study.inputs(case, np.random.default_rng(SEED)), tracer)
    return lines(tracer.steps)


def _smallest_cases(study: Study, cases: Sequence[Case]) -> list[Case]:
    smallest: dict[str, Case] = {}
    for case in cases:
        variant = study.variants[case.variant]
        if not (variant.broken or variant.on_host):
            known = smallest.setdefault(case.variant, case)
            smallest[case.variant] = case if study.work(case) < study.work(known) else known
    return list(smallest.values())


def trace(study: Study, case: Case, arrays: Arrays, tracer: Tracer) -> None:
    """Run a case as a program of its own would, once its kernel is compiled; nothing that is refused."""
    variant = study.variants[case.variant]
    values = {**variant.parameters, **case.parameters}
    steps = list(tracer.steps)
    inputs = [tracer.upload(array) for array in arrays]
    try:
        result = tracer.launch(case.variant, lambda: variant.run(*inputs, **values))
    except (TypeError, ValueError):
        tracer.steps[:] = steps
        return
    tracer.download(result)


def lines(steps: Sequence[tuple[str, str, float]]) -> tuple[Line, ...]:
    """Activities before calls, those that took longest first."""
    every = []
    for kind in (ACTIVITIES, CALLS):
        by_name: dict[str, list[float]] = {}
        for of, name, ms in steps:
            if of == kind:
                by_name.setdefault(name, []).append(ms)
        whole = sum(map(sum, by_name.values())) or 1.0
        for name, times in sorted(by_name.items(), key=lambda item: -sum(item[1])):
            total = sum(times)
            every.append(Line(kind, name, total / whole, total, len(times), total / len(times), min(times), max(times)))
    return tuple(every)


def profile_table(profile: Sequence[Line]) -> list[list[str]]:
    """Header and rows, with nvprof's columns."""
    rows = [["type", "share", "time, ms", "calls", "mean, ms", "least, ms", "most, ms", "name"]]
    for line in profile:
        total, *others = (f"{ms:.4g}" for ms in (line.total, line.mean, line.least, line.most))
        rows.append([line.kind, f"{line.share:.2%}", total, str(line.calls), *others, line.name])
    return rows


def by_nsys(job: str) -> str:
    """How to see the driver's own records, or that nsys is missing."""
    if shutil.which("nsys"):
        return f"the driver's own records: nsys nvprof --print-gpu-trace python -m pipeline study {job} --quick"
    return "nsys is not installed: activities are timed by CUDA events, calls by the host's clock"
