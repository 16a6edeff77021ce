"""Where the time of a chunk goes: seconds of each stage always, every single span where a trace is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import NamedTuple


class Span(NamedTuple):
    """One piece of work: stage, seconds since the epoch when it began, seconds it took, bytes."""

    stage: str
    began: float
    seconds: float
    nbytes: int


# Spans of different processes line up by the clock of the machine; within a process the finer one counts.
_EPOCH = time() - perf_counter()


@dataclass
class Timeline:
    """Times of one chunk.

    Attributes
    ----------
    traced
        Whether spans are kept.
    seconds, nbytes
        By stage: added up, so that overlapping stages add up to more than the time that passed.
    spans
        In the order in which they ended.
    ways
        How bytes went from files to a device.
    kernels
        What computed on a CPU.
    """

    traced: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    nbytes: dict[str, int] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    ways: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)

    def add(self, stage: str, began: float, seconds: float, nbytes: int = 0) -> None:
        """Count a span that began at `began` of ``time.perf_counter``."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.nbytes[stage] = self.nbytes.get(stage, 0) + nbytes
        if self.traced:
            self.spans.append(Span(stage, _EPOCH + began, seconds, nbytes))

    @contextmanager
    def measure(self, stage: str, nbytes: int = 0) -> Iterator[None]:
        """Count what is done inside."""
        began = perf_counter()
        try:
            yield
        finally:
            self.add(stage, began, perf_counter() - began, nbytes)


class Traced(NamedTuple):
    """Spans of a chunk, and where they ran."""

    chunk: int
    worker: str
    device: str
    spans: list[Span]
