"""Results that Dask is asked for with a limit: those who stop waiting cancel nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import LocalCluster

import pipeline.engine.submit
from pipeline.cluster.client import LimitedClient
from pipeline.engine.submit import _result

TICK = 0.005


@pytest.fixture(scope="module")
def client() -> Iterator[LimitedClient]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        LimitedClient(cluster) as connected,
    ):
        yield connected


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pipeline.engine.submit, "TICK_SECONDS", TICK)
    return SimpleNamespace(watch=lambda waited: None, left=lambda: True, description="here")


def raises(error: type[BaseException]) -> None:
    raise error("of the task")


def test_late_answers_are_asked_for_once(client: LimitedClient, workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    workers.watch = looks.append
    asked, ask = [], client.scheduler.gather

    async def late(*args: Any, **keywords: Any) -> Any:
        asked.append(1)
        time.sleep(20 * TICK)  # the loop is busy
        return await ask(*args, **keywords)

    monkeypatch.setattr(client.scheduler, "gather", late, raising=False)
    assert _result(client.submit(abs, -5), workers) == 5
    assert len(asked) == 1
    assert len(looks) > 1


def test_busy_loops_lose_no_answer(client: LimitedClient, workers: Any) -> None:
    """A limit that ends just before Dask's request begins, if it cancels it, loses all later answers too."""
    loop, busy = client.loop.asyncio_loop, True
    seeded = random.Random(0)

    def step() -> None:
        if seeded.random() < 0.1:
            time.sleep(1.5 * TICK)
        if busy:
            loop.call_soon(step)

    loop.call_soon_threadsafe(step)
    try:
        futures = [client.submit(abs, -number) for number in range(1, 60)]
        assert [_result(future, workers) for future in futures] == [*range(1, 60)]
    finally:
        busy = False


@pytest.mark.parametrize("error", [TimeoutError, UnboundLocalError, ValueError])
def test_errors_of_tasks_are_raised(client: LimitedClient, workers: Any, error: type[Exception]) -> None:
    """Also those which say that something took too long: they are the task's."""
    with pytest.raises(error, match="of the task"):
        _result(client.submit(raises, error), workers)


def test_waiting_ends_where_nobody_is_left(client: LimitedClient, workers: Any) -> None:
    def watch(waited: float) -> None:
        if waited > 2 * TICK:
            raise PermissionError("nobody is left")

    workers.watch = watch
    future = client.submit(time.sleep, 1)
    with pytest.raises(PermissionError):
        _result(future, workers)
    assert future.result() is None  # nothing was cancelled
