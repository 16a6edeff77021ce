"""The run loop itself: passes whose blocks stay on the workers that read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import dask
import pytest
from distributed import Client, LocalCluster, get_worker

import pipeline.engine.run_loop
from pipeline.cluster.placement import Placement
from pipeline.cluster.workers import Workers, known_workers
from pipeline.engine.run_loop import Extra, Run, Work
from pipeline.settings import Settings
from pipeline.timeline import Timeline

BLOCKS: dict[tuple[str, int], list[int]] = {}  # by worker and item; both workers are in this process


class Result(NamedTuple):
    """The result of a task for an item."""

    worker: str
    kept: bool  # whether the worker already had its block
    total: int
    device: str = "cpu"
    timeline: Timeline = Timeline()


def total(items: Sequence[int]) -> Result:
    """Sum the block of an item; read it unless the worker has kept it."""
    worker, item = str(get_worker().address), items[0]
    kept = (worker, item) in BLOCKS
    block = BLOCKS.setdefault((worker, item), list(range(item)))
    return Result(worker, kept, sum(block))


@pytest.fixture
def two_workers() -> Iterator[Workers]:
    BLOCKS.clear()
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield Workers(client, "cpu", 2, 2, None, {}, "two workers", None)


def one_pass(workers: Workers, places: dict[int, str]) -> dict[int, Result]:
    """Sum the blocks of 20 items, each on its preferred worker, if any."""
    results: dict[int, Result] = {}

    def finish(items: Sequence[int], computed: Result, checks: Sequence[Any]) -> Any:
        results[items[0]] = computed
        yield items[0], 1, computed, checks

    run = Run(Settings(), 1)
    run.workers = workers
    batches = [(item,) for item in range(20)]
    run.complete(Work(batches, 20, str, lambda items: (total, items), lambda *_: (), finish,
                      lambda items: places.get(items[0])))  # fmt: skip
    assert {item: result.total for item, result in results.items()} == {item: sum(range(item)) for item in range(20)}
    return results


def test_second_pass_runs_where_the_blocks_are(two_workers: Workers) -> None:
    """Two of three items, which Dask would otherwise distribute evenly."""
    first, second = known_workers(two_workers.client, "")
    places = {item: second if item % 3 else first for item in range(20)}
    assert not any(result.kept for result in one_pass(two_workers, places).values())
    again = one_pass(two_workers, places)
    assert {item: result.worker for item, result in again.items()} == places
    assert all(result.kept for result in again.values())


def test_blocks_of_a_worker_that_is_gone_are_read_again(two_workers: Workers) -> None:
    places = {item: result.worker for item, result in one_pass(two_workers, {}).items()}
    gone = places[0]
    assert 0 < Counter(places.values())[gone] < 20
    two_workers.client.retire_workers([gone])
    again = one_pass(two_workers, places)
    assert {result.worker for result in again.values()} == set(places.values()) - {gone}
    assert {item for item, result in again.items() if not result.kept} == {i for i in places if places[i] == gone}


@pytest.mark.parametrize(
    ("gpus", "threads", "shared"), [(1, 2, 2), (1, 5, 2), (1, 6, 3), (1, 16, 3), (8, 24, 2), (8, 47, 2), (8, 128, 3)]
)
def test_one_more_gets_ready_where_there_are_threads_for_checks(
    gpus: int, threads: int, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task takes its share of a GPU, so that no more of them run at a time."""
    run, taken = Run(Settings(), 2, 0, 1), list[Any]()
    run.workers = Workers(None, "gpu", gpus, threads, None, {"GPU": 1}, "GPUs", None)
    monkeypatch.setattr(Run, "_submit_task", lambda self, name, task, **how: taken.append(how.get("resources")))
    work = Work([(1,)], 1, str, lambda items: (total, items), lambda *_: [(total, (2,))], lambda *_: iter(()))
    assert len(list(run._submit(work, (1,)))) == 2
    assert taken == [{"GPU": 1 / shared}, None] and run.computing == 2 * gpus


@pytest.mark.parametrize("own", [True, False])
def test_what_a_program_has_frozen_stays_frozen(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only in a process of our own objects are left out of collections meanwhile."""
    monkeypatch.setattr("pipeline.engine.run_loop.seal", lambda: None)
    run = Run(Settings(Placement(own_process=own)), 2)
    run._began, run._compiled = 0.0, 0.0
    calls: list[str] = []
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(f"gc.{name}", lambda name=name: calls.append(name))
    with pytest.raises(RuntimeError, match="planted"), run.timed():
        assert calls == ["freeze"] * own
        raise RuntimeError("planted")
    assert calls == ["freeze", "unfreeze"] * own


def test_checks_beside_computing_are_no_computing(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six seconds two threads have checked for four each: computing took two, and checks end after four."""
    clock, begun = [0.0], list[bool]()

    def results(*arguments: Any) -> Iterator[Any]:
        extra = arguments[4]
        clock[0] = 6.0
        yield (0,), Result("here", False, 0)
        begun.append(extra(0) is not None)
        clock[0] = 3.9
        begun.append(extra(0) is not None)

    def finish(items: Sequence[int], computed: Result, checks: Sequence[Any]) -> Any:
        timeline = Timeline()
        timeline.add("verify", 0.0, 8.0)
        yield 0, 0, computed, [SimpleNamespace(timeline=timeline)]

    monkeypatch.setattr(pipeline.engine.run_loop, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(pipeline.engine.run_loop, "results", results)
    run = Run(Settings(), 1)
    run.workers = replace(workers, threads=2)
    check = Extra((), "a check", lambda result: iter(()))
    run.complete(
        Work((), 0, str, lambda items: (), lambda *_: (), finish, extra=lambda in_time: check if in_time else None)
    )
    assert begun == [False, True]
