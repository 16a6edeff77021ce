"""Submits the tasks of a run a window at a time, so that the scheduler's memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import thread, wait
from dataclasses import dataclass
from itertools import islice, zip_longest
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Generic, TypeVar

from pipeline.cluster.workers import ANSWER_SECONDS, Workers, asked
from pipeline.errors import PipelineError, failure

Item = TypeVar("Item")

TICK_SECONDS = 0.25  # between two looks at the workers while no result comes


@dataclass
class _Started(Generic[Item]):
    """An item, its tasks, how many of these are unfinished, and whether it is an extra one."""

    item: Item
    futures: list[Any]
    pending: int
    extra: bool


def batches(
    groups: Sequence[Sequence[Item]], most: int, computing: int, tasks: int
) -> list[Sequence[Item]]:  # fmt: skip
    """Items of tasks, in order: Dask spends as long on a task of one item as on a task of several.

    Parameters
    ----------
    groups
        Of items, of which no task has those of two.
    most
        Items per task, at most.
    computing
        Number of tasks that compute at a time.
    tasks
        Fewest tasks for each of these if tasks have several items, so that all end at about the same time.
    """
    number = max(1, min(most, sum(map(len, groups)) // (tasks * computing)))
    return [items[start : start + number] for items in groups for start in range(0, len(items), number)]


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
        If a task fails, all workers are gone or hang, or the scheduler does not answer.
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
                _result(future, workers)
            yield (started.item, *(_result(future, workers) for future in started.futures))
        except (PipelineError, GeneratorExit):
            raise
        except Exception as error:
            raise (
                _not_imported(error) or _scheduler_lost(error, workers) or failure(name_of(started.item), error)
            ) from error
        needed, extras = needed - (not started.extra), extras - started.extra
        start(not started.extra)


def _next(finished: SimpleQueue[Any], workers: Workers) -> Any:
    """The next future to finish."""
    workers.watch(0)
    waiting = _Waiting(workers)
    while True:
        try:
            return finished.get(timeout=TICK_SECONDS)
        except Empty:
            waiting.check()


def _result(future: Any, workers: Workers) -> Any:
    """The result of a future that has finished. If its worker is gone since, Dask computes it again.

    A worker that hangs keeps it, until the watch ends that worker.
    """
    waiting, answer = _Waiting(workers), asked(future)
    while not wait([answer], TICK_SECONDS).done:
        waiting.check()
    return answer.result()


def _not_imported(error: BaseException) -> PipelineError | None:
    """What to do if a process of the cluster cannot import a job's module; None if that is not why."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    missing = next((one for one in causes if isinstance(one, ModuleNotFoundError)), None)
    if missing is None:
        return None
    return PipelineError(
        f"expected a scheduler and workers that can import {missing.name!r}, got one that cannot; start them where it "
        "lies (PYTHONPATH), or send it: client.upload_file('FILE.py')"
    )


def _scheduler_lost(error: Exception, workers: Workers) -> PipelineError | None:
    """The error of a scheduler that has ended, or was told to start over; None if that is not why."""
    from distributed.comm import CommClosedError

    reason = getattr(error, "reason", None)
    if reason == "scheduler-restart":
        return PipelineError(f"{workers.description}: expected a cluster that nobody restarts during a run, got a "
                             "restart (Client.restart), which drops all tasks; run again")  # fmt: skip
    if not isinstance(error, CommClosedError) and reason != "scheduler-connection-lost":
        return None
    return PipelineError(f"{workers.description}: expected a scheduler that stays, got no connection to it; see its "
                         "log for what ended it")  # fmt: skip


class _Waiting:
    """Limits a wait for Dask, which would wait forever for lost workers, whose restart takes seconds."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._began = self._asked = monotonic()
        self._gone = 0

    def check(self) -> None:
        """Raise PipelineError if there is nobody left to wait for."""
        if thread._shutdown:  # Dask's threads take no more tasks
            raise PipelineError("expected a program that outlives its runs, got one that exits; wait for the threads "
                                "that run jobs")  # fmt: skip
        now = monotonic()
        self._workers.watch(now - self._began)
        if now - self._asked < ANSWER_SECONDS:
            return
        self._gone = 0 if self._workers.left() else self._gone + 1
        self._asked = monotonic()
        if self._gone > 1:
            raise PipelineError(f"{self._workers.description}: expected a worker to come back within {ANSWER_SECONDS} "
                                "s, got none; see the logs of the workers for what ended them")  # fmt: skip
