"""Checks the samples of a chunk beside their read: a core reads them twice, the second time from its cache.

For a GPU, the threads that read for it also check; on a CPU, the thread that computes, block by block. This module
works out from the chunk alone which samples to check, and reads them from a descriptor of its own. So if the read for
the computation brings other samples, or none, the check still sees the right ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kernels.common.compiled_check import CompiledCheck
from pipeline.engine.aggregate_plan import Pass
from pipeline.engine.aggregate_reference import Reference, combined, compare_with_references
from pipeline.engine.pace import Check, EvenPace, Pace, not_counted
from pipeline.errors import PipelineError
from pipeline.gpu.blocks import checks_beside
from pipeline.gpu.pinned import Checks
from pipeline.gpu.transfer import threads
from pipeline.storage.chunks import Chunk, Region
from pipeline.storage.feed import Give, feeder
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import open_planned
from pipeline.timeline import Timeline

# Bytes of a chunk for each set of checks, at least: making one, and adding up what it has seen, takes calls of Python.
# No less than the memory of the set, which is large where rows have checks of their own.
SET_BYTES = 2**22


class _Chosen:
    """Checks parts of a chunk: those that are always checked, and others as far as the pace allows.

    Parameters
    ----------
    pass_
    chunk
    checks
        Of all jobs.
    pace
    """

    def __init__(self, pass_: Pass, chunk: Chunk, checks: Checks | Fed, pace: Pace | EvenPace) -> None:
        self.checks = checks
        self._pass, self._chunk, self._pace = pass_, chunk, pace
        self._timeline, self._began = Timeline(pass_.traced), perf_counter()
        self._ends = list(accumulate(part.samples for part in chunk.parts))
        self._when: list[Check | None] = [None] * len(chunk.parts)  # not decided yet
        self._pieces = cast("tuple[Piece, ...]", chunk.pieces)
        self._starts = [0, *accumulate(piece.nbytes for piece in self._pieces)]
        self._next = 0  # sample
        self._last = self._began  # when it checked last
        self._spent: NDArray[np.int64] | None = None

    def piece(self, start: int) -> Piece:
        """The piece that a sample of the chunk lies in."""
        return self._pieces[self._number(start)]

    def runs(self, start: int, samples: int) -> NDArray[np.int64]:
        """What to check of these samples of the chunk, all in one piece, as `pipeline.gpu.pinned.Beside` takes it.

        Raises
        ------
        PipelineError
            If they do not follow the last ones: what the device got twice would be checked twice.
        """
        return np.array([*self._runs(start, samples)], np.int64).reshape(-1, 3)

    def _runs(self, start: int, samples: int) -> Iterator[tuple[int, int, int]]:
        if start != self._next:
            raise PipelineError(f"{self._chunk.where()}: expected to check from sample {self._next} on, got {start}; "
                                "report this")  # fmt: skip
        self._next = end = start + samples
        for number in range(bisect_right(self._ends, start), len(self._ends)):
            part = self._chunk.parts[number]
            if part.start >= end:
                break
            if self._check_of(number, part) is Check.BESIDE:
                first = max(start, part.start)
                nbytes = (min(end, self._ends[number]) - first) * self._chunk.dtype.itemsize
                yield self._offset(first), nbytes, first

    def _check_of(self, number: int, part: Region) -> Check:
        if (when := self._when[number]) is None:
            nbytes = part.samples * self._chunk.dtype.itemsize
            when = self._pace.check(nbytes) if self._pass.verify == "auto" else Check.NOT
            self._when[number] = when = Check.BESIDE if part in self._chunk.always else when
        return when

    def _number(self, sample: int) -> int:
        return bisect_right(self._starts, sample * self._chunk.dtype.itemsize) - 1

    def _offset(self, sample: int) -> int:
        """Where a sample of the chunk lies in its file."""
        number = self._number(sample)
        return self._pieces[number].offset + sample * self._chunk.dtype.itemsize - self._starts[number]

    def finish(self) -> tuple[tuple[Check, ...], Reference]:
        """When each part is checked, and the partials of those that were, together; after all reads.

        Raises
        ------
        PipelineError
            If not every sample of these parts was read.
        VerificationError
            If a check differs from its reference on a random run of the samples.
        """
        checks = tuple(when or Check.NOT for when in self._when)
        spent = self.end()
        parts = zip(self._chunk.parts, checks, strict=True)
        expected = sum(part.samples for part, when in parts if when is Check.BESIDE)
        got = int(spent[:, 0].sum()) // self._chunk.dtype.itemsize
        if got != expected:
            raise PipelineError(f"{self._chunk.where()}: expected to check {expected} samples beside their read, got "
                                f"{got}; run again when nothing writes to it")  # fmt: skip
        for nbytes, nanoseconds in spent.tolist():
            if nanoseconds:
                self._timeline.add("verify", self._began, nanoseconds / 1e9, nbytes)
        used = [set_ for set_, (nbytes, _) in zip(self.checks.sets, spent.tolist(), strict=True) if nbytes]
        if not used:
            return checks, Reference((), self._timeline)
        with self._timeline.measure("verify"):
            compare_with_references(self._pass, self._chunk)
            partials = combined(self._pass.jobs, [[check.partial() for check in set_] for set_ in used])
        jobs = zip(self._pass.jobs, partials, strict=True)
        return checks, Reference(tuple(job.placed(one, self._chunk.start) for job, one in jobs), self._timeline)

    def end(self) -> NDArray[np.int64]:
        """What the checks were given; frees them. No read may be under way."""
        if self._spent is None:
            self._spent = self.checks.end()
        return self._spent


class Beside(_Chosen):
    """Checks that the threads which read for a GPU make."""

    checks: Checks


class Fed:
    """Checks that get their samples from the thread that computes.

    Parameters
    ----------
    checks
        Of all jobs.
    give
        Their `feeder`.
    files
        Keeps the file of a piece open until the next one.
    """

    def __init__(self, checks: list[CompiledCheck], give: Give, files: ExitStack) -> None:
        self.sets = [checks]
        self._give, self._files = give, files
        self._piece: Piece | None = None
        self._fd = -1
        self._nbytes = 0

    def add(self, piece: Piece, start: int, nbytes: int, index: int) -> None:
        """Give them so many bytes from byte `start` of a piece on; the first sample has this index."""
        if piece is not self._piece:
            self._files.close()
            self._piece, self._fd = piece, self._files.enter_context(open_planned(piece))
        self._give(self._fd, piece, start, nbytes, index)
        self._nbytes += nbytes

    def end(self) -> NDArray[np.int64]:
        """As `Checks.end`, without the time."""
        return np.array([(self._nbytes, 0)])


class Behind(_Chosen):
    """Checks that the thread which computes on a CPU makes, of each block once it has been computed."""

    checks: Fed
    _pace: EvenPace

    def follow(self, samples: int) -> None:
        """Check so many more samples of the chunk, all in one piece, as far as they are in parts to be checked."""
        began, fed = perf_counter(), 0
        for offset, nbytes, first in self._runs(self._next, samples):
            piece = self.piece(first)
            self.checks.add(piece, offset - piece.offset, nbytes, first)
            fed += nbytes
        ended = perf_counter()
        if fed:
            self._timeline.add("verify", began, ended - began, fed)
        self._pace.add(began - self._last, ended - began)
        self._last = ended


@contextmanager
def checking_beside(pass_: Pass, chunk: Chunk) -> Iterator[Beside | Behind | None]:
    """Checks for a chunk; None if its samples cannot be checked beside their read, or are not to be."""
    with ExitStack() as files:
        beside = None if pass_.verify == "off" else _checking(pass_, chunk, files)
        try:
            yield beside
        finally:
            if beside:
                beside.end()


def _checking(pass_: Pass, chunk: Chunk, files: ExitStack) -> Beside | Behind | None:
    key = pass_.run, pass_.name
    if pass_.device == "gpu":
        sets = _sets(pass_, chunk) if checks_beside(chunk) else []
        return Beside(pass_, chunk, Checks(sets, chunk.dtype.itemsize), Pace.of(key)) if sets else None
    checks = checks_of(pass_, chunk.dtype, chunk.start) if chunk.runs else []
    give = feeder(checks, chunk.dtype, 0) if checks else None
    return Behind(pass_, chunk, Fed(checks, give, files), EvenPace.of(key)) if give else None


def checks_of(pass_: Pass, dtype: np.dtype[Any], start: int) -> list[CompiledCheck]:
    """Checks of all jobs, of samples from this one on; none if any of them is not compiled, or not where it is."""
    checks = []
    for job in pass_.jobs:
        with not_counted.counted():
            check = job.workflow.check(job.options, dtype.newbyteorder("="))
        if not isinstance(check, CompiledCheck) or (job.workflow.located and not check.count_from(start)):
            return []
        checks.append(check)
    return checks


def _sets(pass_: Pass, chunk: Chunk) -> list[list[CompiledCheck]]:
    """Sets of checks, one for each thread that may check; none if there are none."""

    def one() -> list[CompiledCheck]:
        return checks_of(pass_, chunk.dtype, chunk.start)

    first = one()
    nbytes = max(SET_BYTES, sum(check.nbytes for check in first))
    return [first, *(one() for _ in range(min(threads(), chunk.nbytes // nbytes) - 1))] if first else []
