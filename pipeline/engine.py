"""The run loop: source, plan, cluster, stream, exact combine, finalize, verdict."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from pipeline.arrays import ArrayFile
from pipeline.chunks import Chunk, plan
from pipeline.cluster import Placement, Workers, open_workers
from pipeline.errors import UsageError, VerificationError
from pipeline.read_device import BLOCK_BYTES, CHUNKS, block_bytes_within, use_blocks
from pipeline.sources import Source
from pipeline.task import Job, Reference, check_chunk, compute_chunk, refer_to_chunk
from pipeline.timeline import Timeline, Traced
from pipeline.window import results
from workflows.array_workflow import ArrayWorkflow
from workflows.workflow import Workflow

VERIFY = ("full", "sample", "off")

# `full` costs about as much as NumPy's histogram of the file: by default where that stays within a second or two.
FULL_UP_TO_BYTES = 2**28

# Chunk sizes in bytes: large, so that Dask's millisecond per task does not matter, and at least four for each thread
# or GPU, so that all of them are busy to the end.
CHUNK_BYTES = {"cpu": (2**24, 2**30), "gpu": (2**28, 2**32)}


@dataclass(frozen=True)
class Verdict:
    """What verification found, and how much it covered; a run with a mismatch never gets this far.

    Attributes
    ----------
    mode
        ``"full"``, ``"sample"`` or ``"off"``.
    samples, checked
        Samples in all, and those that the reference recomputed.
    chunks
        Chunks, each of which satisfied every invariant.
    seed
        Of the random choice of ``"sample"``.
    escape
        Of a job that writes an array: the probability, at most, that a wrong element among the checked ones was not
        noticed.
    """

    mode: str
    samples: int
    checked: int
    chunks: int
    seed: int
    escape: float | None = None


@dataclass
class Stages:
    """Where the time of a run went; seconds and bytes of a stage are added up over workers, and stages overlap."""

    seconds: dict[str, float] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    lanes: dict[str, int] = field(default_factory=dict)
    traces: list[Traced] = field(default_factory=list)
    nbytes: int = 0
    wall: float = 0.0
    start_up: float = 0.0

    def add(self, index: int, worker: str, device: str, *timelines: Timeline) -> None:
        """Count in one chunk."""
        self.devices.add(device)
        for timeline in timelines:
            for stage, seconds in timeline.seconds.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
                self.moved[stage] = self.moved.get(stage, 0) + timeline.nbytes[stage]
            if timeline.spans:
                self.traces.append(Traced(index, worker, device, timeline.spans))

    def busy(self) -> dict[str, float]:
        """Seconds that each stage alone would have taken on everything that runs it."""
        return {stage: seconds / self.lanes.get(stage, 1) for stage, seconds in self.seconds.items()}


@dataclass(frozen=True)
class Outcome:
    """A finished, verified run."""

    workflow: Workflow[Any] | ArrayWorkflow[Any]
    options: Any
    source: Source | tuple[ArrayFile, ...]
    result: Any
    verdict: Verdict
    stages: Stages
    where: str


Progress = Callable[[int, int], None]  # (bytes done, bytes in all)
Announce = Callable[[Workers], None]


def run(
    workflow: Workflow[Any],
    options: Any,
    source: Source,
    *,
    placement: Placement = Placement(),
    verify: str | None = None,
    chunk_bytes: int | None = None,
    device_memory_limit: int | None = None,
    traced: bool = False,
    progress: Progress = lambda done, total: None,
    announce: Announce = lambda workers: None,
) -> Outcome:
    """Run one job over a source and verify it.

    Parameters
    ----------
    workflow, options
        The job.
    source
    placement
        Where to run.
    verify
        ``"full"``, ``"sample"`` or ``"off"``; by default full up to 256 MiB, sample above.
    chunk_bytes
        Bytes per task; by default from the size of the source and the number of workers.
    device_memory_limit
        Bytes that the tasks of a GPU may hold in its memory.
    traced
        Keep every span of every block in ``stages.traces``.
    progress, announce
        Called as chunks finish, and once the workers are there.

    Raises
    ------
    VerificationError
        If a partial breaks an invariant or differs from its reference.
    PipelineError
        If the run fails otherwise; UsageError if it was asked for the impossible.
    """
    mode = verify or ("full" if source.nbytes <= FULL_UP_TO_BYTES else "sample")
    if mode not in VERIFY:
        raise UsageError(f"--verify: expected one of {', '.join(VERIFY)}, got {verify!r}")
    if chunk_bytes is not None and chunk_bytes < source.dtype.itemsize:
        raise UsageError(
            f"--chunk-size: expected at least one sample of {source.dtype.itemsize} bytes, got {chunk_bytes}"
        )
    block_bytes = BLOCK_BYTES if device_memory_limit is None else block_bytes_within(device_memory_limit)
    began = perf_counter()
    with open_workers(placement, source.nbytes) as workers, _blocks(workers, block_bytes):
        announce(workers)
        started = perf_counter()
        chunks = plan(source, chunk_bytes or _chunk_bytes(source, workers), mode, seed := secrets.randbits(32))
        stages = Stages(lanes=_lanes(workers), start_up=started - began)
        if workflow.survey and workflow.survey.needed(options):
            job = Job(workflow.survey.workflow, options, traced)
            found = job.workflow.finalize(_one_pass(job, chunks, workers, stages, progress), options)
            try:
                options = workflow.survey.resolve(options, found)
            except ValueError as error:
                raise UsageError(str(error)) from None
        partial = _one_pass(Job(workflow, options, traced), chunks, workers, stages, progress)
        stages.wall = perf_counter() - started
    checked = sum(chunk.checked.samples for chunk in chunks if chunk.checked)
    verdict = Verdict(mode, source.samples, checked, len(chunks), seed)
    return Outcome(workflow, options, source, workflow.finalize(partial, options), verdict, stages, workers.description)


@contextmanager
def _blocks(workers: Workers, nbytes: int) -> Iterator[None]:
    """GPUs read in blocks of so many bytes; the next job of their processes is free to take others."""
    if workers.device != "gpu" or nbytes == BLOCK_BYTES:
        yield
        return
    workers.client.run(use_blocks, nbytes)
    try:
        yield
    finally:
        workers.client.run(use_blocks)


def _chunk_bytes(source: Source, workers: Workers) -> int:
    low, high = CHUNK_BYTES[workers.device]
    return min(max(source.nbytes // (4 * _computing(workers)), low), high)


def _computing(workers: Workers) -> int:
    """Chunks that are under way at a time."""
    return workers.computing * (CHUNKS if workers.device == "gpu" else 1)


def _lanes(workers: Workers) -> dict[str, int]:
    """How many chunks are in each stage at a time."""
    stages = ("read", "read+copy", "kernel", "to host")
    return dict.fromkeys(stages, _computing(workers)) | {"verify": workers.threads}


def _one_pass(
    job: Job, chunks: tuple[Chunk, ...], workers: Workers, stages: Stages, progress: Progress
) -> NDArray[Any]:
    """Compute, check and combine every chunk."""
    total = sum(chunk.nbytes for chunk in chunks)
    done = 0
    partial: NDArray[Any] | None = None
    for chunk, result, *references in _results(job, chunks, workers):
        reference = references[0] if references else Reference(None, Timeline())
        if mismatch := check_chunk(job, chunk, result, reference):
            raise VerificationError(f"{job.workflow.name}: a number is wrong in {mismatch}; nothing was written")
        partial = result.partial if partial is None else job.workflow.combine(partial, result.partial)
        stages.add(chunk.index, result.worker, result.device, result.timeline, reference.timeline)
        done += chunk.nbytes
        progress(done, total)
    stages.nbytes += total
    if partial is None:
        raise UsageError("expected at least one chunk of samples, got none")
    for check_total in job.workflow.invariants:
        if broken := check_total(partial, sum(chunk.samples for chunk in chunks)):
            raise VerificationError(f"{job.workflow.name}: the sum of all chunks is wrong: {broken}; "
                                    "nothing was written")  # fmt: skip
    return partial


def _results(job: Job, chunks: tuple[Chunk, ...], workers: Workers) -> Iterator[tuple[Any, ...]]:
    """Every chunk with what was computed and, where some of it is checked, its reference."""
    client = workers.client
    here = {"pure": False, "workers": workers.addresses and list(workers.addresses)}
    resources = {name: amount / CHUNKS for name, amount in workers.resources.items()}

    def submit(chunk: Chunk) -> tuple[Any, ...]:
        # Computing goes first; the reference, which does not wait for it, fills what threads are left. Neither depends
        # on a task of its own for the job: Dask would start them all where that one ran, and move them one by one.
        computed = client.submit(compute_chunk, job, chunk, workers.device, resources=resources, priority=1, **here)
        if chunk.checked is None:
            return (computed,)
        return computed, client.submit(refer_to_chunk, job, chunk, resources=workers.spare, **here)

    def name_of(chunk: Chunk) -> str:
        return f"{job.workflow.name}: chunk {chunk.index} ({chunk.where()})"

    yield from results(chunks, submit, workers, name_of)
