"""The outcome of a run: its result, what verification covered, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.engine.verdict import Verdict
from pipeline.storage.array_file import ArrayFile
from pipeline.storage.sources import Source
from pipeline.timeline import Timeline, Traced
from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob


@dataclass
class Stages:
    """Where the time of a run went: seconds and bytes per stage, summed over workers. Stages overlap.

    `compiling` is what of `start_up` this process has compiled, which later runs find compiled.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    transfer_paths: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    lanes: dict[str, int] = field(default_factory=dict)
    traces: list[Traced] = field(default_factory=list)
    nbytes: int = 0
    wall: float = 0.0
    start_up: float = 0.0
    compiling: float = 0.0

    def add(self, index: int, worker: str, device: str, *timelines: Timeline) -> None:
        """Add the times of a chunk or of a task's regions."""
        self.devices.add(device)
        for timeline in timelines:
            self.transfer_paths |= timeline.transfer_paths
            self.kernels |= timeline.kernels
            for stage, seconds in timeline.seconds.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
                self.moved[stage] = self.moved.get(stage, 0) + timeline.nbytes[stage]
            if timeline.spans:
                self.traces.append(Traced(index, worker, device, timeline.spans))

    def busy(self) -> dict[str, float]:
        """Seconds that each stage alone would have taken on all threads or lanes that run it."""
        return {stage: seconds / self.lanes.get(stage, 1) for stage, seconds in self.seconds.items()}


@dataclass(frozen=True)
class Outcome:
    """A finished, verified run; `where` it was computed, and which GPUs took part and why, each in one line.

    `blake3` is the digest of its samples, if it was asked for; `asked` is what a command line asked for, by flag.
    """

    workflow: Aggregation[Any] | ArrayJob[Any]
    options: Any
    source: Source | tuple[ArrayFile, ...]
    result: Any
    verdict: Verdict
    stages: Stages
    where: str
    gpus: str = ""
    blake3: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)


def with_digest(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """All but the last outcome, which is of a digest, each with that digest."""
    *others, digest = outcomes
    return tuple(replace(outcome, blake3=digest.result.blake3) for outcome in others)
