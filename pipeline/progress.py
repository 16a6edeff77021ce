"""How far a run has come: what each GPU has read, copied, computed and checked so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import Any, Protocol

from pipeline.timeline import Timeline

MOST_WARNINGS = 100
TOPIC = "baru"  # of the scheduler's events that have snapshots


class Finished(Protocol):
    """What is known of a finished chunk or task: which worker computed it, on which device, and how long it took."""

    @property
    def worker(self) -> str:
        """Address of the worker."""

    @property
    def device(self) -> str:
        """Name of its GPU, or "cpu"."""

    @property
    def unit(self) -> str:
        """Which GPU or process it is, and on which host."""

    @property
    def timeline(self) -> Timeline:
        """How long each stage took."""


class Monitor:
    """Is told how a run gets on; this one does nothing."""

    @contextmanager
    def running(self, workers: Any) -> Iterator[None]:
        """Around everything that these workers do."""
        yield

    def begin(self, total: int | None, lanes: dict[str, int]) -> None:
        """A pass over so many bytes begins; so many tasks at a time run each stage."""

    def finished(self, nbytes: int, result: Finished, checks: Sequence[Timeline]) -> None:
        """So many bytes are computed, with their checks so far."""

    def checked(self, worker: str, timeline: Timeline) -> None:
        """What a worker had computed has been checked later."""


@dataclass
class Unit:
    """A GPU, or a process that computes on the CPU: what it has finished in this pass."""

    device: str
    chunks: int = 0
    nbytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)

    def add(self, timeline: Timeline) -> None:
        """Add seconds and bytes of every stage."""
        for stage, seconds in timeline.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
            self.moved[stage] = self.moved.get(stage, 0) + timeline.nbytes[stage]


class RunProgress(Monitor):
    """Keeps how far a run has come. One thread tells, any thread asks.

    Parameters
    ----------
    verify
        How the run is verified.
    clock
    """

    def __init__(self, verify: str = "auto", clock: Callable[[], float] = monotonic) -> None:
        self.job, self.verify = "", verify
        self._clock, self._lock = clock, Lock()
        self._began = self._pass_began = clock()
        self._state, self._error = "starting", ""
        self._ended: float | None = None
        self._pass = self._done = self._checked = 0
        self._total: int | None = None
        self._lanes: dict[str, int] = {}
        self._units: dict[str, Unit] = {}
        self._unit_of: dict[str, str] = {}  # by the worker's address
        self._names: dict[str, str] = {}  # of GPUs, by UUID
        self._warnings: list[str] = []

    @contextmanager
    def running(self, workers: Any) -> Iterator[None]:
        """Note how the run ends."""
        self._names = dict(workers.names)
        try:
            yield
        except BaseException as error:
            with self._lock:
                self._state, self._error = "failed", str(error).partition("\n")[0] or type(error).__name__
                self._ended = self._clock()
            raise
        with self._lock:
            self._state, self._ended = "finished", self._clock()

    def begin(self, total: int | None, lanes: dict[str, int]) -> None:
        """A pass begins, whose counts start at 0."""
        with self._lock:
            self._state, self._total, self._lanes = "running", total, lanes
            self._pass, self._done, self._pass_began = self._pass + 1, 0, self._clock()
            self._units = {name: Unit(unit.device) for name, unit in self._units.items()}

    def finished(self, nbytes: int, result: Finished, checks: Sequence[Timeline]) -> None:
        """Count a chunk."""
        with self._lock:
            self._unit_of[result.worker] = result.unit
            unit = self._units.setdefault(result.unit, Unit(result.device))
            unit.chunks += 1
            unit.nbytes += nbytes
            self._done += nbytes
            unit.add(result.timeline)
            for timeline in checks:
                self._check(unit, timeline)

    def checked(self, worker: str, timeline: Timeline) -> None:
        """Count a check."""
        with self._lock:
            if unit := self._units.get(self._unit_of.get(worker, "")):
                self._check(unit, timeline)

    def _check(self, unit: Unit, timeline: Timeline) -> None:
        unit.add(timeline)
        self._checked += timeline.nbytes.get("verify", 0)

    def warn(self, text: str) -> None:
        """Keep what went wrong and was done again, or is not used any more."""
        with self._lock:
            self._warnings = [*self._warnings, text][-MOST_WARNINGS:]

    def snapshot(self) -> dict[str, Any]:
        """The state of the run as plain JSON; rates are bytes per second.

        The rate of a stage is what it alone would reach, as in the report; that of a unit or of the run is what was
        finished since the pass began, divided by that time.
        """
        with self._lock:
            now = self._clock() if self._ended is None else self._ended
            seconds = max(now - self._pass_began, 1e-9)
            left = None
            if self._total is not None and self._done and self._ended is None:
                left = (self._total - self._done) * seconds / self._done
            return {
                "job": self.job, "state": self._state, "verify": self.verify, "seconds": now - self._began,
                "pass": self._pass, "bytes": self._done, "total_bytes": self._total,
                "bytes_per_second": self._done / seconds if self._pass else 0.0, "seconds_left": left,
                "chunks": sum(unit.chunks for unit in self._units.values()), "checked_bytes": self._checked,
                "units": [self._described(key, unit, seconds) for key, unit in sorted(self._units.items())],
                "warnings": self._warnings, "error": self._error,
            }  # fmt: skip

    def _described(self, key: str, unit: Unit, seconds: float) -> dict[str, Any]:
        lanes = {stage: number / len(self._units) for stage, number in self._lanes.items()}
        rates = {
            stage: self_moved * lanes.get(stage, 1.0) / unit.seconds[stage]
            for stage, self_moved in unit.moved.items() if self_moved and unit.seconds[stage]
        }  # fmt: skip
        return {"name": self._named(key), "unit": key, "device": unit.device, "chunks": unit.chunks,
                "bytes": unit.nbytes, "bytes_per_second": unit.nbytes / seconds, "stages": rates}  # fmt: skip

    def _named(self, key: str) -> str:
        """A GPU's index, as `nvidia-smi` shows it, where it is known; else the beginning of its UUID, or a process."""
        own, _, host = key.partition(" on ")
        if own in self._names:
            return self._names[own]
        short = own[:12] if own.startswith(("GPU-", "MIG-")) else own
        hosts = {other.partition(" on ")[2] for other in self._units}
        return f"{host} {short}" if len(hosts) > 1 else short
