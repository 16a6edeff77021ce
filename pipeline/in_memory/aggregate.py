"""Aggregations over an array in memory: its parts are computed where it lies, checked on the CPU and combined."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.engine.aggregate_plan import Job
from pipeline.engine.aggregate_totals import Totals
from pipeline.engine.pickle_once import PickledOnce
from pipeline.errors import VerificationError
from pipeline.in_memory.kinds import NAME
from pipeline.in_memory.samples import parts_on_cpu, random_run
from pipeline.storage.chunks import LEAST_BYTES, SAMPLED_SHARE
from pipeline.threads import THREADS, cores

# Bytes of a part on a CPU, and how many times as large as its partials it is at least: these are all held.
PART_BYTES, PART_OF_PARTIAL = 2**23, 64
# Samples of which a compiled check and the reference both make a partial; of jobs that depend on where samples are, as
# many as a check takes row by row if rows are long.
COMPARED, LOCATED = 2**11, 2**13
MOST_COMPARED = 64  # options whose checks are known to agree with their references

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Work(PickledOnce):
    """Jobs, and how they are verified; the same for all blocks of a dask array.

    Attributes
    ----------
    jobs
    verify
        ``"auto"``, ``"full"``, ``"sample"`` or ``"off"``.
    seed
        Of the random choice of what is checked.
    part_bytes
        Bytes per part; None to choose.
    threads
        That compute and check on the CPU; None for one per core.
    start
        Index of the first sample of the array, for jobs that are located.
    """

    jobs: tuple[Job, ...]
    verify: str
    seed: int
    part_bytes: int | None = None
    threads: int | None = None
    start: int = 0

    @property
    def located(self) -> bool:
        """Whether a partial depends on where in the source its samples are."""
        return any(job.workflow.located for job in self.jobs)

    @property
    def ordered(self) -> bool:
        """Whether a partial depends on the order of the samples."""
        return any(job.workflow.located or job.workflow.place for job in self.jobs)


@dataclass(frozen=True)
class Covered:
    """What was computed: the partial of each job, numbers of samples, of checked ones and of parts."""

    partials: tuple[NDArray[Any], ...]
    samples: int
    checked: int
    parts: int

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        kinds = [(one.dtype.str, one.shape) for one in self.partials]
        digest = hashlib.sha256(repr((self.samples, self.checked, self.parts, kinds)).encode())
        for partial in self.partials:
            digest.update(partial.tobytes())
        return digest.digest()


def merged(work: Work, pieces: Iterable[Covered]) -> Covered:
    """What successive samples give together, at least one piece; positions count from the first of them.

    Raises
    ------
    VerificationError
        If the sum of the partials breaks an invariant, or is not the same in two orders of adding them up.
    """
    totals, samples, checked, parts = Totals(work.jobs), 0, 0, 0
    for piece in pieces:
        totals.add([[job.placed(partial, samples) if samples else partial
                     for job, partial in zip(work.jobs, piece.partials, strict=True)]])  # fmt: skip
        samples, checked, parts = samples + piece.samples, checked + piece.checked, parts + piece.parts
    return Covered(tuple(totals.agreed(samples)), samples, checked, parts)


def cover_on_cpu(work: Work, array: NDArray[Any]) -> Covered:
    """Compute and check a NumPy array of at least one sample on the CPU, part by part, on all threads."""
    itemsize = array.dtype.itemsize
    step = max(1, (work.part_bytes or max(PART_BYTES, PART_OF_PARTIAL * _partial_bytes(work, array))) // itemsize)
    starts, part = parts_on_cpu(array, work.ordered, step)
    balance = _Balance()
    if len(starts) == 1:
        return _part(work, part(0), 0, balance)
    return merged(work, on_threads(lambda start: _part(work, part(start), start, balance), starts, work.threads))


def _partial_bytes(work: Work, array: NDArray[Any]) -> int:
    if array.nbytes <= PART_BYTES:
        return 0  # one part
    return sum(job.partial_bytes(array.dtype.newbyteorder("=")) for job in work.jobs)


class _Balance:
    """Seconds of computing and of checking so far: an automatic check takes no longer than computing.

    Threads add to it without a lock; a lost number does no harm.
    """

    computing = checking = 0.0

    @property
    def even(self) -> bool:
        return self.checking <= self.computing


def _part(work: Work, samples: NDArray[Any], start: int, balance: _Balance) -> Covered:
    """Compute and check a part: all of it if there is time, else a random run, whose partial is added to the others."""
    verify = work.verify
    run = slice(0, 0 if verify == "off" else len(samples))
    if verify == "sample" or (verify == "auto" and not balance.even):
        length = max(-(-len(samples) // SAMPLED_SHARE[verify]), LEAST_BYTES[verify] // samples.dtype.itemsize)
        run = random_run(len(samples), length, work.seed, start)
    pieces = [
        _piece(work, samples[first:stop], start + first, (first, stop) == (run.start, run.stop), balance)
        for first, stop in ((0, run.start), (run.start, run.stop), (run.stop, len(samples))) if first < stop
    ]  # fmt: skip
    return pieces[0] if len(pieces) == 1 else replace(merged(work, pieces), parts=1)


def _piece(work: Work, samples: NDArray[Any], start: int, checked: bool, balance: _Balance) -> Covered:
    """Compute some samples, and check them if asked to."""
    began = perf_counter()
    partials = compute(work, samples, start)
    computed = perf_counter()
    check = Check(slice(0, len(samples)), partials, recompute(work, samples, start)) if checked else None
    covered = finish(work, partials, len(samples), start, "cpu", check)
    balance.computing += computed - began
    balance.checking += perf_counter() - computed
    return covered


def compute(work: Work, samples: Any, start: int) -> list[Any]:
    """The partial of each job, where the samples lie, which begin at index `start` of the array."""
    return [job.compute(samples, work.start + start) for job in work.jobs]


def recompute(work: Work, samples: NDArray[Any], start: int) -> list[NDArray[Any]]:
    """The partial of each job by its check, or by its reference where there is no compiler.

    The first time that options are used, and in a full check, a few samples go through both.
    """
    partials = []
    for job in work.jobs:
        check = job.workflow.check(job.options, samples.dtype)
        if check is None:
            partials.append(job.reference(samples, work.start + start))
            continue
        first = work.start + start if job.workflow.located else 0
        if work.verify == "full" or _agreeing.get(_key(job, samples)) is None:
            length = min(LOCATED if job.workflow.located else COMPARED, job.workflow.compared(job.options))
            run = random_run(len(samples), length, work.seed, start) if job.workflow.located else slice(length)
            _compare(job, samples[run], first + (run.start or 0))
        check.add(samples, first)
        partials.append(check.partial())
    return partials


# Jobs whose check agreed with the reference. They are held, so that no other object gets an identity of theirs.
_agreeing: dict[tuple[int, int, str], Job] = {}


def _key(job: Job, samples: NDArray[Any]) -> tuple[int, int, str]:
    """What tells checks apart: a condition or a calibration makes a workflow of its own."""
    return id(job.workflow), id(job.options), samples.dtype.str


def _compare(job: Job, samples: NDArray[Any], start: int) -> None:
    check = job.workflow.check(job.options, samples.dtype)
    assert check is not None
    check.add(samples, start)
    if details := job.differences(check.partial(), job.reference(samples, start)):
        raise VerificationError(f"{job.workflow.name}: the check and the reference disagree on {len(samples)} samples "
                                f"of {NAME}: {'; '.join(details)}; nothing was returned")  # fmt: skip
    if len(_agreeing) >= MOST_COMPARED:
        _agreeing.clear()
    _agreeing[_key(job, samples)] = job


class Check(NamedTuple):
    """A run of the samples of a part: the partial of each job, computed and by its check."""

    run: slice
    got: Sequence[NDArray[Any]]
    expected: Sequence[NDArray[Any]]


def finish(
    work: Work, partials: Sequence[NDArray[Any]], samples: int, start: int, device: str, check: Check | None = None
) -> Covered:
    """A part, once its partials have been checked.

    Parameters
    ----------
    work
    partials
        Of each job.
    samples, start
        Number of samples; the first of them in the array.
    device
        What computed them, for messages.
    check
        The run that was recomputed; None if none was.

    Raises
    ------
    VerificationError
        If the run's partials differ, or a partial breaks an invariant.
    """

    def wrong(job: Job, run: slice, details: Sequence[str]) -> VerificationError:
        return VerificationError(
            f"{job.workflow.name}: a number is wrong in samples {start + run.start:,} to {start + run.stop:,} of "
            f"{NAME} ({device}): {'; '.join(details)}; nothing was returned"
        )

    if check is not None:
        for job, got, expected in zip(work.jobs, check.got, check.expected, strict=True):
            if details := job.differences(got, expected):
                raise wrong(job, check.run, details)
    for job, partial in zip(work.jobs, partials, strict=True):
        if details := job.broken(partial, samples):
            raise wrong(job, slice(0, samples), details)
    return Covered(tuple(partials), samples, check.run.stop - check.run.start if check else 0, 1)


def threads_for(threads: int | None) -> int:
    """Number of threads; by default one per core, but no more than can share the GIL."""
    return min(cores(), THREADS["gpu"]) if threads is None else threads


def on_threads(work: Callable[[Item], Result], items: Sequence[Item], threads: int | None) -> Iterator[Result]:
    """Results in the order of the items; an error cancels what has not begun."""
    number = 1 if len(items) == 1 else min(threads_for(threads), len(items))
    if number == 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(number, "array")
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)


def empty_partials(work: Work, dtype: np.dtype[Any]) -> Covered | None:
    """What no samples give; None if a job refuses that."""
    native, empty = dtype.newbyteorder("="), [job.workflow.empty for job in work.jobs]
    if not all(empty):
        return None
    partials = (make(native, job.options) for make, job in zip(empty, work.jobs, strict=True) if make)
    return Covered(tuple(partials), 0, 0, 1)
