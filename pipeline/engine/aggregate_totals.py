"""Adds up the partials of a pass, twice and in opposite orders, because nothing else recomputes these sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.engine.aggregate_check import Partials
from pipeline.engine.aggregate_plan import Pass
from pipeline.errors import VerificationError
from pipeline.storage.protocol import Source

Made = TypeVar("Made")


class Totals:
    """The sum of all partials of each job."""

    def __init__(self, pass_: Pass) -> None:
        self._pass = pass_
        self._sums: list[list[Any]] = [[None, None] for _ in pass_.jobs]

    def add(self, parts: Sequence[Partials]) -> list[NDArray[Any]]:
        """Add the partials of the parts of a chunk, in order; returns those of the chunk."""
        return [self._add(number, of_parts) for number, of_parts in enumerate(zip(*parts, strict=True))]

    def _add(self, number: int, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        combine, sums = self._pass.jobs[number].workflow.combine, self._sums[number]
        chunk: Any = None
        for part in parts:
            chunk = part if chunk is None else combine(chunk, part)
        sums[0] = chunk if sums[0] is None else combine(sums[0], chunk)
        backward: Any = None  # the later one is the first argument, everywhere
        for part in reversed(parts):
            backward = part.copy() if backward is None else combine(backward, part)  # both never share their memory
        sums[1] = backward if sums[1] is None else combine(backward, sums[1])
        return np.asarray(chunk)

    def plus(self, chunks: Sequence[Partials]) -> Totals:
        """The sum of these and of the partials of further chunks."""
        both = Totals(self._pass)
        both._sums = [list(sums) for sums in self._sums]
        for partials in chunks:
            both.add([partials])
        return both

    def finish(self, source: Source, samples: int) -> list[NDArray[Any]]:
        """The sums, `agreed`, or the partials of no samples."""
        return self._agreed([job.empty(source) if sums[0] is None else sums[0]
                             for job, sums in zip(self._pass.jobs, self._sums, strict=True)], samples)  # fmt: skip

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
        return self._agreed([forward for forward, _ in self._sums], samples)

    def _agreed(self, totals: list[NDArray[Any]], samples: int) -> list[NDArray[Any]]:
        for job, total, (forward, backward) in zip(self._pass.jobs, totals, self._sums, strict=True):
            name, end = job.workflow.name, "nothing was written; run again, and test this machine's memory"
            try:
                broken = next(filter(None, (holds(total, samples) for holds in job.workflow.invariants)), None)
                different = [] if forward is None or broken else job.differences(backward, forward)
            except Exception as error:  # numbers in it say where others are
                broken = f"expected one that can be read, got {type(error).__name__}"
            if broken:
                raise VerificationError(f"{name}: the sum of all chunks is wrong: {broken}; {end}")
            if different:
                raise VerificationError(f"{name}: the sum of all chunks differs between two orders of adding them up: "
                                        f"{'; '.join(different)}; {end}")  # fmt: skip
        return totals
