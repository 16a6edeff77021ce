"""Runs aggregations: chunks are reduced to partials, checked, combined exactly, and rounded once at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from pipeline.engine.aggregate_check import check_chunk
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_task import ChunkResult, compute_chunks, recompute_chunks, warm_up
from pipeline.engine.inputs import check_passes, cluster_bytes
from pipeline.engine.outcome import Outcome
from pipeline.engine.run_loop import Done, Run, Task, Work
from pipeline.engine.submit import batches
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.gpu.blocks import BLOCK_BYTES, CHUNKS, block_bytes_within
from pipeline.settings import Settings
from pipeline.storage.chunks import Chunk, Plan, plan
from pipeline.storage.sources import Source
from workflows.aggregation import Aggregation

# Bytes per chunk: large, so that Dask's millisecond per task does not matter, but at least four chunks for each thread
# or GPU, so that all of them stay busy to the end.
CHUNK_BYTES = {"cpu": (2**24, 2**31), "gpu": (2**24, 2**32)}

# For a source of unknown length, whose chunks may have to stay in memory until they are computed and checked, up to
# four for each thread.
UNKNOWN_CHUNK_BYTES = 2**23

# If there are many chunks, a task takes several: no more than a dying worker may lose, and only if each thread or GPU
# gets enough tasks for all to end at about the same time.
CHUNKS_OF_TASK = 4
TASKS = 64


def run(workflow: Aggregation[Any], options: Any, source: Source, settings: Settings = Settings()) -> Outcome:
    """Run one job over a source and verify it; as `run_all`."""
    return run_all([Job(workflow, options)], source, settings)[0]


def run_all(jobs: Sequence[Job], source: Source, settings: Settings = Settings()) -> tuple[Outcome, ...]:
    """Run jobs over a source, which is read once for all of them, and verify them.

    Returns
    -------
    The outcome of each job, in order; their times are those of all jobs together.

    Raises
    ------
    VerificationError
        If a partial of any job breaks an invariant or differs from its reference.
    PipelineError
        If the run fails otherwise; UsageError if the request is impossible.
    """
    loop = Run(settings, settings.mode(source.nbytes), CHUNKS)
    chunk_bytes, limit = settings.chunk_bytes, settings.device_memory_limit
    if chunk_bytes is not None and chunk_bytes < source.dtype.itemsize:
        raise UsageError(
            f"--chunk-size: expected at least one sample of {source.dtype.itemsize} bytes, got {chunk_bytes}"
        )
    block_bytes = BLOCK_BYTES if limit is None else block_bytes_within(limit)
    check_passes(source, [job.workflow.name for job in jobs if job.surveyed])
    nbytes = cluster_bytes([source], settings.placement)
    with loop.open(nbytes, lambda: all(job.compiled for job in jobs)) as workers:
        chunks = plan(source, chunk_bytes or _chunk_bytes(source, loop), loop.mode, loop.seed)
        main = Pass(tuple(jobs), workers.device, block_bytes, settings.traced)
        surveys = replace(main, jobs=tuple(job.survey() for job in jobs if job.surveyed))
        if isinstance(chunks, tuple) and chunks:  # a source of unknown length has no chunks yet
            loop.on_gpus(warm_up, surveys if surveys.jobs else main, chunks[0])
        with loop.timed():
            if surveys.jobs:
                surveyed, survey_partials = _one_pass(loop, surveys, source, chunks)
                totals = iter(survey_partials)
                try:
                    resolved = tuple(job.resolved(next(totals)) if job.surveyed else job for job in jobs)
                except ValueError as error:
                    raise UsageError(str(error)) from None
                main = replace(main, jobs=resolved)
            covered, partials = _one_pass(loop, main, source, chunks)
            if surveys.jobs and covered != surveyed:
                raise PipelineError(f"{source.names[0]}: expected {surveyed.samples} samples as in the first pass, got "
                                    f"{covered.samples}; run again when nothing writes to it")  # fmt: skip
    results = [job.workflow.finalize(partial, job.options) for job, partial in zip(main.jobs, partials, strict=True)]
    return tuple(
        loop.outcome((job.workflow, job.options), source, result, *covered, read_once=source.read_once or None)
        for job, result in zip(main.jobs, results, strict=True)
    )


def _chunk_bytes(source: Source, loop: Run) -> int:
    if source.nbytes is None:
        return UNKNOWN_CHUNK_BYTES
    low, high = CHUNK_BYTES[loop.workers.device]
    return min(max(source.nbytes // (4 * loop.computing), low), high)


class _Covered(NamedTuple):
    """Numbers of samples of a pass, of samples that the reference recomputed, and of chunks."""

    samples: int = 0
    checked: int = 0
    chunks: int = 0


def _one_pass(loop: Run, pass_: Pass, source: Source, chunks: Plan) -> tuple[_Covered, list[NDArray[Any]]]:
    """Compute, check and combine every chunk; return what was covered and the partial of each job."""
    covered = _Covered()
    partials: list[NDArray[Any]] = []

    def compute(items: Sequence[Chunk]) -> Task:
        return compute_chunks, pass_, items

    def check(items: Sequence[Chunk], computed: Any) -> list[Task]:  # does not wait for the computed partials
        return [(recompute_chunks, pass_, items)] if items[0].checked is not None else []  # as for all

    def finish(items: Sequence[Chunk], computed: Sequence[ChunkResult], checks: Any) -> Iterator[Done]:
        nonlocal covered
        for chunk, result, *references in zip(items, computed, *checks, strict=True):
            if mismatch := check_chunk(pass_, chunk, result, *references):
                raise VerificationError(f"{mismatch.job}: a number is wrong in {mismatch}; nothing was written")
            sums = zip(pass_.jobs, partials or result.partials, result.partials, strict=True)
            partials[:] = [job.workflow.combine(sum_, new) if partials else new for job, sum_, new in sums]
            checked = chunk.checked.samples if chunk.checked else 0
            covered = _Covered(covered.samples + chunk.samples, covered.checked + checked, covered.chunks + 1)
            yield chunk.index, chunk.nbytes, result, references

    tasks: Iterable[Sequence[Chunk]] = ((chunk,) for chunk in chunks)
    if isinstance(chunks, tuple):
        tasks = batches(chunks, CHUNKS_OF_TASK, loop.computing, TASKS)
    loop.complete(Work(tasks, source.nbytes, pass_.label, compute, check, finish))
    loop.stages.nbytes += covered.samples * source.dtype.itemsize
    partials = partials or [job.empty(source) for job in pass_.jobs]
    for job, partial in zip(pass_.jobs, partials, strict=True):
        for check_total in job.workflow.invariants:
            if broken := check_total(partial, covered.samples):
                raise VerificationError(f"{job.workflow.name}: the sum of all chunks is wrong: {broken}; "
                                        "nothing was written")  # fmt: skip
    return covered, partials
