"""Seconds that threads spend on something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import perf_counter


class Seconds:
    """Seconds that bodies take, those that overlap once: their threads wait for one another.

    Parameters
    ----------
    least
        What takes no longer than so many seconds does not count.
    """

    def __init__(self, least: float = 0.0) -> None:
        self._least, self._lock = least, Lock()
        self.total = self._ended = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the body."""
        began = perf_counter()
        try:
            yield
        finally:
            with self._lock:
                ended = perf_counter()
                spent = ended - min(max(began, self._ended), ended)
                self.total, self._ended = self.total + spent * (spent > self._least), ended


compiling = Seconds()  # kernels, for GPUs and CPUs, that no earlier run has compiled
