"""Runs aggregations: chunks are reduced to partials, checked, combined exactly, and rounded once at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, compress
from typing import Any, NamedTuple
from uuid import uuid4

from numpy.typing import NDArray

from pipeline.engine.aggregate_beside import checks_of
from pipeline.engine.aggregate_check import check_arrival, check_total
from pipeline.engine.aggregate_journal import ChunksDone
from pipeline.engine.aggregate_parts import WAITING_BYTES, Part, Parts
from pipeline.engine.aggregate_plan import Job, Pass, resolved, surveys_due
from pipeline.engine.aggregate_task import ChunkResult, compute_chunks, recompute_parts, warm_up
from pipeline.engine.aggregate_totals import Totals
from pipeline.engine.inputs import check_order, check_passes, cluster_bytes, unchanged
from pipeline.engine.journal import Journal
from pipeline.engine.outcome import Outcome
from pipeline.engine.pace import Check
from pipeline.engine.replay import Replays
from pipeline.engine.run_loop import Done, Extra, Run, Task, Work
from pipeline.engine.submit import batches
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.gpu.blocks import AHEAD, BLOCK_BYTES, CHUNKS, block_bytes_within, spare_bytes_within
from pipeline.settings import Settings
from pipeline.storage.chunks import Chunk, Plan, plan
from pipeline.storage.pieces import BlockPiece
from pipeline.storage.sources import Source
from workflows.aggregation import Aggregation

# Bytes per chunk: large, so that Dask's millisecond per task does not matter, but at least four chunks for each thread
# or GPU, so that all of them stay busy to the end. A chunk of encoded blocks starts slowly on a GPU, with a batch.
# It is larger, and the lanes of a single GPU have two each: once one has ended, the other has all of the device.
CHUNK_BYTES = {"cpu": (2**24, 2**31), "gpu": (2**24, 2**32)}
ENCODED_CHUNK_BYTES = 2**33  # at most

# For a source of unknown length, whose chunks may have to stay in memory until they are computed and checked, up to
# four for each thread.
UNKNOWN_CHUNK_BYTES = 2**23

# Chunks are checked in parts: up to so many, of a multiple of these bytes, since each takes calls of its own, and so
# much larger than their partials, which travel to the client.
PARTS = 16
PART_BYTES = {"cpu": 2**23, "gpu": 2**26}
PART_OF_PARTIAL = 64

# If there are many chunks, a task takes several: no more than a dying worker may lose, and only if each thread or GPU
# gets enough tasks for all to end at about the same time.
CHUNKS_OF_TASK = 4
TASKS = 64


def run(workflow: Aggregation[Any], options: Any, source: Source, settings: Settings = Settings()) -> Outcome:
    """Run one job over a source and verify it; as `run_all`."""
    return run_all([Job(workflow, options)], source, settings)[0]


def run_all(
    jobs: Sequence[Job],
    source: Source,
    settings: Settings = Settings(),
    journal: Journal | None = None,
    beside: Sequence[Source] = (),
) -> tuple[Outcome, ...]:
    """Run jobs over a source, which is read once for all of them, and verify them.

    Parameters
    ----------
    jobs
    source
    settings
    journal
        What an earlier run has finished, and gets what this one does.
    beside
        What the jobs read besides.

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
    journal = Journal() if journal is None else journal
    loop = Run(settings, CHUNKS, journal.seed, AHEAD)
    limit = settings.device_memory_limit
    jobs = accepted(jobs, source, settings)
    block_bytes = BLOCK_BYTES if limit is None else block_bytes_within(limit)
    spare_bytes = sys.maxsize if limit is None else spare_bytes_within(limit)
    nbytes = cluster_bytes([source, *beside], settings.placement)
    with (
        unchanged([source, *beside], journal),
        loop.open(nbytes, lambda: all(job.compiled for job in jobs)) as workers,
        journal.kept(),  # commits before anything else that a signal must not wait for
    ):
        # Samples that may not come again have tasks of their own, which check each chunk as it comes.
        verify = "off" if source.nbytes is None else loop.mode
        main = Pass(jobs, workers.device, block_bytes, settings.traced, loop.seed, verify, uuid4().hex,
                    spare_bytes)  # fmt: skip
        checked = [sys.maxsize] * len(jobs)  # samples, in the pass of each job that checked the fewest
        number, samples, pass_ = 0, 0, next_pass(main)
        done = ChunksDone(journal, number, pass_)
        chunks = plan_pass(loop, pass_, source, done)
        if isinstance(chunks, tuple) and chunks:  # a source of unknown length has no chunks yet
            loop.on_gpus(warm_up, pass_, chunks[0])
        with loop.timed():
            while True:
                covered, totals, partials = _one_pass(loop, pass_, source, chunks, journal, done)
                if number and covered.samples != samples:
                    raise PipelineError(f"{source.names[0]}: expected {samples} samples as in the first pass, got "
                                        f"{covered.samples}; run again when nothing writes to it")  # fmt: skip
                due = surveys_due(main.jobs)
                for place in range(len(jobs)):
                    if (due[place] or pass_ is main) and not pass_.proven:
                        checked[place] = min(checked[place], covered.checked)
                if pass_ is main:
                    break
                main = replace(main, jobs=totals.used(partials, covered.samples, partial(resolved, main.jobs, due)))
                samples, number, pass_ = covered.samples, number + 1, next_pass(main)
                done = ChunksDone(journal, number, pass_)
                chunks = plan_pass(loop, pass_, source, done)

    def outcome(job: Job, total: NDArray[Any], checked: int) -> Outcome:
        result = job.finalized(total)
        return loop.outcome((job.workflow, job.options), source, result, covered.samples, checked, covered.chunks,
                            read_once=source.read_once or None,
                            rounding=job.workflow.rounding(source.dtype, covered.samples, job.options))  # fmt: skip

    return totals.used(partials, covered.samples, lambda sums: tuple(map(outcome, main.jobs, sums, checked)))


