"""How many tasks hold memory at a time where it is limited."""

from __future__ import annotations

import math

import pytest

from pipeline.engine.task_memory import COPIES, ENOUGH, LANES, MOST_ON_CPU, seats, streamed, within_limits
from pipeline.settings import Settings
from workflows.matmul import AMPLE


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_where_memory_is_short_few_tasks_have_enough(device: str) -> None:
    """Of any number of threads, and of the tasks that share a GPU; all of it is used."""
    for threads in (1, 2, 16):
        for limit, number in ((1, 1), (ENOUGH, 1), (2 * ENOUGH - 1, 1), (2 * ENOUGH, 2), (3 * ENOUGH, 3), (2**50, 99)):
            for kind, most in (("memory_limit", threads), ("device_memory_limit", LANES)):
                given = Settings(**{kind: limit})
                expected = 0 if kind == "device_memory_limit" and device == "cpu" else min(number, most)
                assert getattr(seats(threads, device, given), "host" if most == threads else "device") == expected
                share = limit / (COPIES * expected) if expected else math.inf
                assert within_limits(threads, device, given) == share


def test_a_limited_task_on_a_cpu_counts_what_a_cpu_takes() -> None:
    assert MOST_ON_CPU < AMPLE
    for most in (1.0, 2.0**27, 2.0**40):
        assert streamed(most, "cpu") == min(most, MOST_ON_CPU) and streamed(most, "gpu") == most
    assert streamed(math.inf, "cpu") == math.inf
