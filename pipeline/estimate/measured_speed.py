"""How long a job takes on this machine: measured once with generated data, and again if the machine changes."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from kernels.common.cache import open_cache, read_cached, write_cached
from pipeline.engine.outcome import Outcome
from pipeline.engine.pace import LEAST_SECONDS
from pipeline.estimate.machine import identity
from pipeline.process.last_words import say
from pipeline.process.signals import unseal
from pipeline.settings import Settings

FORMAT = 3  # of what is kept
REPEATS = 2  # of each run, of which the fastest counts: the machine may be shared
LONG_SECONDS = 2.0  # a run that takes longer is not repeated, and no larger one is measured
COMPUTING = ("read", "read+copy", "to device", "kernel", "write")


@dataclass(frozen=True)
class Point:
    """A measured run: its work, and its seconds without checks and with all of them."""

    nbytes: int
    operations: float
    seconds: float
    checked_seconds: float


@dataclass(frozen=True)
class Model:
    """Seconds of a job: of its start-up, at least, per byte and per multiplication; of its checks likewise.

    `stage` takes longest but for checks, this share of the run; `passes` is how often the input was read.
    """

    start_up: float
    fixed: float
    per_byte: float
    per_operation: float
    check_fixed: float
    check_per_byte: float
    check_per_operation: float
    stage: str
    stage_share: float
    passes: int
    measured: str

    def seconds(self, nbytes: int, operations: float) -> float:
        """Seconds of a run without checks."""
        return self.fixed + self.per_byte * nbytes + self.per_operation * operations

    def checks(self, nbytes: int, operations: float) -> float:
        """Seconds of all checks."""
        return self.check_fixed + self.check_per_byte * nbytes + self.check_per_operation * operations


def time_of_checks(mode: str, computing: float, all_checks: float, device: str, whole: bool) -> float:
    """Seconds that checks add to a run: as many as fit into its own time, if the mode is `auto`."""
    if mode == "off":
        return 0.0
    if mode == "full" or whole:
        return all_checks
    if mode == "sample":
        return all_checks / 256
    least = LEAST_SECONDS if device == "gpu" else LEAST_SECONDS - computing
    return min(all_checks, max(computing, least))


def calibrated(key: object, runs: Callable[[], Sequence[Run]], settings: Settings) -> Model:
    """The model of a job, kept or measured; `runs`, the smallest first, are only made if they are needed."""
    name = f"plan-{hashlib.sha256(pickle.dumps((FORMAT, identity(), key))).hexdigest()}.json"
    with open_cache() as folder:
        if (kept := read_cached(folder, name)) is not None:
            with suppress(ValueError, TypeError):
                return Model(**json.loads(kept))
    say("measuring this machine for this job, once, for some seconds")
    model = _measured(runs(), settings)
    with open_cache() as folder, suppress(OSError):
        write_cached(folder, name, json.dumps(asdict(model)).encode())
    return model


@dataclass(frozen=True)
class Run:
    """A run to be measured: what does it with settings, its work, and in words."""

    run: Callable[[Settings], Outcome]
    nbytes: int
    operations: float
    what: str


def _measured(runs: Sequence[Run], settings: Settings) -> Model:
    first = runs[0].run(replace(settings, verify="full"))  # imports what a command does; what it compiles is kept
    unseal()
    points: list[Point] = []
    started = 0.0  # by a run that neither imports nor compiles
    for run in runs:
        fastest: dict[str, Outcome] = {}
        for _ in range(REPEATS):
            for verify in ("off", "full"):
                outcome = run.run(replace(settings, verify=verify))
                unseal()
                started = max(started, outcome.stages.start_up)
                if verify not in fastest or outcome.stages.wall < fastest[verify].stages.wall:
                    fastest[verify] = outcome
            if outcome.stages.wall > LONG_SECONDS:
                break
        off, full = fastest["off"].stages, fastest["full"].stages
        points.append(Point(run.nbytes, run.operations, off.wall, max(full.wall, off.wall)))
        last, stages = run, off
        if full.wall > LONG_SECONDS:
            break
    busy = {"kernel": 0.0} | {stage: busy for stage, busy in stages.busy().items() if stage in COMPUTING}
    stage = max(busy, key=busy.__getitem__)
    computing = _fit(points, [point.seconds for point in points])
    checks = _fit(points, [point.checked_seconds - point.seconds for point in points])
    passes = max(1, round(stages.nbytes / max(1, last.nbytes))) if last.operations == 0 else 1
    return Model(max(first.stages.start_up - first.stages.compiling, started), *computing, *checks, stage,
                 min(1.0, busy[stage] / stages.wall), passes, last.what)  # fmt: skip


def _fit(points: Sequence[Point], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Least relative error of fixed + per byte + per operation, none of them negative; fewer if points are few."""
    columns: list[Any] = [np.ones(len(points)), np.array([point.nbytes for point in points], float)]
    if any(point.operations for point in points):
        columns.append(np.array([point.operations for point in points], float))
    chosen = list(range(len(columns)))[-len(points) :]  # what grows with the work first
    weights = 1 / np.maximum(seconds, 1e-4)
    while chosen:
        matrix = np.stack([columns[place] * weights for place in chosen], 1)
        scale = np.abs(matrix).max(axis=0)
        scale[scale == 0] = 1.0
        found = np.linalg.lstsq(matrix / scale, np.asarray(seconds) * weights, rcond=None)[0] / scale
        if found.min() >= 0:
            numbers = [0.0, 0.0, 0.0]
            for place, number in zip(chosen, found, strict=True):
                numbers[place] = float(number)
            return numbers[0], numbers[1], numbers[2]
        del chosen[int((found * scale).argmin())]
    return 0.0, 0.0, 0.0