def accepted(jobs: Sequence[Job], source: Source, settings: Settings) -> tuple[Job, ...]:
    """The jobs for the samples of a source; UsageError if the request is impossible."""
    if settings.chunk_bytes is not None and settings.chunk_bytes < source.dtype.itemsize:
        raise UsageError(f"--chunk-size: expected at least one sample of {source.dtype.itemsize} bytes, got "
                         f"{settings.chunk_bytes}")  # fmt: skip
    jobs = tuple(job.prepared(source.dtype) for job in jobs)
    for job in jobs:
        if job.workflow.c_order:
            check_order(job.workflow.name, source)
        if job.workflow.dtypes and source.dtype.name not in job.workflow.dtypes:
            raise UsageError(f"{job.workflow.name}: --kernel {job.workflow.kernel}: expected "
                             f"samples of {' or '.join(job.workflow.dtypes)}, got {source.dtype.name}; leave --kernel "
                             "out")  # fmt: skip
    if settings.replay and source.nbytes is None:
        raise UsageError(f"--replay: expected inputs of known length, got {source.names[0]}")
    check_passes(source, jobs)
    return jobs


def next_pass(main: Pass) -> Pass:
    """The next pass: surveys for the jobs that need one, or, once all options are complete, the jobs themselves."""
    due = tuple(compress(main.jobs, surveys_due(main.jobs)))
    if not due:
        return main
    pass_ = replace(main, jobs=tuple(job.survey() for job in due), again=True)
    return replace(pass_, verify="off", proven=True) if due[0].proven else pass_


def _mode(loop: Run, pass_: Pass) -> str:
    """How a pass is verified."""
    return "off" if pass_.proven else loop.mode


