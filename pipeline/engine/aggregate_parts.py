"""The parts of computed chunks: chooses which to check while there is time, and compares their partials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from random import Random
from typing import NamedTuple

from pipeline.engine.aggregate_check import Partials, check_part
from pipeline.engine.aggregate_plan import Pass
from pipeline.engine.aggregate_reference import Reference, combined
from pipeline.engine.aggregate_task import ChunkResult, recompute_parts
from pipeline.engine.pace import Check
from pipeline.engine.run_loop import Extra
from pipeline.storage.chunks import Chunk
from pipeline.timeline import Timeline

# Least and most parts per task. A task ends sooner if its time is up, and the rest waits again.
PARTS_OF_TASK = (8, 64)

# How long a task begins another part: Dask's milliseconds per task are little of it, and when its time is up, a run
# ends this much later.
CHECK_SECONDS = 0.05

# Bytes of memory that waiting parts may take: their partials and, of a source of unknown length, their samples.
WAITING_BYTES = 2**27


class Part(NamedTuple):
    """A part of a computed chunk.

    Attributes
    ----------
    chunk
        The part, as a chunk of its own.
    partials
    worker, device
        What computed them.
    always
        Whether it has to be checked even if there is no time.
    """

    chunk: Chunk
    partials: Partials
    worker: str
    device: str
    always: bool


class Parts:
    """Parts that wait for their check, and the number of samples checked so far.

    Parameters
    ----------
    pass_
    tasks
        That check at a time.
    kept
        Whether samples of parts that wait are kept in memory.
    on_agreed
        Called with each part that agrees with what was recomputed.
    """

    def __init__(self, pass_: Pass, tasks: int, kept: bool, on_agreed: Callable[[Part], None]) -> None:
        self.checked = 0
        self._pass = pass_
        self._tasks = tasks
        self._kept = kept
        self._on_agreed = on_agreed
        self._due: list[Part] = []
        self._others: list[Part] = []
        self._nbytes = self._due_nbytes = 0  # of the others, of those that are due
        self._random = Random(pass_.seed)

    def compare(self, part: Part, reference: Reference) -> None:
        """Compare a part with what was recomputed; raises VerificationError."""
        if mismatch := check_part(self._pass, part.chunk, part.partials, part.worker, part.device, reference):
            raise mismatch.error
        self.checked += part.chunk.samples
        self._on_agreed(part)

    def compare_beside(self, chunk: Chunk, result: ChunkResult) -> Reference:
        """Compare the parts of a chunk that were checked beside their read; raises VerificationError."""
        assert result.reference is not None
        checked = (when is Check.BESIDE for when in result.checks)
        some = list(compress(zip(chunk.parts, result.partials, strict=True), checked))
        if some:
            partials = combined(self._pass.jobs, [of_part for _, of_part in some])
            where = result.worker, result.device
            compared = chunk.part(some[0][0]) if len(some) == 1 else chunk
            if mismatch := check_part(self._pass, compared, partials, *where, result.reference):
                raise mismatch.error
        for region, of_part in some:
            self.checked += region.samples
            self._on_agreed(Part(chunk.part(region), of_part, *where, region in chunk.always))
        return result.reference

    def wait(self, part: Part, due: bool) -> None:
        """Let a part wait for its check. If there is no room, random optional parts are left out.

        `due`: whether it is to be done even if there is no time, as far as there is room.
        """
        if part.always or (due and self._due_nbytes + self._bytes(part) <= WAITING_BYTES):
            self._due.append(part)
            self._due_nbytes += self._bytes(part)
            return
        self._others.append(part)
        self._nbytes += self._bytes(part)
        while self._nbytes > WAITING_BYTES:
            self._any()

    def extra(self, in_time: bool) -> Extra | None:
        """A check of some of the parts that wait, in random order; None if there are none, or no time for any."""
        waiting = self._due or (self._others if in_time else [])
        if not waiting:
            return None
        least, most = PARTS_OF_TASK
        number = min(len(waiting), max(least, min(most, len(waiting) // (4 * self._tasks))))
        due = waiting is self._due
        parts = [self._next() if due else self._any() for _ in range(number)]
        chunks = [part.chunk for part in parts]

        def finish(references: Sequence[Reference]) -> Iterator[tuple[int, str, str, Timeline]]:
            for part in parts[len(references) :]:
                self.wait(part, due)
            for part, reference in zip(parts, references, strict=False):
                self.compare(part, reference)
                yield part.chunk.index, part.worker, part.device, reference.timeline

        return Extra((recompute_parts, self._pass, chunks, due, CHECK_SECONDS), self._pass.label(chunks), finish)

    def _next(self) -> Part:
        """Take one of the parts that are due."""
        part = self._due.pop()
        self._due_nbytes -= self._bytes(part)
        return part

    def _any(self) -> Part:
        """Take one of the optional parts at random."""
        place = self._random.randrange(len(self._others))
        self._others[place], self._others[-1] = self._others[-1], self._others[place]
        part = self._others.pop()
        self._nbytes -= self._bytes(part)
        return part

    def _bytes(self, part: Part) -> int:
        return sum(partial.nbytes for partial in part.partials) + (part.chunk.nbytes if self._kept else 0)
