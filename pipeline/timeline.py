"""Times of a chunk: seconds per stage, and every span if the run is traced."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, NamedTuple

from pipeline.process.heartbeat import step


class Span(NamedTuple):
    """One piece of work: stage, start in seconds since the epoch, duration in seconds, bytes."""

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
        Sums by stage; stages overlap, so their total may exceed the elapsed time.
    spans
        In the order in which they ended.
    transfer_paths
        How bytes got from files to a device.
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
        """Add a span that began when ``time.perf_counter`` was `began`."""
        step()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.nbytes[stage] = self.nbytes.get(stage, 0) + nbytes
        if self.traced:
            self.spans.append(Span(stage, _EPOCH + began, seconds, nbytes))

    def join(self, other: Timeline) -> None:
        """Add what another thread has measured."""
        for stage, seconds in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
            self.nbytes[stage] = self.nbytes.get(stage, 0) + other.nbytes[stage]
        self.spans += other.spans

    @contextmanager
    def measure(self, stage: str, nbytes: int = 0) -> Iterator[None]:
        """Add the body of the `with` statement as a span."""
        began = perf_counter()
        try:
            with stage_range(stage):
                yield
        finally:
            self.add(stage, began, perf_counter() - began, nbytes)


@contextmanager
def stage_range(stage: str) -> Iterator[None]:
    """Name what the body does for Nsight Systems, by an NVTX range of CuPy's; nothing where CuPy is not in use."""
    nvtx = _nvtx() if "cupy" in sys.modules else None
    if nvtx is None:
        yield
        return
    nvtx.RangePush(stage)
    try:
        yield
    finally:
        nvtx.RangePop()


def _nvtx() -> Any:
    """CuPy's calls; None where it was built without them."""
    try:
        from cupy.cuda import nvtx
    except ImportError:
        return None
    return nvtx


class Traced(NamedTuple):
    """The spans of a chunk, and where they ran."""

    chunk: int
    worker: str
    device: str
    spans: list[Span]
