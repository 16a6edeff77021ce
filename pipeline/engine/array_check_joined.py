"""Checks adjacent regions together once all of them are computed, for jobs whose check reads less that way.

The check of a tile of a product reads whole rows of one factor and whole columns of the other. Checks of 25 single
tiles would read both factors five times as often as one check of all 25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from pipeline.engine.array_check_ahead import PreparedChecks
from pipeline.engine.array_journal import RegionsDone
from pipeline.engine.array_plan import ArrayPlan, nbytes_of
from pipeline.engine.array_task import RegionsCheck, RegionsResult, check_regions
from pipeline.engine.run_loop import Extra
from pipeline.timeline import Timeline
from workflows.array_job import Checked
from workflows.regions import Bounds, Spec, sizes

# Bytes of the output that are checked at once, at most: they are in memory. Each worker has its share of them. Less on
# a CPU, which takes minutes for some of them: a journal keeps them together.
JOINED_BYTES = {"gpu": 2**29, "cpu": 2**26}
# Rows of tiles are joined up to this many bytes: B is measured once for all, and the last check, which nothing else
# runs beside, is short.
ROWS_BYTES = 2**27


@dataclass
class Joined:
    """Regions that are checked together, their union, and which of them are computed."""

    bounds: Bounds
    regions: list[Bounds]
    computed: list[tuple[Sequence[Bounds], RegionsResult, Sequence[str] | None]] = field(default_factory=list)


def join(regions: Sequence[Bounds], spec: Spec, most: int) -> list[Joined]:
    """Join regions that follow one another along one of the last two axes, into ones of so many bytes at most."""
    groups = [Joined(region, [region]) for region in regions]
    # Tiles into rows of tiles, and these into several.
    for limit in (most, min(most, ROWS_BYTES))[: len(spec.shape)]:
        kept: list[Joined] = []
        for group in groups:
            both = _union(kept[-1].bounds, group.bounds) if kept else None
            if both is None or nbytes_of(spec, both) > limit:
                kept.append(group)
            else:
                kept[-1].bounds = both
                kept[-1].regions += group.regions
        groups = kept
    return groups


def _union(first: Bounds, then: Bounds) -> Bounds | None:
    """The region that two make together, if they are neighbours along one of the last two axes."""
    differing = [axis for axis in range(len(first)) if first[axis] != then[axis]]
    if len(differing) != 1 or differing[0] < len(first) - 2:
        return None
    (axis,) = differing
    if first[axis][1] != then[axis][0]:
        return None
    return (*first[:axis], (first[axis][0], then[axis][1]), *first[axis + 1 :])


class JoinedChecks:
    """Which joined regions wait for their check, and what is done with it.

    Parameters
    ----------
    plan
    groups
        From `join`.
    label
        (regions) -> their name, for messages.
    at_once
        Checks under way at a time, each of which uses all cores of its worker.
    note
        Called with the result of each check; raises VerificationError.
    done
        Gets the regions that are checked.
    ahead
        Prepares checks while regions are computed.
    """

    def __init__(
        self, plan: ArrayPlan, groups: Sequence[Joined], label: Callable[[Sequence[Bounds]], str], at_once: int,
        note: Callable[[Checked], None], done: RegionsDone, ahead: PreparedChecks | None = None,
    ) -> None:  # fmt: skip
        self._plan, self._label, self._note, self._done = plan, label, note, done
        self._free, self._ahead = at_once, ahead
        self._group_of = {region: group for group in groups for region in group.regions}
        self._missing = {group.regions[0]: len(group.regions) for group in groups}
        self._waiting: list[Joined] = []

    def add(self, items: Sequence[Bounds], result: RegionsResult, digests: Sequence[str] | None) -> None:
        """Regions of one group are computed."""
        group = self._group_of[items[0]]
        group.computed.append((items, replace(result, timeline=Timeline()), digests))
        self._missing[group.regions[0]] -= len(items)
        if not self._missing[group.regions[0]]:
            del self._missing[group.regions[0]]
            self._waiting.append(group)
        if self._ahead and not self._missing:
            self._ahead.hurry()

    def extra(self) -> Extra | None:
        """The next check; None if none can begin yet."""
        if not (self._waiting and self._free):
            return None
        group, self._free = self._waiting.pop(0), self._free - 1
        workers = ", ".join(sorted({result.worker for _, result, _ in group.computed}))
        result = replace(group.computed[0][1], worker=workers)

        def finish(check: RegionsCheck) -> Iterator[tuple[int, str, str, Timeline]]:
            self._free += 1
            self._note(check.checked)
            for items, own, digests in group.computed:
                if digests is not None:
                    checked = replace(check.checked, elements=sum(prod(sizes(region)) for region in items))
                    self._done.add(items, digests, checked, own.counts)
            yield 0, workers, result.device, check.timeline

        task = check_regions, self._plan, [group.bounds], result, True, self._ahead
        return Extra(task, self._label([group.bounds]), finish)
