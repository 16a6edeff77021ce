"""Recomputes partials of a GPU's or a CPU's samples from a read of its own: by compiled checks, or by references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.compiled_check import CompiledCheck
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.pace import not_counted
from pipeline.errors import VerificationError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Chunk, Region
from pipeline.storage.feed import feed
from pipeline.timeline import Timeline
from workflows.aggregation import Check

# Samples of every chunk that a compiled check and the reference both count.
COMPARED = 2**13


@dataclass(frozen=True)
class Reference:
    """Partials of some parts of a chunk by the check or the reference of each job, and how long that took."""

    partials: tuple[NDArray[Any], ...]
    timeline: Timeline


def recompute_part(pass_: Pass, part: Chunk, compared: bool) -> Reference:
    """Recompute a part of a chunk with the checks, or the references, independently of the computed partials.

    Parameters
    ----------
    pass_
    part
    compared
        Whether to compare checks with their references.

    Raises
    ------
    VerificationError
        If a check differs from its reference on a random run of the samples.
    """
    timeline = Timeline(pass_.traced)
    dtype = part.dtype.newbyteorder("=")
    checks = [_check(job, dtype, part.start) for job in pass_.jobs]
    region = _random_region(pass_, part) if compared else Region(0, 0)
    with timeline.measure("verify", part.nbytes):
        some = feed(part, checks, region)
        if compared:
            _compare(pass_, part, region, some)
        partials = tuple(job.placed(check.partial(), part.start)
                         for job, check in zip(pass_.jobs, checks, strict=True))  # fmt: skip
    return Reference(partials, timeline)


def _check(job: Job, dtype: np.dtype[Any], start: int) -> Check:
    """What recomputes the partial of samples from index `start` on, to which it gets indices from there."""
    with not_counted.counted():
        check = job.workflow.check(job.options, dtype) or _ReferenceCheck(job)
    if not job.workflow.located or (isinstance(check, CompiledCheck) and check.count_from(start)):
        return check
    return _FromStart(check, start)


class _FromStart:
    """The check of a job that is located, for samples whose indices count from the start of a part."""

    def __init__(self, check: Check, start: int) -> None:
        self._check, self._start = check, start
        self.partial = check.partial

    def add(self, samples: NDArray[Any], first: int) -> None:
        self._check.add(samples, self._start + first)


def compare_with_references(pass_: Pass, part: Chunk) -> None:
    """Compare each compiled check with its reference on some samples of a part, which are read for that.

    Raises
    ------
    VerificationError
        If they differ.
    """
    region = _random_region(pass_, part)
    blocks = read_blocks(part.part(region), Timeline())
    _compare(pass_, part, region, np.concatenate([samples.copy() for samples in blocks]))


def _random_region(pass_: Pass, part: Chunk) -> Region:
    samples = min(COMPARED, part.samples, *(job.workflow.compared(job.options) for job in pass_.jobs))
    start = np.random.default_rng([pass_.seed, part.start]).integers(part.samples - samples + 1)
    return Region(int(start), samples)


def _compare(pass_: Pass, part: Chunk, region: Region, samples: NDArray[Any]) -> None:
    """Compare each compiled check with its reference on a few samples."""
    for job in pass_.jobs:
        if (check := job.workflow.check(job.options, part.dtype.newbyteorder("="))) is None:
            continue
        start = part.start + region.start if job.workflow.located else 0
        check.add(samples, start)
        if details := job.differences(check.partial(), job.reference(samples, start)):
            raise VerificationError(f"{job.workflow.name}: the check and the reference disagree in chunk {part.index} "
                                    f"({part.where(region)}): {'; '.join(details)}; nothing was written")  # fmt: skip


def combined(jobs: Sequence[Job], partials: Sequence[Sequence[NDArray[Any]]]) -> tuple[NDArray[Any], ...]:
    """The partials of each job as one; there is at least one of each."""
    return tuple(
        reduce(job.workflow.combine, of_job) for job, of_job in zip(jobs, zip(*partials, strict=True), strict=True)
    )


class _ReferenceCheck:
    """The reference of a job, for samples that come array by array."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._partial: NDArray[Any] | None = None

    def add(self, samples: NDArray[Any], first: int) -> None:
        partial = self._job.placed(self._job.reference(samples, first), first)
        self._partial = partial if self._partial is None else self._job.workflow.combine(partial, self._partial)

    def partial(self) -> NDArray[Any]:
        assert self._partial is not None
        return self._partial
