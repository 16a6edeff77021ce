"""Checks partials against invariants and references, and names the first entries that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from pipeline.engine.aggregate_plan import Pass
from pipeline.engine.aggregate_reference import Reference
from pipeline.engine.aggregate_task import ChunkResult, digest_of
from pipeline.errors import VerificationError
from pipeline.storage.chunks import Chunk

Partials = Sequence[NDArray[Any]]  # one per job


@dataclass(frozen=True)
class Mismatch:
    """Where a partial is wrong: job, chunk, byte range, worker, and the first differing entries with both values."""

    job: str
    chunk: int
    where: str
    worker: str
    device: str
    details: tuple[str, ...]

    @property
    def error(self) -> VerificationError:
        """The error that ends the run."""
        return VerificationError(
            f"{self.job}: a number is wrong in chunk {self.chunk} ({self.where}) on worker {self.worker} "
            f"({self.device}): {'; '.join(self.details)}; nothing was written"
        )


def check_arrival(pass_: Pass, chunk: Chunk, result: ChunkResult) -> None:
    """Raise VerificationError if partials are not what a worker sent, or not of this chunk."""
    if digest_of(chunk, result.partials) != result.digest:
        raise VerificationError(f"{pass_.label([chunk])}: the result of worker {result.worker} ({result.device}) "
                                "arrived corrupted, or belongs to another chunk; nothing was written; run again, and "
                                "test the memory")  # fmt: skip


def check_total(pass_: Pass, chunk: Chunk, totals: Partials, worker: str, device: str) -> Mismatch | None:
    """Check the partials of a whole chunk against the invariants of each job."""
    for job, total in zip(pass_.jobs, totals, strict=True):
        if details := job.broken(total, chunk.samples):
            return Mismatch(job.workflow.name, chunk.index, chunk.where(), worker, device, tuple(details))
    return None


def check_part(
    pass_: Pass, part: Chunk, partials: Partials, worker: str, device: str, reference: Reference
) -> Mismatch | None:
    """Compare the partials of a part of a chunk with those that were recomputed."""
    for job, got, expected in zip(pass_.jobs, partials, reference.partials, strict=True):
        if within := job.workflow.within:
            details = [wrong] if (wrong := within(got, expected)) else []
        else:
            details = job.differences(got, expected)
        if details:
            return Mismatch(job.workflow.name, part.index, part.where(), worker, device, tuple(details))
    return None
