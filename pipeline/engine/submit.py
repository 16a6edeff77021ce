"""Tasks of a run, a window of them at a time: the scheduler's memory stays flat, however many there are."""

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
    """An item, its tasks, and how many of them are not done."""

    item: Item
    futures: tuple[Any, ...]
    left: int = 0


def batches(items: Sequence[Item], most: int, computing: int, tasks: int) -> list[Sequence[Item]]:
    """The items of each task, in order: Dask takes as long for a task of several as for one.

    Parameters
    ----------
    items
    most
        Items of a task, at most.
    computing
        Tasks that compute at a time.
    tasks
        That each of these gets at least where a task has several items, so that all end at about the same time.
    """
    number = max(1, min(most, len(items) // (tasks * computing)))
    return [items[start : start + number] for start in range(0, len(items), number)]


def results(
    items: Iterable[Item],
    submit: Callable[[Item], Iterator[Any]],
    workers: Workers,
    name_of: Callable[[Item], str],
) -> Iterator[tuple[Any, ...]]:
    """Every item with the results of its tasks, in the order in which items are finished.

    Parameters
    ----------
    items
    submit
        Starts the tasks of an item one by one: its Dask futures. Where several items start, the first tasks of all go
        before the second ones: Dask gives each task to the worker with the least to do, and with first and second ones
        in turn to an even number of workers every other worker would get all of the first.
    workers
    name_of
        What to call an item in a message.

    Raises
    ------
    PipelineError
        If a task fails, or all workers are gone.
    """
    under_way: dict[Any, _Started[Item]] = {}
    finished: SimpleQueue[Any] = SimpleQueue()

    waiting = iter(items)

    def start(number: int) -> None:
        chosen = list(islice(waiting, number))
        tasks = zip_longest(*map(submit, chosen))
        for item, futures in zip(chosen, zip(*tasks, strict=True), strict=True):
            started = _Started(item, tuple(future for future in futures if future is not None))
            started.left = len(started.futures)
            for future in started.futures:
                under_way[future] = started
                future.add_done_callback(finished.put)

    start(4 * workers.threads)
    while under_way:
        future = _next(finished, workers)
        started = under_way.pop(future)
        started.left -= 1
        failed = future.status == "error"
        if started.left and not failed:
            continue
        item = started.item
        try:
            if failed:
                future.result()
            yield (item, *(future.result() for future in started.futures))
        except (PipelineError, GeneratorExit):
            raise
        except Exception as error:
            raise failure(name_of(item), error) from error
        start(1)


def _next(finished: SimpleQueue[Any], workers: Workers) -> Any:
    """The next future to finish. Dask would wait for ever for workers that are gone; their own return takes seconds."""
    gone = 0
    while True:
        try:
            return finished.get(timeout=ANSWER_SECONDS)
        except Empty:
            gone = 0 if workers.left() else gone + 1
        if gone > 1:
            raise PipelineError(f"{workers.description}: expected a worker to come back within {ANSWER_SECONDS} s, "
                                "got none; see the logs of the workers for what ended them")  # fmt: skip
