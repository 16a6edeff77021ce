"""Checks the partials of a chunk against invariants and references, and names the first entries that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_task import ChunkResult, Reference
from pipeline.storage.chunks import Chunk


@dataclass(frozen=True)
class Mismatch:
    """Where a partial is wrong: job, chunk, byte range, worker, and the first differing entries with both values."""

    job: str
    chunk: int
    where: str
    worker: str
    device: str
    details: tuple[str, ...]

    def __str__(self) -> str:
        return f"chunk {self.chunk} ({self.where}) on worker {self.worker} ({self.device}): {'; '.join(self.details)}"


def check_chunk(pass_: Pass, chunk: Chunk, result: ChunkResult, reference: Reference | None = None) -> Mismatch | None:
    """Check the partials of a chunk against the invariants of each job, and its reference if it was recomputed."""
    for number, job in enumerate(pass_.jobs):
        partial = result.partials[number]
        details = [broken for check in job.workflow.invariants if (broken := check(partial, chunk.samples))]
        if reference:
            details += differences(job, result.checked[number], reference.partials[number])
        if details:
            where = chunk.where(chunk.checked)
            return Mismatch(job.workflow.name, chunk.index, where, result.worker, result.device, tuple(details))
    return None


def differences(job: Job, got: NDArray[Any], expected: NDArray[Any]) -> list[str]:
    """The first entries in which a partial differs from its reference; NaN differs from everything."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return [f"expected {expected.shape} of {expected.dtype}, got {got.shape} of {got.dtype}"]
    places = np.flatnonzero(~(got == expected))
    label = job.workflow.label
    lines = [f"{label(int(i), job.options)}: expected {expected[i]}, got {got[i]}" for i in places[:3]]
    return [*lines, f"{len(places) - 3} more"] if len(places) > 3 else lines
