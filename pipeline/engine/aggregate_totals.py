"""Adds up the partials of a pass, twice and in opposite orders, because nothing else recomputes these sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.engine.aggregate_check import Partials
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import PipelineError, VerificationError
from pipeline.storage.protocol import Source
from workflows import BUILT_IN

Made = TypeVar("Made")

COMBINE = "check the job's combine, whose order must not matter; if it is right, "  # of a job of somebody's own


class Totals:
    """The sum of all partials of each job."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        # Of each job, the sums in both orders: of successive chunks, each at least twice as long as the next one.
        self._sums: list[tuple[list[Any], list[Any]]] = [([], []) for _ in jobs]

    def add(self, parts: Sequence[Partials]) -> list[NDArray[Any]]:
        """Add the partials of the parts of a chunk, in order; returns those of the chunk."""
        return [self._add(number, of_parts) for number, of_parts in enumerate(zip(*parts, strict=True))]

    def _add(self, number: int, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        combine, (forwards, backwards) = self._jobs[number].workflow.combine, self._sums[number]
        chunk = _sum(parts, combine)
        _push(forwards, chunk, combine)
        # The later one is the first argument, everywhere; both never share their memory.
        backward = _sum(parts[::-1], combine) if len(parts) > 1 else parts[0].copy()
        _push(backwards, backward, lambda sooner, later: combine(later, sooner))
        return np.asarray(chunk)

    def plus(self, chunks: Sequence[Partials]) -> Totals:
        """The sum of these and of the partials of further chunks."""
        both = Totals(self._jobs)
        both._sums = [(list(forwards), list(backwards)) for forwards, backwards in self._sums]
        for partials in chunks:
            both.add([partials])
        return both

    def finish(self, source: Source, samples: int) -> list[NDArray[Any]]:
        """The sums, `agreed`, or the partials of no samples."""
        return self._agreed([job.empty(source) if (forward := self._whole(number)[0]) is None else forward
                             for number, job in enumerate(self._jobs)], samples)  # fmt: skip

    def used(self, totals: list[NDArray[Any]], samples: int, use: Callable[[list[NDArray[Any]]], Made]) -> Made:
        """What is made of the sums that `finish` has returned; they are compared once more afterwards.

        Nothing recomputes what is made of them, a survey's bins or a result: they must not have changed before.
        """
        try:
            return use(totals)
        finally:  # also if it failed, because they had
            self._agreed(totals, samples)

    def agreed(self, samples: int) -> list[NDArray[Any]]:
        """The sums; raises VerificationError if they break an invariant, or are not the same in both orders."""
        return self._agreed([self._whole(number)[0] for number in range(len(self._sums))], samples)

    def _whole(self, number: int) -> tuple[Any, Any]:
        """The sum of all chunks in both orders; None if there are none."""
        combine, (forwards, backwards) = self._jobs[number].workflow.combine, self._sums[number]
        while len(forwards) > 1:
            forwards[-2:] = [combine(*forwards[-2:])]
        while len(backwards) > 1:
            backwards[-2:] = [combine(*reversed(backwards[-2:]))]
        return (forwards[0], backwards[0]) if forwards else (None, None)

    def _agreed(self, totals: list[NDArray[Any]], samples: int) -> list[NDArray[Any]]:
        for number, (job, total) in enumerate(zip(self._jobs, totals, strict=True)):
            forward, backward = self._whole(number)
            name, end = job.workflow.name, "run again, and test this machine's memory"
            end = f"nothing was written; {end if name in BUILT_IN else COMBINE + end}"
            try:
                broken = next(iter(job.broken(total, samples)), None)
                different = [] if forward is None or broken else job.differences(backward, forward)
            except PipelineError:  # an invariant of somebody's own
                raise
            except Exception as error:  # numbers in it say where others are
                broken = f"expected one that can be read, got {type(error).__name__}"
            if broken:
                raise VerificationError(f"{name}: the sum of all chunks is wrong: {broken}; {end}")
            if different:
                raise VerificationError(f"{name}: the sum of all chunks differs between two orders of adding them up: "
                                        f"{'; '.join(different)}; {end}")  # fmt: skip
        return totals


def _push(sums: list[Any], last: Any, combine: Callable[[Any, Any], Any]) -> None:
    """Add a sum to those of similar sizes: sums of rows grow, and would be copied again for each chunk."""
    while sums and sums[-1].size < 2 * last.size:
        last = combine(sums.pop(), last)
    sums.append(last)


def _sum(parts: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """The sum of successive partials, at least one, by pairs."""
    while len(parts) > 1:
        pairs = [combine(*parts[start : start + 2]) for start in range(0, len(parts) - 1, 2)]
        parts = [*pairs, *parts[len(parts) - len(parts) % 2 :]]
    return parts[0]
