"""Frees pages of the page cache that a CPU's reads have filled from storage, where new memory is slow.

The system may get memory so slowly that reads wait for that and not for storage; pages that were freed are used again.
"""

from __future__ import annotations

from functools import lru_cache

from pipeline.engine.aggregate_plan import Pass
from pipeline.storage.chunks import Chunk, Region
from pipeline.storage.page_cache import Fetching, give_back

# Bytes that are looked at together, and at least to judge memory by them.
UNIT_BYTES, JUDGED_BYTES = 2**25, 2**23

# Seconds of CPU time to read a byte, above which memory is dear. A core reads 4 to 20 GiB/s through a page cache whose
# memory the system has. In a virtual machine that first got it from its host, page by page, it was 0.6 GiB/s.
DEAR = 0.5 / 2**30

# Pages may be joined to so many bytes. Those that reach into the next unit are not freed with their first one.
JOINED_BYTES = 2**22

KEPT = 8  # runs of this process that are remembered


class Memory:
    """Whether new memory was found to be slow in a run. Once pages are freed, reads reuse them at no cost."""

    dear = False


@lru_cache(KEPT)
def memory_of(run: str) -> Memory:
    """What this process found in a run."""
    return Memory()


class Fetched:
    """Looks at a chunk of files, some MiB at a time, while it is computed.

    Attributes
    ----------
    fetching
        Measures the reads.
    """

    def __init__(self, pass_: Pass, chunk: Chunk) -> None:
        self.fetching = Fetching()
        self._chunk, self._memory = chunk, memory_of(pass_.run)
        self._computed = self._looked = 0  # samples
        self._copying = self._waiting = 0.0  # seconds
        self._used = 0  # bytes from storage, of what was looked at; what is left was read ahead

    def computed(self, samples: int) -> None:
        """So many more samples were read, computed, and checked if they are to be."""
        self._computed += samples
        unit = UNIT_BYTES // self._chunk.dtype.itemsize
        if self._computed - self._looked >= unit or self._computed == self._chunk.samples:
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
        if nbytes >= JUDGED_BYTES and copying > max(waiting, DEAR * nbytes):
            self._memory.dear = True
        if self._memory.dear:
            before = min(JOINED_BYTES // self._chunk.dtype.itemsize, unit.start)
            give_back(self._chunk.part(Region(unit.start - before, before + unit.samples)))


def fetched_of(pass_: Pass, chunk: Chunk) -> Fetched | None:
    """What looks at a chunk; None if it is not all in files as they are, or will be read again."""
    return Fetched(pass_, chunk) if chunk.runs and not pass_.again else None
