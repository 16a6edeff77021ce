"""How many tasks hold memory at a time where it is limited."""

from __future__ import annotations

import math

import pytest

from pipeline.engine.seats import COPIES, ENOUGH, LANES, seats, within_limits
from pipeline.settings import Settings


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_where_memory_is_short_few_tasks_have_enough(device: str) -> None:
    """Of any number of threads, and of the tasks that share a GPU; all of it is used."""
    for threads in (1, 2, 16):
        for limit, number in ((1, 1), (ENOUGH, 1), (2 * ENOUGH - 1, 1), (2 * ENOUGH, 2), (3 * ENOUGH, 3), (2**50, 99)):
            for kind, most in (("memory_limit", threads), ("device_memory_limit", LANES)):
                given = Settings(**{kind: limit})
                expected = 0 if kind == "device_memory_limit" and device == "cpu" else min(number, most)
                assert getattr(seats(threads, device, given), "host" if most == threads else "device") == expected
                within = within_limits(threads, device, given)
                assert within * COPIES * expected == limit if expected else within == math.inf
