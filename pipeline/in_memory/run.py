"""Runs jobs over arrays in memory: which kind they are, what computes them, what verification covered."""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, compress
from typing import Any, TypeVar

from pipeline.engine.aggregate_plan import Job, resolved, surveys_due
from pipeline.engine.aggregate_totals import Totals
from pipeline.engine.selection import Preparation
from pipeline.engine.verdict import Verdict, verified
from pipeline.errors import PipelineError, UsageError, VerificationError, failure
from pipeline.in_memory.aggregate import Covered, Work, cover_on_cpu, empty_partials, merged
from pipeline.in_memory.array_job import run_array_job
from pipeline.in_memory.blocks import cover_blocks
from pipeline.in_memory.device import cover_on_gpu, looked_on_gpu
from pipeline.in_memory.kinds import CUPY, DASK, NAME, NUMPY, common_kind
from pipeline.rows import RowsAsked, check_alone, with_rows
from pipeline.settings import VERIFY
from pipeline.storage.array_source import accepted
from pipeline.storage.column import Beside
from pipeline.storage.protocol import Byteorder, Opening
from workflows.array_job import ArrayJob

Made = TypeVar("Made")

COVERS: Mapping[str, Callable[[Work, Any], Covered]] = {NUMPY: cover_on_cpu, CUPY: cover_on_gpu, DASK: cover_blocks}
WHERE = {NUMPY: "cpu", CUPY: "gpu"}  # what computes an array, by its kind
OF_FILES = {
    "scheduler": "the array is computed where it lies",
    "scheduler_file": "the array is computed where it lies",
    "client": "NumPy and CuPy arrays are computed where they lie, dask arrays on the active client",
    "gpus": "the array is computed where it lies",
    "device_memory_limit": "the array is in memory already",
    "memory_limit": "the array is in memory already",
    "kernel": "variants read files",
    "part": "pass array.real, or what numpy.abs or numpy.angle returns",
    "recursive": "there are no folders of arrays",
    "output": "the result is returned, an array as one of the same kind",
}


@dataclass(frozen=True)
class Asked:
    """What the caller asks of arrays: arguments of `pipeline.run`, the jobs' own aside."""

    dtype: str | None
    byteorder: Byteorder | None
    offset: int | None
    verify: str
    device: str
    part_bytes: int | None
    of_files: Mapping[str, Any]  # arguments that arrays do not take, by name
    rows: RowsAsked
    preparation: Preparation


def run_in_memory(jobs: Sequence[tuple[Any, Any]], arrays: Sequence[Any], asked: Asked) -> list[Any]:
    """Run jobs over arrays of one kind.

    Parameters
    ----------
    jobs
        Aggregations, or one job that writes an array, with their options.
    arrays : results of `pipeline.in_memory.kinds.view_of`
        For aggregations they count as one, one after another.
    asked

    Returns
    -------
    A result for each job.

    Raises
    ------
    UsageError
        If the arrays or the arguments do not fit each other or the job.
    VerificationError
        If a number is wrong.
    PipelineError
        If the run fails otherwise.
    """
    kind = common_kind(arrays)
    _check(kind, asked)
    name = ", ".join(workflow.name for workflow, _ in jobs)
    try:
        if isinstance(jobs[0][0], ArrayJob):
            if asked.rows.any:
                raise UsageError(f"{name}: expected a job that returns results for rows, got one that writes an array")
            opening = Opening(asked.dtype, asked.byteorder, asked.offset, samples=False)
            return [run_array_job(*jobs[0], kind, arrays, asked.verify, _part_bytes(asked, arrays), opening)]
        empty = all(workflow.empty for workflow, _ in jobs)
        opening = Opening(asked.dtype, asked.byteorder, asked.offset, empty=empty)
        arrays = [accepted(array, opening) for array in arrays]
        for array in arrays:
            if array is not arrays[0] and array.dtype.newbyteorder("=") != arrays[0].dtype.newbyteorder("="):
                raise UsageError(f"{NAME}: expected {arrays[0].dtype} as in the first, got {array.dtype}; run them "
                                 "separately")  # fmt: skip
        prepared = asked.preparation.of(arrays[0].dtype, lambda flag: _beside(arrays, flag))
        aggregations = tuple(
            prepared.job(Job(workflow, options)).prepared(arrays[0].dtype) for workflow, options in jobs
        )
        aggregations = _with_rows(aggregations, asked.rows, arrays)
        return run_prepared(aggregations, kind, arrays, asked.verify, _part_bytes(asked, arrays))
    except PipelineError:
        raise
    except Exception as error:
        raise failure(f"{name}: {NAME}", error) from error


def run_prepared(
    jobs: tuple[Job, ...], kind: str, arrays: Sequence[Any], verify: str, part_bytes: int | None = None
) -> list[Any]:
    """The same of aggregations that are prepared for the samples of arrays that were checked."""
    try:
        return _aggregate(kind, arrays, Work(jobs, verify, secrets.randbits(32), part_bytes))
    except PipelineError:
        raise
    except Exception as error:
        name = ", ".join(job.workflow.name for job in jobs)
        raise failure(f"{name}: {NAME}", error) from error