def plan_pass(loop: Run, pass_: Pass, source: Source, done: ChunksDone) -> Plan:
    """Chunks, and parts of them that are large in comparison with their partials; the same as in an earlier run."""
    chunk_bytes, part_bytes = loop.settings.chunk_bytes or _chunk_bytes(source, loop), sys.maxsize
    mode = _mode(loop, pass_)
    if mode in ("auto", "full"):
        unit = PART_BYTES[pass_.device]
        number = -(-max(chunk_bytes // PARTS, PART_OF_PARTIAL * partial_bytes(pass_, source)) // unit)
        part_bytes = max(number, 1) * unit
    chunk_bytes, part_bytes = done.cut(chunk_bytes, part_bytes)
    return plan(source, chunk_bytes, mode, loop.seed, part_bytes)


def partial_bytes(pass_: Pass, source: Source) -> int:
    """Bytes of the partials of all jobs; 0 without samples.

    A job computes the partial of one sample to learn its size. If every row is an empty file, that sample has no row.
    """
    if source.nbytes == 0:
        return 0
    return sum(job.partial_bytes(source.dtype.newbyteorder("=")) for job in pass_.jobs)


def _chunk_bytes(source: Source, loop: Run) -> int:
    if source.nbytes is None:
        return UNKNOWN_CHUNK_BYTES
    low, high = CHUNK_BYTES[loop.workers.device]
    number = 4 * loop.computing
    if loop.workers.device == "gpu" and isinstance(next(iter(source.pieces()), None), BlockPiece):
        high = ENCODED_CHUNK_BYTES
        if loop.workers.computing == 1:
            number = 4
    return min(max(source.nbytes // number, low), high)


class _Covered(NamedTuple):
    """Numbers of samples of a pass, of samples that the reference recomputed, and of chunks."""

    samples: int
    checked: int
    chunks: int


def _one_pass(
    loop: Run, pass_: Pass, source: Source, planned: Plan, journal: Journal, done: ChunksDone
) -> tuple[_Covered, Totals, list[NDArray[Any]]]:
    """Compute, check and combine every chunk; return what was covered, and the partial of each job after their sums."""
    chunks = done.left(planned)
    samples, checked, totals = done.samples, done.checked, done.totals.plus([])
    number = len(planned) - len(chunks) if isinstance(planned, tuple) and isinstance(chunks, tuple) else 0
    before, replays, mode = samples, Replays(loop), _mode(loop, pass_)
    if pass_.device == "cpu" and (mode == "off" or not checks_of(pass_, source.dtype, 0)):
        pass_ = replace(pass_, verify="off", again=mode != "off" or pass_.again)  # but by tasks of their own

    def agreed(part: Part) -> None:
        done.check(part.chunk.index, part.chunk.samples, part.always)

    parts = Parts(pass_, loop.checking(shared=True), source.nbytes is None, agreed)

    def compute(items: Sequence[Chunk]) -> Task:
        return compute_chunks, pass_, items

    def beside(chunk: Chunk) -> bool:
        """Whether the worker of a chunk may check it beside its read, and say so; other chunks have tasks for that."""
        return pass_.verify != "off" and (chunk.plain if pass_.device == "gpu" else chunk.runs)

    # Automatic checks that share cores with computing are done after it, if all that waits for them has room. In a run
    # with a journal those that have to be done are not left to the end: what is not checked is not kept.
    later = mode == "auto" and isinstance(chunks, tuple) and (
        len(chunks) * partial_bytes(pass_, source) <= WAITING_BYTES
    )  # fmt: skip

    def check(items: Sequence[Chunk], computed: Any) -> list[Task]:  # does not wait for the computed partials
        if later and not journal.wanted(source.nbytes):
            return []
        always = [chunk.part(region) for chunk in items if not beside(chunk) for region in chunk.always]
        return [(recompute_parts, pass_, always, True)] if always else []

    def finish(items: Sequence[Chunk], computed: Sequence[ChunkResult], checks: Any) -> Iterator[Done]:
        nonlocal samples, number
        recomputed = chain.from_iterable(checks)
        for chunk, result in zip(items, computed, strict=True):
            check_arrival(pass_, chunk, result)
            of_chunk = totals.add(result.partials)
            if mismatch := check_total(pass_, chunk, of_chunk, result.worker, result.device):
                raise mismatch.error
            samples, number = samples + chunk.samples, number + 1
            done.hold(chunk, of_chunk)  # until its parts that are always checked have been
            references = [] if result.reference is None else [parts.compare_beside(chunk, result)]
            for place, (region, of_part) in enumerate(zip(chunk.parts, result.partials, strict=True)):
                always = region in chunk.always
                when = result.checks[place] if result.checks else None
                if when is Check.BESIDE or (when is Check.NOT and not always):
                    continue
                if always or mode == "auto":
                    part = Part(chunk.part(region), of_part, result.worker, result.device, always)
                    if always and checks and not beside(chunk):
                        references.append(next(recomputed))
                        parts.compare(part, references[-1])
                    else:
                        parts.wait(part, due=when is Check.LATER)
            journal.log(pass_.name, str(chunk.index), result)
            replays.chunk(pass_, chunk, result)
            yield chunk.index, chunk.nbytes, result, references

    tasks: Iterable[Sequence[Chunk]] = ((chunk,) for chunk in chunks)
    if isinstance(chunks, tuple):
        tasks = batches([chunks], CHUNKS_OF_TASK, loop.computing, TASKS)
    tasks = map(loop.passed, tasks)
    left = sum(chunk.nbytes for chunk in chunks) if isinstance(chunks, tuple) else source.nbytes

    def extra(in_time: bool) -> Extra | None:
        return replays.extra() or parts.extra(in_time)

    loop.complete(Work(tasks, left, pass_.label, compute, check, finish, extra=extra, shared=True))
    if isinstance(planned, tuple) and samples != (expected := sum(chunk.samples for chunk in planned)):
        raise VerificationError(f"{pass_.name}: expected {expected} samples, got {samples}; nothing was written; "
                                "report this")  # fmt: skip
    loop.stages.nbytes += (samples - before) * source.dtype.itemsize
    return _Covered(samples, checked + parts.checked, number), totals, totals.finish(source, samples)
