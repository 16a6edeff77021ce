"""Dask's logs do not keep what finished tasks were given."""

from __future__ import annotations

import gc
from time import monotonic, sleep
from typing import Any
from weakref import WeakSet

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
