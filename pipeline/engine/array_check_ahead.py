"""Prepares the checks of regions on idle cores: while workers start, and while a GPU computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from threading import Semaphore, Thread
from time import perf_counter
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from kernels.common.row_tiles import limited, on_tiles
from pipeline.engine.array_plan import ArrayPlan, random_of
from pipeline.storage.array_file import ArrayFile, read_region
from pipeline.storage.mapped_input import MADV_POPULATE_READ, MappedFiles
from pipeline.storage.mapped_output import advise
from pipeline.storage.output_array import OutputFile
from pipeline.storage.planned_file import Opened, kept_open
from pipeline.storage.scratch import aligned_empty
from pipeline.threads import cores
from pipeline.timeline import Timeline
from workflows.array_job import Checked, Prepared, Shared
from workflows.regions import Bounds, along, sizes

# Regions that are prepared and not yet checked, at most: each takes about as much memory as its check under way. Of
# mapped files nothing is copied, so a check holds little more than its sums, and more are prepared while a GPU starts.
HELD, HELD_OF_MAPPED = 2, 16
READ_BYTES = 2**22  # of a region that is checked at once, that a thread reads at a time
LEAVE_SECONDS = 5.0  # that the thread has to end in; only a read that hangs takes longer


# (array, region, what gives memory, opened) -> elements, as `read_region`
ReadRegion = Callable[[ArrayFile, Bounds, Callable[..., NDArray[Any]], Opened], NDArray[Any]]


class _Ended(Exception):
    """The preparation is no longer needed."""


class _Check:
    """The prepared check of a region, and the time that it took to prepare.

    It reads the inputs by `read`, as `read_region` does, through `opened`: files that whoever uses it keeps open
    meanwhile.
    """

    def __init__(
        self, plan: ArrayPlan, region: Bounds, shared: Shared, opened: Opened, read: ReadRegion = read_region
    ) -> None:
        self._plan, self._read_region, self.opened, self.began = plan, read, opened, perf_counter()
        assert plan.workflow.prepare is not None
        random = random_of(plan, region)
        self.verdict: Prepared = plan.workflow.prepare(self._read, region, plan.native(), plan.options, random, shared)
        self.seconds = perf_counter() - self.began

    def _read(self, number: int, bounds: Bounds) -> NDArray[Any]:
        return self._read_region(self._plan.inputs[number], bounds, aligned_empty, self.opened)


def read_on_all_cores(
    read: Callable[[Bounds, Callable[..., NDArray[Any]], Opened], object], dtype: np.dtype[Any], region: Bounds,
    opened: Opened,
) -> NDArray[Any]:  # fmt: skip
    """The elements of a large region, which one thread would read at 2 GB/s: new memory has to be mapped, too.

    `read` gets a part of it, what gives its memory, which it has to fill, and `opened`.
    """
    block = aligned_empty(sizes(region), dtype)
    axis = next((axis for axis, length in enumerate(block.shape) if length > 1), 0)
    rows = max(1, READ_BYTES * block.shape[axis] // max(1, block.nbytes)) if block.ndim else 1

    def read_part(part: tuple[Bounds, Any]) -> None:
        bounds, inside = part
        read(bounds, lambda *_: block[inside], opened)

    on_tiles(read_part, along(region, axis, rows) if block.ndim else [(region, (...,))])
    return block


@contextmanager
def whole_region(output: OutputFile, region: Bounds, opened: Opened) -> Iterator[NDArray[Any]]:
    """The elements of a large region: those in the file, where it is mapped to be written, else a copy."""
    with output.view(region) as elements:
        if elements is None:
            elements = read_on_all_cores(output.read, output.spec.dtype, region, opened)
        elif elements.flags.c_contiguous:
            advise(elements.ctypes.data, elements.nbytes, MADV_POPULATE_READ)
        yield elements


def check_here(plan: ArrayPlan, output: OutputFile, region: Bounds, opened: Opened) -> Checked:
    """Check a region of the output for which nothing was prepared."""
    with whole_region(output, region, opened) as elements:
        return _Check(plan, region, Shared(), opened).verdict(elements)


class PreparedChecks(ABC):
    """Checks of regions that are prepared while others compute; an argument of tasks, None in another process."""

    def __init__(self) -> None:
        self._name = uuid4().hex
        _of_process[self._name] = self

    def __reduce__(self) -> Any:
        return _in_this_process, (self._name,)

    @abstractmethod
    def begin(self, regions: Sequence[Bounds]) -> None:
        """Start to prepare the checks of these regions, unless that has begun."""

    @abstractmethod
    def check(self, output: OutputFile, region: Bounds, opened: Opened, timeline: Timeline) -> Checked:
        """Check a region of the output, prepared or not."""

    @abstractmethod
    def close(self) -> None:
        """End what prepares, and whatever waits for it."""

    def stop(self) -> None:  # noqa: B027, not all have to
        """Nothing more is asked: begin to end, without waiting for it."""

    def hurry(self) -> None:  # noqa: B027, not all have to
        """Nothing is left to compute."""


class ChecksAhead(PreparedChecks):
    """Checks that a thread of this process prepares in the order of their regions, a few ahead of their use.

    Parameters
    ----------
    plan
        Its output file need not exist yet.
    mapped
        Files to read in, for a process that may die.
    """

    def __init__(self, plan: ArrayPlan, mapped: MappedFiles | None = None) -> None:
        super().__init__()
        self._plan, self._mapped, self._shared = plan, mapped, Shared()
        self._read: ReadRegion = mapped.region if mapped else read_region
        self._checks: dict[Bounds, Future[_Check | None]] = {}
        self._left: dict[Bounds, bool] = {}  # that nobody has begun; who takes one out does
        self._free, self._ended = Semaphore(HELD_OF_MAPPED if mapped else HELD), False
        self._most = max(1, cores() // 2)  # threads; what feeds a GPU, or computes, has the other cores
        self._thread: Thread | None = None

    def begin(self, regions: Sequence[Bounds]) -> None:
        """Start to prepare the checks of these regions, unless that has begun."""
        if self._thread is None and regions:
            self._checks = {region: Future() for region in regions}
            self._left = dict.fromkeys(regions, True)
            self._thread = Thread(target=self._prepare, args=(list(regions),), name="ahead", daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Use all cores: nothing is left to compute."""
        self._most = cores()

    def close(self) -> None:
        """End the thread, and whatever waits for it."""
        self._ended = True
        self._free.release()
        for check in list(self._checks.values()):
            check.cancel()
        if self._thread:
            self._thread.join(LEAVE_SECONDS)

    def check(self, output: OutputFile, region: Bounds, opened: Opened, timeline: Timeline) -> Checked:
        """Check a region of the output, which is read meanwhile; prepared here if that has not begun."""
        check = self._checks.get(region)
        if check and self._left.pop(region, False):
            del self._checks[region]
            with suppress(InvalidStateError):  # cancelled
                check.set_result(None)  # for the same task, if it is run twice at a time
            check = None
        asked = perf_counter()
        try:
            # One that failed is prepared again: its error, unless that has gone, is an error of this check.
            if check and (prepared := check.result()):
                # What is left of it after that, the caller's own time has.
                timeline.add("verify", prepared.began, min(prepared.seconds, max(0.0, asked - prepared.began)))
                prepared.opened = opened
            else:
                prepared = _Check(self._plan, region, self._shared, opened, self._read)
            if self._mapped:
                return prepared.verdict(self._read(output.readable(), region, aligned_empty, opened))
            with whole_region(output, region, opened) as elements:
                return prepared.verdict(elements)
        finally:
            if self._checks.pop(region, None) and check:
                self._free.release()

    def _prepare(self, regions: Sequence[Bounds]) -> None:
        with limited(self._under_way):
            for region in regions:
                self._free.acquire()
                if self._ended:
                    return
                if not self._left.pop(region, False):
                    self._free.release()
                    continue
                check = self._checks[region]
                with suppress(InvalidStateError):  # cancelled
                    check.set_result(self._prepared(region))

    def _prepared(self, region: Bounds) -> _Check | None:
        with suppress(Exception):  # whoever wants the check prepares it again, and reports the error
            with kept_open() as opened:
                check = _Check(self._plan, region, self._shared, opened, self._read)
            return check
        return None

    def _under_way(self) -> int:
        if self._ended:
            raise _Ended
        return self._most


_of_process: WeakValueDictionary[str, PreparedChecks] = WeakValueDictionary()


def _in_this_process(name: str) -> PreparedChecks | None:
    return _of_process.get(name)
