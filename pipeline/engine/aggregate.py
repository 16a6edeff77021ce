"""The run loop: source, plan, cluster, stream, exact combine, finalize, verdict."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from pipeline.cluster.placement import Workers, open_workers
from pipeline.engine.aggregate_check import check_chunk
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_task import Reference, compute_chunks, recompute_chunks, warm_up
from pipeline.engine.outcome import Outcome, Stages, Verdict
from pipeline.engine.submit import batches, results
from pipeline.errors import UsageError, VerificationError
from pipeline.gpu.blocks import BLOCK_BYTES, CHUNKS, block_bytes_within
from pipeline.settings import Settings
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.sources import Source
from pipeline.timeline import Timeline
from workflows.aggregation import Aggregation

# Chunk sizes in bytes: large, so that Dask's millisecond per task does not matter, and at least four for each thread
# or GPU, so that all of them are busy to the end.
CHUNK_BYTES = {"cpu": (2**24, 2**31), "gpu": (2**24, 2**32)}

# Of many chunks a task takes some, one after another: no more than a worker that dies may lose, and only where each
# thread or GPU gets so many tasks that all end at about the same time.
CHUNKS_OF_TASK = 4
TASKS = 64


def run(workflow: Aggregation[Any], options: Any, source: Source, settings: Settings = Settings()) -> Outcome:
    """Run one job over a source and verify it; as `run_all`."""
    return run_all([Job(workflow, options)], source, settings)[0]


def run_all(jobs: Sequence[Job], source: Source, settings: Settings = Settings()) -> tuple[Outcome, ...]:
    """Run jobs over a source, which is read once for all of them, and verify them.

    Returns
    -------
    The outcome of each job, in order; only their times are those of all.

    Raises
    ------
    VerificationError
        If a partial of any job breaks an invariant or differs from its reference.
    PipelineError
        If the run fails otherwise; UsageError if it was asked for the impossible.
    """
    mode = settings.mode(source.nbytes)
    chunk_bytes, limit = settings.chunk_bytes, settings.device_memory_limit
    if chunk_bytes is not None and chunk_bytes < source.dtype.itemsize:
        raise UsageError(
            f"--chunk-size: expected at least one sample of {source.dtype.itemsize} bytes, got {chunk_bytes}"
        )
    block_bytes = BLOCK_BYTES if limit is None else block_bytes_within(limit)
    began = perf_counter()
    with open_workers(settings.placement, source.nbytes, lambda: all(job.compiled for job in jobs)) as workers:
        settings.on_start(workers)
        chunks = plan(source, chunk_bytes or _chunk_bytes(source, workers), mode, seed := secrets.randbits(32))
        main = Pass(tuple(jobs), workers.device, block_bytes, settings.traced)
        surveys = replace(main, jobs=tuple(job.survey() for job in jobs if job.surveyed))
        if chunks:
            _warm_up(surveys if surveys.jobs else main, chunks[0], workers)
        started = perf_counter()
        stages = Stages(lanes=_lanes(workers), start_up=started - began)
        if surveys.jobs:
            found = iter(_one_pass(surveys, source, chunks, workers, stages, settings))
            try:
                main = replace(main, jobs=tuple(job.resolved(next(found)) if job.surveyed else job for job in jobs))
            except ValueError as error:
                raise UsageError(str(error)) from None
        partials = _one_pass(main, source, chunks, workers, stages, settings)
        stages.wall = perf_counter() - started
    checked = sum(chunk.checked.samples for chunk in chunks if chunk.checked)
    verdict = Verdict(mode, source.samples, checked, len(chunks), seed)
    return tuple(
        Outcome(job.workflow, job.options, source, job.workflow.finalize(partial, job.options), verdict, stages,
                workers.description)
        for job, partial in zip(main.jobs, partials, strict=True)
    )  # fmt: skip


def _warm_up(first: Pass, chunk: Chunk, workers: Workers) -> None:
    """What the first block of each GPU would wait for; where that fails the first chunk fails again, and says why."""
    if workers.device == "gpu":
        addresses = workers.addresses and list(workers.addresses)
        workers.client.run(warm_up, first, chunk, workers=addresses, on_error="ignore")


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
    pass_: Pass, source: Source, chunks: tuple[Chunk, ...], workers: Workers, stages: Stages, settings: Settings
) -> list[NDArray[Any]]:
    """Compute, check and combine every chunk; the partial of each job."""
    total = sum(chunk.nbytes for chunk in chunks)
    done = 0
    partials: list[NDArray[Any]] = []
    for chunk, result, *references in _results(pass_, chunks, workers):
        reference = references[0] if references else Reference((), Timeline())
        if mismatch := check_chunk(pass_, chunk, result, reference):
            raise VerificationError(f"{mismatch.job}: a number is wrong in {mismatch}; nothing was written")
        if partials:
            both = zip(pass_.jobs, partials, result.partials, strict=True)
            partials = [job.workflow.combine(sum_, partial) for job, sum_, partial in both]
        else:
            partials = list(result.partials)
        stages.add(chunk.index, result.worker, result.device, result.timeline, reference.timeline)
        done += chunk.nbytes
        settings.progress(done, total)
    stages.nbytes += total
    if not partials:
        partials = [job.empty(source.dtype.newbyteorder("=")) for job in pass_.jobs]
    samples = sum(chunk.samples for chunk in chunks)
    for job, partial in zip(pass_.jobs, partials, strict=True):
        for check_total in job.workflow.invariants:
            if broken := check_total(partial, samples):
                raise VerificationError(f"{job.workflow.name}: the sum of all chunks is wrong: {broken}; "
                                        "nothing was written")  # fmt: skip
    return partials


def _results(pass_: Pass, chunks: tuple[Chunk, ...], workers: Workers) -> Iterator[tuple[Any, ...]]:
    """Every chunk with what was computed and, where some of it is checked, its reference."""
    client = workers.client
    here = {"pure": False, "workers": workers.addresses and list(workers.addresses)}
    resources = {name: amount / CHUNKS for name, amount in workers.resources.items()}

    def submit(batch: Sequence[Chunk]) -> Iterator[Any]:
        # Computing goes first; the reference, which does not wait for it, fills what threads are left. It asks for no
        # resource: a worker starts none of the tasks that do while the first of them waits for its own. Neither depends
        # on a task of its own for the jobs: Dask would start them all where that one ran, and move them one by one.
        yield client.submit(compute_chunks, pass_, batch, resources=resources, priority=1, **here)
        if batch[0].checked is not None:  # as of all chunks of a plan
            yield client.submit(recompute_chunks, pass_, batch, **here)

    tasks = batches(chunks, CHUNKS_OF_TASK, _computing(workers), TASKS)
    for batch, *found in results(tasks, submit, workers, pass_.label):
        yield from zip(batch, *found, strict=True)
