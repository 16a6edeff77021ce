"""Counts how often a run comes through each place, and plants an error in one of these calls in the next run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.benchmarks.planted.faults import CHANGES, STALE, Fault, content

# Where in a run: the place, who comes through, the task of theirs, what they handle, and how often they did before.
Call = tuple[str, str, Any, Any, int]

COMPUTE, CHECK, CLIENT = "compute", "check", "client"


@dataclass
class Injector:
    """The error that is planted in the run in progress, if any.

    Attributes
    ----------
    calls
        Of the last run that was recorded, with the kinds of errors of each.
    fault
        The planted error, once the run has come through its call.
    held
        What each place handled last, for buffers that are stale.
    items
        Chunks or regions of the job, for tasks that take another one's.
    itemsize
        Bytes of an element of the inputs.
    delivered
        A byte of a file, by name and offset, and the bits of it that every read of it has wrong.
    admitted
        By region of a matrix product, the largest error that its check lets pass, in the unit of its verdict.
    """

    calls: list[tuple[Call, tuple[str, ...]]] = field(default_factory=list)
    fault: Fault | None = None
    held: dict[str, Any] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    itemsize: int = 1
    delivered: tuple[str, int, int] | None = None
    admitted: dict[Any, float] = field(default_factory=dict)
    _seen: Counter[Any] = field(default_factory=Counter)
    _recording: bool = False
    _target: Call | None = None
    _planned: Fault | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _own: threading.local = field(default_factory=threading.local)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record all calls of a run."""
        self.calls, self._recording = [], True
        self._seen.clear()
        self.held.clear()
        try:
            yield
        finally:
            self._recording = False

    @contextmanager
    def planting(self, target: Call, kind: str, random: np.random.Generator) -> Iterator[None]:
        """Plant an error in one call of a run."""
        self.fault, self._target, self._planned = None, target, Fault(kind, random)
        self._seen.clear()
        self.held.clear()
        try:
            yield
        finally:
            self._target = None

    @property
    def active(self) -> bool:
        """Whether a run is in progress."""
        return self._recording or self._target is not None

    @contextmanager
    def computing(self, items: Any) -> Iterator[None]:
        """This thread computes a task."""
        before = getattr(self._own, "items", None)
        self._own.items = items
        try:
            yield
        finally:
            self._own.items = before

    @property
    def role(self) -> str:
        """What this thread does."""
        if getattr(self._own, "items", None) is not None:
            return COMPUTE
        return CLIENT if threading.current_thread() is threading.main_thread() else CHECK

    @property
    def remembers(self) -> bool:
        """Whether the planned error needs what a buffer held before."""
        return self._target is not None and self._planned is not None and self._planned.kind in STALE

    def note(self, place: str, kinds: Sequence[str], array: Any, roles: Sequence[str] = (COMPUTE,)) -> Fault | None:
        """A place has made an array, on the host or a device; changes it if the error happens there.

        Returns
        -------
        The error that happens there, if it does now; it has not changed anything if it is of a kind of its own.
        """
        fault, before = self.reached(place, kinds, None, roles), self.held.get(place)
        if self.remembers and fault is None:
            self.held[place] = content(array)
        if fault and fault.kind in CHANGES:
            fault.spoil_array(array, before)
        return fault

    def reached(
        self, place: str, kinds: Sequence[str], what: Any = None, roles: Sequence[str] = (COMPUTE,)
    ) -> Fault | None:
        """The run comes through a place. Returns the error that happens there, if it does now."""
        if not self.active or self.role not in roles:
            return None
        with self._lock:
            where = place, self.role, getattr(self._own, "items", None), what
            call: Call = (*where, self._seen[where])
            self._seen[where] += 1
            if self._recording:
                self.calls.append((call, tuple(kinds)))
            elif call == self._target and self.fault is None:
                self.fault = self._planned
                return self.fault
        return None


INJECTOR = Injector()
