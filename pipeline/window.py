"""Tasks of a run, a window of them at a time: the scheduler's memory stays flat, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from pipeline.cluster import ANSWER_SECONDS, Workers
from pipeline.errors import PipelineError

Item = TypeVar("Item")


@dataclass
class _Started(Generic[Item]):
    """An item, its tasks, and how many of them are not done."""

    item: Item
    futures: tuple[Any, ...]
    left: int


def results(
    items: Iterable[Item],
    submit: Callable[[Item], tuple[Any, ...]],
    workers: Workers,
    name_of: Callable[[Item], str],
) -> Iterator[tuple[Any, ...]]:
    """Every item with the results of its tasks, in the order in which items are finished.

    Parameters
    ----------
    items
    submit
        Starts the tasks of an item: its Dask futures.
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

    def start(item: Item) -> None:
        futures = submit(item)
        started = _Started(item, futures, len(futures))
        for future in futures:
            under_way[future] = started
            future.add_done_callback(finished.put)

    waiting = iter(items)
    for item in islice(waiting, 4 * workers.threads):
        start(item)
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
            reason = str(error).partition("\n")[0]
            raise PipelineError(f"{name_of(item)} failed: {type(error).__name__}: {reason}") from error
        for following in islice(waiting, 1):
            start(following)


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
