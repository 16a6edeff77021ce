"""Computes a share of finished items again, on another device where there is one, and requires the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pipeline.cluster.worker import device_name, unit_name, worker_address
from pipeline.engine.aggregate_plan import Pass
from pipeline.engine.aggregate_task import ChunkResult, compute_chunk_again
from pipeline.engine.array_journal import digest_regions
from pipeline.engine.array_plan import ArrayPlan
from pipeline.engine.array_task import RegionsResult, compute_regions
from pipeline.engine.run_loop import Extra, Run, Task
from pipeline.errors import VerificationError
from pipeline.storage.chunks import Chunk
from pipeline.timeline import Timeline
from workflows.regions import Bounds


@dataclass(frozen=True)
class Regions:
    """Regions that were computed again: whether their bytes stayed the same, by whom, and the time of each stage."""

    same: bool
    worker: str
    device: str
    unit: str
    timeline: Timeline


def compute_regions_again(plan: ArrayPlan, regions: Sequence[Bounds], device: str) -> Regions:
    """Task: write regions of the output once more, and compare what its file then has with what it had."""
    before = digest_regions(plan, regions, device).digests
    again = compute_regions(replace(plan, run=""), regions, device)  # reads all of it again
    same = digest_regions(plan, regions, device).digests == before
    return Regions(same, worker_address(), device_name(device), unit_name(device), again.timeline)


class Replays:
    """Items that wait to be computed again, and how many have been."""

    def __init__(self, loop: Run) -> None:
        self._share, self._random = loop.settings.replay, Random(loop.seed)
        self._loop, self._waiting = loop, list[Extra]()

    def chunk(self, pass_: Pass, chunk: Chunk, result: ChunkResult) -> None:
        """Perhaps choose a chunk."""
        task, digest = (compute_chunk_again, pass_, chunk), result.digest  # not the partials, which may be large
        self._choose(task, pass_.label([chunk]), chunk.index, result, lambda again: again.digest == digest)

    def regions(
        self, plan: ArrayPlan, regions: Sequence[Bounds], label: str, number: int, result: RegionsResult
    ) -> None:
        """Perhaps choose the regions of a task."""
        task = (compute_regions_again, plan, regions, self._loop.workers.device)
        self._choose(task, label, number, result, lambda again: again.same)

    def extra(self) -> Extra | None:
        """The next of them, if any."""
        return self._waiting.pop() if self._waiting else None

    def _choose(self, task: Task, label: str, number: int, first: Any, agree: Callable[[Any], bool]) -> None:
        if self._random.random() >= self._share:
            return
        worker, device, unit = first.worker, first.device, first.unit

        def finish(again: Any) -> Iterator[tuple[int, str, str, Timeline]]:
            if not agree(again):
                raise VerificationError(
                    f"{label}: worker {worker} ({device}, {unit}) and worker {again.worker} "
                    f"({again.device}, {again.unit}) computed different bits; nothing was written; run with --verify "
                    "full to see which is wrong"
                )
            self._loop.replayed += 1
            self._loop.elsewhere += again.unit != unit
            yield number, again.worker, again.device, again.timeline

        self._waiting.append(Extra(task, label, finish, apart_from=worker))
