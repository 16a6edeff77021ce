"""What runs on a worker: one chunk to its partial, and the reference of what was computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from pipeline.cluster.worker import device_name, leave_if_broken, worker_address
from pipeline.engine.pickle_once import CommonPart
from pipeline.errors import PipelineError, UsageError, failure
from pipeline.gpu.blocks import BLOCK_BYTES, device_blocks
from pipeline.gpu.devices import find_devices
from pipeline.storage.chunks import Chunk, Region
from pipeline.storage.blocks import read_blocks
from pipeline.timeline import Timeline
from workflows.aggregation import Workflow

# Streamed before the first chunk: so much that every thread that reads has read.
READY_BYTES = 2**27

Done = TypeVar("Done")


@dataclass(frozen=True)
class Job:
    """A workflow with its options."""

    workflow: Workflow[Any]
    options: Any

    @property
    def surveyed(self) -> bool:
        """Whether another job has to complete the options first."""
        survey = self.workflow.survey
        return survey is not None and survey.needed(self.options)

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels do all that it computes on a CPU; compiles them."""
        source = self.workflow.cpu_source
        return not self.surveyed and source is not None and cxx.library(source) is not None

    def empty(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Partial of no samples of a native dtype; UsageError where there have to be some."""
        if self.workflow.empty is None:
            raise UsageError("expected at least one chunk of samples, got none")
        return self.workflow.empty(dtype, self.options)

    def survey(self) -> Job:
        """The job that completes the options."""
        assert self.workflow.survey is not None
        return Job(self.workflow.survey.workflow, self.options)

    def resolved(self, partial: NDArray[Any]) -> Job:
        """The job with what its survey found; ValueError where that cannot be."""
        assert self.workflow.survey is not None
        survey = self.workflow.survey
        return Job(self.workflow, survey.resolve(self.options, survey.workflow.finalize(partial, self.options)))


@dataclass(frozen=True)
class Pass(CommonPart):
    """What every task of one pass over the data has in common.

    All of it travels with the tasks: a worker that replaces another one knows nothing else.

    Attributes
    ----------
    jobs
        To all of which every block goes.
    device
        ``"gpu"`` or ``"cpu"``.
    block_bytes
        Bytes of a block on a GPU.
    traced
        Whether spans are kept.
    """

    jobs: tuple[Job, ...]
    device: str
    block_bytes: int = BLOCK_BYTES
    traced: bool = False

    @property
    def name(self) -> str:
        """The jobs, for a message."""
        return ", ".join(job.workflow.name for job in self.jobs)

    def label(self, chunks: Sequence[Chunk]) -> str:
        """What to call a task of these chunks in a message."""
        first, last = chunks[0], chunks[-1]
        if first is last:
            return f"{self.name}: chunk {first.index} ({first.where()})"
        return f"{self.name}: chunks {first.index} to {last.index} ({first.where()} … {last.where()})"


@dataclass(frozen=True)
class ChunkResult:
    """What a worker says of a chunk.

    Attributes
    ----------
    partials
        Of the whole chunk, one of each job.
    checked
        Those of the samples of ``chunk.checked``, if any.
    worker, device
        Address of the worker; name of its GPU, or "cpu".
    timeline
        What each stage took; stages overlap.
    """

    partials: tuple[NDArray[Any], ...]
    checked: tuple[NDArray[Any], ...]
    worker: str
    device: str
    timeline: Timeline


@dataclass(frozen=True)
class Reference:
    """What the references say of the samples of ``chunk.checked``, if there are any, and what that took."""

    partials: tuple[NDArray[Any], ...]
    timeline: Timeline


@dataclass(frozen=True)
class Mismatch:
    """Where a partial disagrees: job, chunk, byte range, worker, and the first differing entries with both values."""

    job: str
    chunk: int
    where: str
    worker: str
    device: str
    details: tuple[str, ...]

    def __str__(self) -> str:
        return f"chunk {self.chunk} ({self.where}) on worker {self.worker} ({self.device}): {'; '.join(self.details)}"


def compute_chunks(pass_: Pass, chunks: Sequence[Chunk]) -> tuple[ChunkResult, ...]:
    """Runs on a worker: `compute_chunk` of one after another."""
    return tuple(_each(compute_chunk, pass_, chunks))


def refer_to_chunks(pass_: Pass, chunks: Sequence[Chunk]) -> tuple[Reference, ...]:
    """Runs on a worker: `refer_to_chunk` of one after another."""
    return tuple(_each(refer_to_chunk, pass_, chunks))


def _each(work: Callable[[Pass, Chunk], Done], pass_: Pass, chunks: Sequence[Chunk]) -> Iterator[Done]:
    """What is done with each chunk; where it fails, the error names the chunk."""
    for chunk in chunks:
        try:
            yield work(pass_, chunk)
        except PipelineError:
            raise
        except Exception as error:
            raise failure(pass_.label([chunk]), error) from error


def compute_chunk(pass_: Pass, chunk: Chunk) -> ChunkResult:
    """Stream a chunk through the compute of all jobs, on the worker's GPU or its CPU."""
    timeline = Timeline(pass_.traced)
    if pass_.device == "cpu":
        timeline.kernels |= {"compiled" if job.compiled else "NumPy" for job in pass_.jobs}
    # Where everything is checked, what is checked has to be the very sum that is returned.
    whole = chunk.checked is not None and chunk.checked.samples == chunk.samples
    sums = [_Sums(job, job.workflow.compute, chunk, None if whole else chunk.checked) for job in pass_.jobs]
    try:
        for block in _blocks(pass_, chunk, timeline):
            for sum_ in sums:
                sum_.add(block)
        totals = tuple(_on_host(sum_.total, timeline) for sum_ in sums)
        checked = totals if whole else tuple(_on_host(sum_.checked, timeline) for sum_ in sums if chunk.checked)
    except Exception as error:
        leave_if_broken(error)
        raise
    return ChunkResult(totals, checked, worker_address(), device_name(pass_.device), timeline)


def _blocks(pass_: Pass, chunk: Chunk, timeline: Timeline) -> Iterator[Any]:
    """Blocks of a chunk where they are computed, in native byte order; what is done with them is timed."""
    if pass_.device == "gpu":
        yield from device_blocks(chunk, timeline, pass_.block_bytes)
        return
    for block in read_blocks(chunk, timeline):
        with timeline.measure("kernel", block.nbytes):
            # Partials are defined on native samples; converting costs nothing where they already are.
            yield block.astype(chunk.dtype.newbyteorder("="), copy=False)


def refer_to_chunk(pass_: Pass, chunk: Chunk) -> Reference:
    """Recompute the samples to check of a chunk with the references; they need nothing of what was computed."""
    timeline = Timeline(pass_.traced)
    assert chunk.checked is not None
    part = chunk.part(chunk.checked)
    sums = [_Sums(job, job.workflow.reference, part) for job in pass_.jobs]
    with timeline.measure("verify", part.nbytes):
        for block in read_blocks(part, Timeline()):
            for sum_ in sums:
                sum_.add(block)
    return Reference(tuple(sum_.total for sum_ in sums), timeline)


def get_ready(pass_: Pass, chunk: Chunk) -> None:
    """Runs on a worker before a pass: stream the beginning of a chunk through all jobs, if there is a GPU.

    The first block of the pass would wait for all of it: the CUDA context, buffers, the threads that read with theirs,
    kernels.
    """
    if find_devices().usable:
        samples = min(chunk.samples, READY_BYTES // chunk.dtype.itemsize)
        compute_part = chunk.part(Region(0, samples))
        for block in device_blocks(compute_part, Timeline(), pass_.block_bytes):
            for job in pass_.jobs:
                job.workflow.compute(block, job.options)


def check_chunk(pass_: Pass, chunk: Chunk, result: ChunkResult, reference: Reference) -> Mismatch | None:
    """Compare a chunk with the invariants of each job and, where it has samples to check, with the references."""
    for number, job in enumerate(pass_.jobs):
        partial = result.partials[number]
        details = [broken for check in job.workflow.invariants if (broken := check(partial, chunk.samples))]
        if reference.partials:
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
    found = [f"{label(int(i), job.options)}: expected {expected[i]}, got {got[i]}" for i in places[:3]]
    return [*found, f"{len(places) - 3} more"] if len(places) > 3 else found


def _on_host(partial: Any, timeline: Timeline) -> Any:
    if isinstance(partial, np.ndarray):
        return partial
    with timeline.measure("to host", partial.nbytes):
        return partial.get()


class _Sums:
    """Partials of the blocks of a chunk, combined: of all of them, and of the checked region."""

    def __init__(
        self, job: Job, compute: Callable[[Any, Any], Any], chunk: Chunk, checked: Region | None = None
    ) -> None:
        self._job = job
        self._compute = compute
        self._chunk = chunk
        self._region = checked or Region(0, 0)
        self._start = 0
        self.total: Any = None
        self.checked: Any = None

    def add(self, block: Any) -> None:
        workflow, start = self._job.workflow, self._chunk.start + self._start
        for part, inside in self._cut(block):
            partial = self._compute(part, self._job.options)
            if workflow.place:
                partial = workflow.place(partial, start)
            start += len(part)
            self.total = self._combined(self.total, partial)
            if inside:
                self.checked = self._combined(self.checked, partial)
        self._start += len(block)

    def _cut(self, block: Any) -> Iterator[tuple[Any, bool]]:
        """Parts of a block before, inside and after the checked region."""
        start = min(max(self._region.start - self._start, 0), len(block))
        stop = min(max(self._region.start + self._region.samples - self._start, start), len(block))
        for part, inside in ((block[:start], False), (block[start:stop], True), (block[stop:], False)):
            if len(part):
                yield part, inside

    def _combined(self, sum_: Any, partial: Any) -> Any:
        return partial if sum_ is None else self._job.workflow.combine(sum_, partial)
