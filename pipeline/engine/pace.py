"""How much is checked beside the reads of a run: as much as takes no longer than the run itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from threading import Lock
from time import perf_counter
from typing import Any, Self

from kernels.common.seconds import Seconds

# Checks that may be left out take as long as computing at most. A run may take so long in any case: no longer than it
# takes to start.
LEAST_SECONDS = 0.5

# Bytes that are read without checks to learn how long a run without checks takes, and are checked later; the first of
# them are not measured, because others are still being checked.
UNCHECKED_BYTES = 2**29, 2**30

LEAST_COMPILING = 0.05  # seconds; what takes less was found compiled

KEPT = 8  # passes of this process: several runs may share a worker


class Check(Enum):
    """When samples are checked."""

    BESIDE = "beside their read"
    LATER = "later"
    PERHAPS = "later, if there is time"
    NOT = "not at all"


class _OfPass:
    """What the threads of a process share in a pass."""

    @classmethod
    def of(cls, key: Hashable) -> Self:
        """That of a pass in this process, by a key of it; the oldest ones are forgotten."""
        with _making:
            of_kind = cls, key
            shared: Self = _paces.pop(of_kind, None) or cls()
            _paces[of_kind] = shared  # the latest
            if len(_paces) > KEPT:
                _paces.popitem(last=False)
            return shared


class Pace(_OfPass):
    """How much of a pass is checked beside its reads: as much as takes no longer than reading it without checks.

    In the first half second, and as long as the run takes no more than twice as long as it would without checks.
    Time counts from the first call: a pass may have been known, and warmed up, long before. Threads call it one at a
    time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._began: float | None = None
        self._nbytes = 0
        self._before: tuple[float, int] | None = None  # when samples were read without checks first; bytes until then
        self._measured: tuple[float, int] | None = None  # likewise, from where on that is measured
        self._per_byte = 0.0  # seconds, without checks; 0 while unknown

    def check(self, nbytes: int) -> Check:
        """When the next bytes are checked."""
        with self._lock:
            clock = perf_counter()
            self._began = clock if self._began is None else self._began
            now = clock - self._began
            self._nbytes += nbytes
            if now < LEAST_SECONDS:
                return Check.BESIDE
            if self._per_byte:
                return Check.BESIDE if now < 2 * self._per_byte * self._nbytes + LEAST_SECONDS else Check.NOT
            first, then = UNCHECKED_BYTES
            self._before = self._before or (now, self._nbytes)
            if not self._measured and self._nbytes - self._before[1] >= first:
                self._measured = now, self._nbytes
            if self._measured and self._nbytes - self._measured[1] >= then:
                self._per_byte = (now - self._measured[0]) / (self._nbytes - self._measured[1])
            return Check.LATER


class EvenPace(_OfPass):
    """How much of a pass is checked by the threads that compute it: as long as checking takes no longer than computing.

    In the first half second in any case.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._computing = self._checking = 0.0  # seconds, of all threads

    def check(self, nbytes: int) -> Check:
        """When the next bytes are checked."""
        with self._lock:
            spent, most = self._computing + self._checking, max(2 * self._computing, LEAST_SECONDS)
            return Check.BESIDE if spent <= most else Check.PERHAPS

    def add(self, computing: float, checking: float) -> None:
        """Seconds that a thread has spent."""
        with self._lock:
            self._computing += computing
            self._checking += checking


not_counted = Seconds(LEAST_COMPILING)  # what makes checks ready; in the first run on a machine it compiles them
_making = Lock()
_paces: OrderedDict[Hashable, Any] = OrderedDict()
