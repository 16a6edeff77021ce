"""Dask's logs do not keep what finished tasks were given, and its loop prints no limit that passed while it stopped."""

from __future__ import annotations

import gc
from time import monotonic, sleep
from typing import Any
from weakref import WeakSet

import pytest
from tornado.util import TimeoutError as PassedLimit

from pipeline.cluster.placement import Placement, open_workers

TASKS = 150


class Given:
    """An argument of a task."""

    def __new__(cls) -> Any:
        given = super().__new__(cls)
        ALIVE.add(given)
        return given


ALIVE: WeakSet[Given] = WeakSet()


def test_arguments_of_finished_tasks_are_freed() -> None:
    with open_workers(Placement(device="cpu"), 0) as workers:
        for number in range(TASKS):
            assert workers.client.submit(isinstance, Given(), Given, key=f"task {number}").result()
        until = monotonic() + 30
        while len(ALIVE) > TASKS // 2 and monotonic() < until:
            gc.collect()
            sleep(0.05)
        assert len(ALIVE) <= TASKS // 2


@pytest.mark.parametrize(("error", "told"), [(PassedLimit("Timeout"), False), (ValueError("another"), True)])
def test_a_limit_that_passes_while_the_loop_stops_is_not_told(
    error: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Other errors that nobody has asked for are."""
    with open_workers(Placement(device="cpu"), 0) as workers:
        future = workers.client.loop.asyncio_loop.create_future()
    future.set_exception(error)
    del future
    gc.collect()
    # Not what tests before have left: their futures may be collected here, too.
    assert told == any(record.exc_info and record.exc_info[1] is error for record in caplog.records)
