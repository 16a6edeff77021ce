"""What to do about samples that a CPU's reads bring from storage: check them while a core would wait, free their pages.

Checks that are made afterwards keep the cores busy and leave storage idle. Pages are freed where the system gets memory
for its page cache so slowly that reads wait for that and not for storage.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from time import perf_counter

from pipeline.engine.aggregate_plan import Pass
from pipeline.engine.aggregate_reference import Reference, combined, recompute_part
from pipeline.engine.pace import Check
from pipeline.storage.chunks import Chunk, Region
from pipeline.storage.fetching import Fetching, give_back
from pipeline.storage.pieces import Piece
from pipeline.timeline import Timeline

# Bytes that are looked at together, at most where parts are not checked, and at least to judge memory by them.
UNIT_BYTES, JUDGED_BYTES = 2**25, 2**23

# Seconds of CPU time to read a byte, above which memory is dear. A core reads 4 to 20 GiB/s through a page cache whose
# memory the system has. In a virtual machine that first got it from its host, page by page, it was 0.6 GiB/s.
DEAR = 0.5 / 2**30

# Pages may be joined to so many bytes. Those that reach into the next unit are not freed with their first one.
JOINED_BYTES = 2**22

KEPT = 8  # runs of this process that are remembered


class Memory:
    """Whether memory was found to be dear in a run. Once pages are freed, reads get theirs, which cost nothing."""

    dear = False


@lru_cache(KEPT)
def memory_of(run: str) -> Memory:
    """What this process found in a run."""
    return Memory()


class Fetched:
    """Looks at the parts of a chunk of files, or at units of one, as they are computed.

    Attributes
    ----------
    fetching
        Measures the reads.
    """

    def __init__(self, pass_: Pass, chunk: Chunk) -> None:
        self.fetching = Fetching()
        self._pass, self._chunk, self._memory = pass_, chunk, memory_of(pass_.run)
        self._checks = [Check.OPEN] * len(chunk.parts)
        self._ends = list(accumulate(part.samples for part in chunk.parts))
        self._part = self._computed = self._looked = 0  # number of the part; samples
        self._copying = self._waiting = self._checking = 0.0  # seconds
        self._used = 0  # bytes from storage, of what was looked at; what is left was read ahead
        self._references: list[Reference] = []
        self._timeline = Timeline(pass_.traced)

    def computed(self, samples: int) -> None:
        """So many more samples were read and added to the partials."""
        self._computed += samples
        while self._part < len(self._ends) and self._ends[self._part] <= self._computed:
            self._look(self._ends[self._part])
            self._part += 1
        unit = UNIT_BYTES // self._chunk.dtype.itemsize
        if self._pass.verify != "auto" and self._computed - self._looked >= unit:
            self._look(self._computed)

    def _look(self, end: int) -> None:
        """At the samples up to one, since the last look."""
        unit = Region(self._looked, end - self._looked)
        nbytes = unit.samples * self._chunk.dtype.itemsize
        copying, waiting = self.fetching.copying - self._copying, self.fetching.waiting - self._waiting
        self._looked, self._copying, self._waiting = end, self.fetching.copying, self.fetching.waiting
        fetched = self.fetching.nbytes - self._used
        self._used += min(nbytes, fetched)
        if not nbytes or 2 * fetched < nbytes:
            return
        if self._pass.verify == "auto" and unit not in self._chunk.always and self._checking <= self._waiting:
            self._check(unit)
        if nbytes >= JUDGED_BYTES and copying > max(waiting, DEAR * nbytes):
            self._memory.dear = True
        if self._memory.dear and not self._pass.again and self._pass.verify != "full":
            before = min(JOINED_BYTES // self._chunk.dtype.itemsize, unit.start)
            give_back(self._chunk.part(Region(unit.start - before, before + unit.samples)))

    def _check(self, part: Region) -> None:
        began = perf_counter()
        reference = recompute_part(self._pass, self._chunk.part(part), compared=False)
        self._references.append(reference)
        self._timeline.join(reference.timeline)
        self._checks[self._part] = Check.BESIDE
        self._checking += perf_counter() - began

    def finish(self) -> tuple[tuple[Check, ...], Reference | None]:
        """When each part is checked, and the partials of those that were, together; nothing if none was."""
        if not self._references:
            return (), None
        partials = combined(self._pass.jobs, [reference.partials for reference in self._references])
        return tuple(self._checks), Reference(partials, self._timeline)


def fetched_of(pass_: Pass, chunk: Chunk) -> Fetched | None:
    """What looks at a chunk; None on a GPU, or if it is not all in files as they are."""
    files = all(isinstance(piece, Piece) for piece in chunk.pieces)
    return Fetched(pass_, chunk) if pass_.device == "cpu" and files else None
