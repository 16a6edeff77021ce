"""The window of tasks: how many are in flight, the order of their results, and messages of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.cluster.workers import Workers
from pipeline.engine import submit
from pipeline.engine.submit import results
from pipeline.errors import PipelineError, VerificationError

THREADS = 2


class Client:
    """Reports these numbers of workers one after another, the last one forever."""

    def __init__(self, *left: int) -> None:
        self.left = list(left)

    scheduler = property(lambda self: self)

    def sync(self, function: Any, n_workers: int, callback_timeout: float) -> Any:
        return function(n_workers)

    def identity(self, n_workers: int) -> Any:
        number = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return {"workers": {str(index): {} for index in range(number)}}


class Task(Future[str]):
    """The part of a Dask future that the window uses, and of its client."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.client, self.loop = self, SimpleNamespace(asyncio_loop=loop)

    async def gather(self, future: Task, asynchronous: bool) -> str:
        return await asyncio.wrap_future(future)

    @property
    def status(self) -> str:
        return "error" if self.done() and self.exception() else "finished" if self.done() else "pending"


class Tasks:
    """Stand-ins for Dask's futures, two per item, that finish on demand; those of item 0 at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.started: dict[int, tuple[Task, Task]] = {}
        self.order: list[tuple[int, int]] = []  # item, and number of its task

    def submit(self, item: int) -> Iterator[Task]:
        self.started[item] = (Task(self.loop), Task(self.loop))
        if item == 0:
            self.finish(item)
        for number, task in enumerate(self.started[item]):
            self.order.append((item, number))
            yield task

    def finish(self, item: int) -> None:
        first, last = self.started[item]
        first.set_result(f"first of {item}")
        last.set_result(f"last of {item}")

    def fail(self, item: int, error: BaseException) -> None:
        """The first task fails, and so does the one that depends on it."""
        for future in self.started[item]:
            future.set_exception(error)

    def results(self, items: int, *left: int, **more: Any) -> Iterator[tuple[Any, ...]]:
        workers = Workers(Client(*left or (1,)), "cpu", THREADS, THREADS, None, {}, "a cluster", None)
        return results(range(items), self.submit, workers, lambda item: f"job: item {item}", **more)


def texts(item: int) -> tuple[int, str, str]:
    return item, f"first of {item}", f"last of {item}"


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The one of a client, which runs in its own thread."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def tasks(loop: asyncio.AbstractEventLoop) -> Tasks:
    return Tasks(loop)


def test_no_items_are_no_results(tasks: Tasks) -> None:
    assert list(tasks.results(0)) == []
    assert list(tasks.results(1)) == [texts(0)]


def test_first_tasks_start_before_second_ones(tasks: Tasks) -> None:
    next(tasks.results(3))
    assert tasks.order == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


def test_results_come_as_they_finish(tasks: Tasks) -> None:
    results = tasks.results(4)
    assert next(results) == texts(0)
    for item in (3, 1):
        tasks.finish(item)
    assert [next(results), next(results)] == [texts(3), texts(1)]
    tasks.finish(2)
    assert list(results) == [texts(2)]


def test_as_many_are_under_way_as_keep_all_threads_busy(tasks: Tasks) -> None:
    window_size = 4 * THREADS
    results = tasks.results(100)
    next(results)
    assert list(tasks.started) == list(range(window_size))
    for item in range(1, 50):
        tasks.finish(item)
        assert next(results) == texts(item)
        assert len(tasks.started) == window_size + item  # one more for each that finished


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_item_is_finished_with_the_last_of_its_tasks(tasks: Tasks, order: tuple[int, int]) -> None:
    results = tasks.results(3)
    next(results)
    for number in order:
        if number == order[1]:
            tasks.finish(2)
            assert next(results) == texts(2)
        tasks.started[1][number].set_result(f"{('first', 'last')[number]} of 1")
    assert list(results) == [texts(1)]


@pytest.mark.parametrize("number", [0, 1])
def test_failure_of_one_task_does_not_wait_for_the_other(
    tasks: Tasks, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "ANSWER_SECONDS", 0.1)  # so that it ends if it does wait
    results = tasks.results(3, 0)
    next(results)
    tasks.started[1][number].set_exception(PipelineError("planted"))
    with pytest.raises(PipelineError, match=r"^planted$"):
        next(results)


@pytest.mark.parametrize("error", [PipelineError("planted"), VerificationError("planted")])
def test_message_for_the_user_goes_up_as_it_is(tasks: Tasks, error: PipelineError) -> None:
    results = tasks.results(3)
    next(results)
    tasks.fail(1, error)
    with pytest.raises(PipelineError) as caught:
        next(results)
    assert caught.value is error


def test_other_errors_are_told_in_one_line(tasks: Tasks) -> None:
    results = tasks.results(3)
    next(results)
    error = RuntimeError("first line\nsecond line")
    tasks.fail(2, error)
    with pytest.raises(PipelineError, match=r"^job: item 2 failed: RuntimeError: first line \(test_.*\d\)$") as caught:
        next(results)
    assert caught.value.__cause__ is error


def test_as_many_extra_items_at_a_time_as_asked_for(tasks: Tasks) -> None:
    """Until there are none; all that have begun are waited for."""
    extras, asked = iter(range(100, 107)), list[int]()

    def extra(needed: int) -> int | None:
        asked.append(needed)
        return next(extras, None)

    found = tasks.results(2, extra=extra, most=4)
    assert next(found) == texts(0)
    first = [100, 101, 102, 103]
    assert list(tasks.started) == [0, 1, *first] and asked == [2] * 4
    tasks.finish(101)
    assert next(found) == texts(101)
    tasks.finish(1)
    assert next(found) == texts(1)
    assert list(tasks.started) == [0, 1, *first, 104]
    for item in (100, 102, 103, 104, 105, 106):
        tasks.finish(item)
        assert next(found) == texts(item)
    assert list(found) == []
    assert asked == [2] * 4 + [1] + [0] * (len(asked) - 5)


def test_extra_items_that_fail_end_the_run(tasks: Tasks) -> None:
    found = tasks.results(2, extra=lambda needed: None if 9 in tasks.started else 9, most=1)
    next(found)
    tasks.fail(9, ValueError("planted"))
    with pytest.raises(PipelineError, match=r"^job: item 9 failed: ValueError: planted \(test_submit.py, line \d+\)$"):
        next(found)


def test_errors_of_the_caller_are_its_own(tasks: Tasks) -> None:
    results = tasks.results(3)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert list(results) == []


@pytest.mark.parametrize("left", [(0,), (1, 0, 0), (0, 1, 0, 0)])
def test_workers_that_are_gone_are_waited_for_once(
    tasks: Tasks, left: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart takes a while."""
    monkeypatch.setattr(submit, "ANSWER_SECONDS", 0.01)
    results = tasks.results(2, *left)
    next(results)
    text = r"^a cluster: expected a worker to come back within 0.01 s, got none; see the logs of the workers"
    with pytest.raises(PipelineError, match=text):
        next(results)


def test_slow_task_is_waited_for(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "ANSWER_SECONDS", 0.01)
    results = tasks.results(2, 0, 1, 0, 1)
    next(results)
    asked = 0

    def left(self: Workers) -> int:
        nonlocal asked
        asked += 1
        if asked == 7:
            tasks.finish(1)
        return asked % 2

    monkeypatch.setattr(Workers, "left", left)
    assert list(results) == [texts(1)]
    assert asked == 7
