"""Submits the tasks of a run a window at a time, so that the scheduler's memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from pipeline.cluster.workers import ANSWER_SECONDS, Workers
from pipeline.errors import PipelineError, failure

Item = TypeVar("Item")


@dataclass
class _Started(Generic[Item]):
    """An item, its tasks, how many of these are unfinished, and whether it is an extra one."""

    item: Item
    futures: list[Any]
    pending: int
    extra: bool


def batches(items: Sequence[Item], most: int, computing: int, tasks: int) -> list[Sequence[Item]]:
    """Group items into tasks, in order: Dask spends as long on a task of one item as on a task of several.

    Parameters
    ----------
    items
    most
        Items per task, at most.
    computing
        Number of tasks that compute at a time.
    tasks
        Fewest tasks for each of these if tasks have several items, so that all end at about the same time.
    """
    number = max(1, min(most, len(items) // (tasks * computing)))
    return [items[start : start + number] for start in range(0, len(items), number)]


def results(
    items: Iterable[Item], submit: Callable[[Item], Iterator[Any]], workers: Workers, name_of: Callable[[Item], str],
    extra: Callable[[int], Item | None] = lambda needed: None, most: int = 0,
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    """Every item with the results of its tasks, in order of completion.

    Parameters
    ----------
    items
    submit
        Submits the tasks of an item one by one and yields their Dask futures. Where several items start, the first
        tasks of all go before the second ones: Dask gives each task to the least busy worker, and if first and second
        tasks alternated, every other one of an even number of workers would get all first tasks.
    workers
    name_of
        (item) -> name for messages.
    extra
        (number of items under way) -> another item to do beside them, or None if there is none now. What has been
        started is waited for.
    most
        Extra items under way at a time.

    Raises
    ------
    PipelineError
        If a task fails, or all workers are gone.
    """
    under_way: dict[Any, _Started[Item]] = {}
    finished: SimpleQueue[Any] = SimpleQueue()
    waiting = iter(items)

    needed = extras = 0  # items under way

    def enter(item: Item, futures: list[Any], extra: bool = False) -> None:
        started = _Started(item, futures, len(futures), extra)
        for future in futures:
            under_way[future] = started
            future.add_done_callback(finished.put)

    def start(number: int) -> None:
        nonlocal needed, extras
        chosen = list(islice(waiting, number))
        rounds = zip_longest(*map(submit, chosen))
        for item, tasks in zip(chosen, zip(*rounds, strict=True), strict=True):
            enter(item, [future for future in tasks if future is not None])
        needed += len(chosen)
        while extras < most and (more := extra(needed)) is not None:
            enter(more, list(submit(more)), extra=True)
            extras += 1

    start(4 * workers.threads)
    while under_way:
        future = _next(finished, workers)
        started = under_way.pop(future)
        started.pending -= 1
        failed = future.status == "error"
        if started.pending and not failed:
            continue
        try:
            if failed:
                future.result()
            yield (started.item, *(future.result() for future in started.futures))
        except (PipelineError, GeneratorExit):
            raise
        except Exception as error:
            raise failure(name_of(started.item), error) from error
        needed, extras = needed - (not started.extra), extras - started.extra
        start(not started.extra)


def _next(finished: SimpleQueue[Any], workers: Workers) -> Any:
    """The next future to finish. Dask would wait forever for lost workers, whose restart takes seconds."""
    gone = 0
    while True:
        try:
            return finished.get(timeout=ANSWER_SECONDS)
        except Empty:
            gone = 0 if workers.left() else gone + 1
        if gone > 1:
            raise PipelineError(f"{workers.description}: expected a worker to come back within {ANSWER_SECONDS} s, "
                                "got none; see the logs of the workers for what ended them")  # fmt: skip
