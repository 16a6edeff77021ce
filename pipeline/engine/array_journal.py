"""What a job that writes an array has finished: regions that are written and checked, with digests of their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.cluster.worker import device_name, unit_name, worker_address
from pipeline.engine.array_plan import ArrayPlan, host_seat, nbytes_of
from pipeline.engine.journal import Journal, damaged
from pipeline.engine.journal_file import Row
from pipeline.engine.run_loop import Done, Run, Task, Work
from pipeline.storage.planned_file import kept_open
from pipeline.storage.scratch import scratch
from pipeline.timeline import Timeline
from workflows.array_job import Checked
from workflows.regions import Bounds

DIGESTED_BYTES = 2**26  # that are in memory at a time


@dataclass(frozen=True)
class RegionsDigests:
    """SHA-256 of the bytes of regions in the output, in C order; who computed them."""

    digests: tuple[str, ...]
    worker: str
    device: str
    unit: str
    timeline: Timeline


def digest_regions(plan: ArrayPlan, regions: Sequence[Bounds], device: str, after: Any = None) -> RegionsDigests:
    """Task: read regions of the output from its file, once what writes them is done."""
    digests = tuple(_digest(plan, region) for region in regions)
    return RegionsDigests(digests, worker_address(), device_name(device), unit_name(device), Timeline())


def _digest(plan: ArrayPlan, region: Bounds) -> str:
    digest = hashlib.sha256()
    with host_seat(plan), kept_open() as opened:
        for slab in _slabs(region, nbytes_of(plan.output.spec, region)):
            with scratch() as allocate:
                digest.update(plan.output.read(slab, allocate, opened).reshape(-1).view("u1").data)
    return digest.hexdigest()


def _slabs(region: Bounds, nbytes: int) -> Iterator[Bounds]:
    """A region in parts that follow one another in C order."""
    axis = next((axis for axis, (start, stop) in enumerate(region) if stop - start > 1), None)
    if axis is None:
        yield region
        return
    first, end = region[axis]
    step = max(1, DIGESTED_BYTES * (end - first) // max(nbytes, 1))
    for start in range(first, end, step):
        yield (*region[:axis], (start, min(start + step, end)), *region[axis + 1 :])


@dataclass(frozen=True)
class Batch:
    """Regions that an earlier run has finished with one task: their digests, what was checked, elements by path."""

    regions: tuple[Bounds, ...]
    digests: tuple[str, ...]
    checked: Checked
    counts: dict[str, int]


class RegionsDone:
    """The finished regions of a job that writes an array."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: list[Row] = []
        self._written = self._writing = 0
        self._numbers: dict[Bounds, int] = {}
        row = journal.row("pass")
        try:
            self.elements: int | None = int(row.header["elements"]) if row else None  # of a region, as it was planned
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(error) from None

    def begin(self, elements: int, regions: Sequence[Bounds]) -> list[Batch]:
        """What an earlier run has finished of these regions; from now on, the journal gets what is."""
        if not self._journal.possible:
            return []
        self._numbers = {region: number for number, region in enumerate(regions)}
        header = {"elements": elements, "items": len(regions), "done": None}
        self._rows.append(Row("pass", 0, header))
        self._journal.record(self)
        try:
            rows = self._journal.rows("regions")
            batches = [_batch(row.header, regions) for row in rows if row.header["regions"]]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise damaged(error) from None
        if len({region for batch in batches for region in batch.regions}) != sum(len(one.regions) for one in batches):
            raise damaged("regions that overlap")
        return batches

    def add(self, items: Sequence[Bounds], digests: Sequence[str], checked: Checked, counts: Mapping[str, int]) -> None:
        """Regions are written and checked."""
        numbers = [self._numbers[region] for region in items]
        self._add(numbers[0], numbers, digests, checked, counts)

    def _add(
        self, number: int, regions: list[int], digests: Sequence[str], checked: Checked, counts: Mapping[str, int]
    ) -> None:
        header = {"regions": regions, "digests": list(digests), "elements": checked.elements, "escape": checked.escape,
                  "undetected": checked.undetected, "counts": dict(counts)}  # fmt: skip
        self._rows.append(Row("regions", number, header))

    def drop(self, batch: Batch) -> None:
        """Regions of an earlier run are computed again, perhaps by other tasks."""
        self._add(self._numbers[batch.regions[0]], [], [], Checked((), 0), {})

    def changes(self) -> Sequence[Row]:
        """The rows since the last commit."""
        self._writing = len(self._rows)
        return self._rows[self._written :]

    def written(self) -> None:
        """They are written."""
        self._written = self._writing


def _batch(header: dict[str, Any], regions: Sequence[Bounds]) -> Batch:
    numbers, digests = header["regions"], header["digests"]
    if len(numbers) != len(digests) or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("regions without digests")
    checked = Checked((), int(header["elements"]), float(header["escape"]), float(header["undetected"]))
    counts = {str(name): int(count) for name, count in header["counts"].items()}
    return Batch(tuple(regions[number] for number in numbers), tuple(map(str, digests)), checked, counts)


def intact(
    loop: Run, plan: ArrayPlan, done: RegionsDone, batches: Sequence[Batch], label: Callable[[Sequence[Bounds]], str]
) -> list[Batch]:
    """The batches of which every region is still in the file as it was; the others have to be computed again."""
    batch_of = {batch.regions: batch for batch in batches}
    good: list[Batch] = []

    def compute(items: Sequence[Bounds]) -> Task:
        return digest_regions, plan, items, loop.workers.device

    def finish(items: Sequence[Bounds], computed: RegionsDigests, checks: Sequence[Any]) -> Iterator[Done]:
        batch = batch_of[tuple(items)]
        if computed.digests == batch.digests:
            good.append(batch)
        else:
            done.drop(batch)
        yield 0, sum(nbytes_of(plan.output.spec, region) for region in items), computed, ()

    total = sum(nbytes_of(plan.output.spec, region) for batch in batches for region in batch.regions)
    if batches:
        loop.complete(Work(list(batch_of), total, label, compute, lambda *_: (), finish))
    return good
