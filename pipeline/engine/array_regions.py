"""The regions of a job that writes an array: each is computed, written and checked, once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from pipeline.engine.array_check_ahead import PreparedChecks
from pipeline.engine.array_check_joined import JOINED_BYTES, Joined, JoinedChecks, join
from pipeline.engine.array_journal import Batch, RegionsDigests, RegionsDone, digest_regions, intact
from pipeline.engine.array_plan import ArrayPlan, checked_part, nbytes_of, pieces_of
from pipeline.engine.array_task import RegionsCheck, RegionsResult, check_regions, compute_regions
from pipeline.engine.journal import Journal
from pipeline.engine.replay import Replays
from pipeline.engine.run_loop import Done, Extra, Run, Task, Work
from pipeline.engine.submit import batches
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.threads import THREADS
from pipeline.timeline import Timeline
from workflows.array_job import Checked
from workflows.regions import Bounds, common, sizes

# A task takes several regions, up to this many bytes of the output: Dask holds the GIL for milliseconds per task.
TASK_BYTES = 2**29
# Fewest tasks per thread, so that all end at about the same time; few for a GPU, because it idles between them.
TASKS = {"cpu": 8, "gpu": 3}

# Bytes of a piece, inputs and output together, that is checked if there is time: a tenth of a second. Larger if there
# would be more than so many.
EXTRA_BYTES, EXTRAS = 2**24, 2**16


def checked_together(plan: ArrayPlan, settings: Settings) -> bool:
    """Whether checks of adjacent regions are joined: one that cannot be split uses all cores, and then reads less."""
    whole = plan.workflow.whole and plan.workflow.pieces is None
    return whole and plan.verify != "off" and settings.memory_limit is None


def joined_regions(plan: ArrayPlan, regions: Sequence[Bounds], device: str, computing: int) -> list[Joined]:
    """The regions that are checked at once, where so many tasks compute at a time."""
    checking = computing if device == "gpu" else -(-computing // THREADS["cpu"])  # workers, or more
    return join(regions, plan.output.spec, min(JOINED_BYTES[device], plan.output.spec.nbytes // checking))


def run_regions(
    loop: Run, plan: ArrayPlan, regions: list[Bounds], journal: Journal, done: RegionsDone, earlier: Sequence[Batch],
    ahead: PreparedChecks | None = None,
) -> tuple[Checked, Mapping[str, int]]:  # fmt: skip
    """Compute and check every region that no earlier run has finished: what was checked; elements by path.

    `ahead`, for a worker in this process, prepares the checks of joined regions.
    """
    name, spec, device = plan.workflow.name, plan.output.spec, loop.workers.device
    checked, counts, numbers = Checked((), 0), Counter[str](), count()
    waiting: list[tuple[Bounds, Bounds, RegionsResult]] = []  # piece; part of its region that was checked; by whom
    piece_bytes = max(EXTRA_BYTES, spec.nbytes // EXTRAS)
    random, replays = Random(plan.seed), Replays(loop)
    # A full check takes longer than a GPU computes: splitting it keeps all threads busy to the end.
    split = device == "gpu" and (plan.verify == "full" or plan.workflow.whole)
    together = checked_together(plan, loop.settings)

    def compute(items: Sequence[Bounds]) -> Task:
        return compute_regions, plan, items, device

    def check(items: Sequence[Bounds], computed: Any) -> list[Task]:
        parts = [] if plan.verify == "off" or together else [[region] for region in items] if split else [items]
        digest = [(digest_regions, plan, items, device, computed)] * journal.wanted(spec.nbytes)
        return [*((check_regions, plan, part, computed) for part in parts), *digest]

    def note(more: Checked) -> None:
        nonlocal checked
        if more.details:
            raise VerificationError(f"{name}: a number is wrong in {more.details[0]}; nothing was kept")
        checked += more

    def finish(items: Sequence[Bounds], computed: RegionsResult, results: Sequence[Any]) -> Iterator[Done]:
        checks: list[RegionsCheck] = [result for result in results if isinstance(result, RegionsCheck)]
        for check in checks:
            note(check.checked)
        wait(items, replace(computed, timeline=Timeline()))
        counts.update(computed.counts)
        digests = next((result.digests for result in results if isinstance(result, RegionsDigests)), None)
        if together:
            joined.add(items, computed, digests)
        elif digests is not None:
            done.add(items, digests, sum((check.checked for check in checks), Checked((), 0)), computed.counts)
        journal.log(name, label(items), computed)
        replays.regions(plan, items, label(items), number := next(numbers), computed)
        yield number, nbytes(items), computed, checks

    def wait(items: Sequence[Bounds], computed: RegionsResult) -> None:
        for region in items if plan.verify == "auto" else ():
            if (part := checked_part(plan, region)) != region:
                waiting.extend((piece, part, computed) for piece in pieces_of(plan, region, piece_bytes))

    def extra(in_time: bool) -> Extra | None:
        """Compute a task again, or check a random piece of the regions of which a part has been checked."""
        if (one := replays.extra() or joined.extra()) or not (waiting and in_time):
            return one
        place = random.randrange(len(waiting))
        waiting[place], waiting[-1] = waiting[-1], waiting[place]
        piece, part, computed = waiting.pop()

        def finish(check: RegionsCheck) -> Iterator[tuple[int, str, str, Timeline]]:
            nonlocal checked
            checked = replace(checked, elements=checked.elements - common(piece, part))
            note(check.checked)
            yield next(numbers), computed.worker, computed.device, check.timeline

        return Extra((check_regions, plan, [piece], computed, True), label([piece]), finish)

    def nbytes(items: Sequence[Bounds]) -> int:
        return sum(nbytes_of(spec, region) for region in items)

    def label(items: Sequence[Bounds]) -> str:
        return f"{name}: region {list(items[0])}" + (f" to {list(items[-1])}" if len(items) > 1 else "")

    left = dict.fromkeys(regions)
    for batch in intact(loop, plan, done, earlier, label):
        checked += batch.checked
        counts.update(batch.counts)
        wait(batch.regions, RegionsResult("an earlier run", device, "", {}, Timeline()))
        for region in batch.regions:
            del left[region]
    computing = loop.workers.computing
    grouped = together or bool(plan.workflow.shares)
    groups = joined_regions(plan, list(left), device, computing) if grouped else join(list(left), spec, 0)
    if ahead:
        ahead.begin([group.bounds for group in groups])
    joined = JoinedChecks(plan, groups, label, 2 * computing, note, done, ahead)
    most = TASK_BYTES // max(1, nbytes(regions[:1]))
    parts = [group.regions for group in groups] if grouped else [list(left)]
    tasks = batches(parts, most, loop.computing, TASKS[device])
    loop.complete(Work(tasks, nbytes(list(left)), label, compute, check, finish, extra=extra))
    if (covered := sum(math.prod(sizes(region)) for region in regions)) != spec.size:
        raise VerificationError(f"{name}: expected regions of {spec.size} elements in all, got {covered}; report this")
    return checked, counts