def _with_rows(jobs: tuple[Job, ...], asked: RowsAsked, arrays: Sequence[Any]) -> tuple[Job, ...]:
    """The jobs, on every row of the arrays by itself, if rows are asked for."""
    if not asked.any:
        check_alone(jobs)
        return jobs
    sizes = [None if math.isnan(array.size) else int(array.size) for array in arrays]
    if None in sizes:
        raise UsageError(f"{NAME}: expected known chunk sizes for rows, got a dask array of unknown shape; call its "
                         "compute_chunk_sizes() first")  # fmt: skip
    shape = tuple(arrays[0].shape) if len(arrays) == 1 else (sum(size for size in sizes if size is not None),)
    files = [(f"array {number}", size) for number, size in enumerate(sizes)]
    return tuple(with_rows(jobs, asked.rows(NAME, shape, files), arrays[0].dtype))


def _beside(arrays: Sequence[Any], flag: str) -> Beside:
    """What columns lie beside: the arrays, one after another."""
    samples = sum(array.size for array in arrays)
    if math.isnan(samples):
        raise UsageError(f"{flag}: expected a dask array of known shape; call its compute_chunk_sizes() first")
    return Beside(tuple(arrays[0].shape) if len(arrays) == 1 else (int(samples),), int(samples))


def _check(kind: str, asked: Asked) -> None:
    if asked.verify not in VERIFY:
        raise UsageError(f"--verify: expected one of {', '.join(VERIFY)}, got {asked.verify!r}")
    if asked.device not in ("auto", "gpu", "cpu"):
        raise UsageError(f"--device: expected one of auto, gpu, cpu, got {asked.device!r}")
    if asked.part_bytes is not None and asked.part_bytes < 1:
        raise UsageError(f"chunk_bytes: expected 1 byte or more, got {asked.part_bytes}")
    for option, value in asked.of_files.items():
        if value is not None:
            raise UsageError(f"{option}: expected none with {NAME}, got {value!r}; {OF_FILES[option]}")
    where = WHERE.get(kind, asked.device)
    if asked.device not in ("auto", where):
        convert = "cupy.asarray(array)" if where == "cpu" else "array.get()"
        raise UsageError(f"--device {asked.device}: expected an array there, got a {kind} array, which is computed "
                         f"where it lies; leave device out, or pass {convert}")  # fmt: skip


def _part_bytes(asked: Asked, arrays: Sequence[Any]) -> int | None:
    if asked.part_bytes is not None and asked.part_bytes < arrays[0].dtype.itemsize:
        raise UsageError(f"chunk_bytes: expected at least one sample of {arrays[0].dtype.itemsize} bytes, got "
                         f"{asked.part_bytes}")  # fmt: skip
    return asked.part_bytes


def _aggregate(kind: str, arrays: Sequence[Any], work: Work) -> list[Any]:
    """Survey the arrays as often as jobs ask for it, then compute all jobs in one pass."""
    if kind == CUPY and len(arrays) == 1 and arrays[0].size and any(job.workflow.look for job in work.jobs):
        work = looked_on_gpu(work, arrays[0])
    checked = [sys.maxsize] * len(work.jobs)  # samples, in the pass of each job that checked the fewest
    while any(job.surveyed for job in work.jobs):
        due = surveys_due(work.jobs)
        pass_ = replace(work, jobs=tuple(job.survey() for job in compress(work.jobs, due)))
        proven = next(compress(work.jobs, due)).proven
        surveyed = _one_pass(kind, arrays, replace(pass_, verify="off") if proven else pass_)
        checked = [min(least, surveyed.checked) if was and not proven else least
                   for was, least in zip(due, checked, strict=True)]  # fmt: skip
        work = replace(work, jobs=_used(pass_.jobs, surveyed, partial(resolved, work.jobs, due)))
    covered = _one_pass(kind, arrays, work)
    results = []
    finalized = _used(
        work.jobs, covered, lambda sums: [job.finalized(of) for job, of in zip(work.jobs, sums, strict=True)]
    )
    for result, least in zip(finalized, checked, strict=True):
        verdict = Verdict(work.verify, covered.samples, min(least, covered.checked), covered.parts, work.seed)
        results.append(verified(result, verdict))
    return results


def _used(jobs: Sequence[Job], covered: Covered, use: Callable[[list[Any]], Made]) -> Made:
    """What is made of the sums of a pass; VerificationError if they break an invariant, or change meanwhile."""
    if covered.parts > 1:
        totals = Totals(jobs)
        totals.add([covered.partials])
        return totals.used(list(covered.partials), covered.samples, use)
    # Nothing was added up, and checking the invariants again would take a tenth of a small array's time.
    before = [one.tobytes() for one in covered.partials]
    made = use(list(covered.partials))
    if before != [one.tobytes() for one in covered.partials]:
        raise VerificationError(f"{NAME}: a partial changed while a result was made of it; nothing was returned; run "
                                "again, and test this machine's memory")  # fmt: skip
    return made


def _one_pass(kind: str, arrays: Sequence[Any], work: Work) -> Covered:
    cover = COVERS[kind]
    starts = [0, *accumulate(array.size for array in arrays)] if work.located else [0] * len(arrays)
    pieces = []
    for array, start in zip(arrays, starts, strict=False):
        if array.size and (piece := cover(replace(work, start=start) if start else work, array)).samples:
            pieces.append(piece)
    if pieces:
        return pieces[0] if len(pieces) == 1 else merged(work, pieces)
    nothing = empty_partials(work, arrays[0].dtype)
    if nothing is None:
        raise UsageError(f"{NAME}: expected samples, got an empty array of shape {arrays[0].shape}")
    return nothing
