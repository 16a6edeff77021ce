"""Tiles are worked on by all threads of a pool, which neither wait for themselves nor outlive an error."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from kernels.common import row_tiles as module
from kernels.common.row_tiles import ahead, finish, limited, on_tiles, tiles

LIMIT = 20  # seconds to wait for what takes milliseconds


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of two threads, however many cores there are."""
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(module, "pool", cache(module.pool.__wrapped__))


@pytest.mark.parametrize(("rows", "height"), [(0, 4), (1, 4), (4, 4), (5, 4), (9, 4)])
def test_slices_cover_all_rows_once(rows: int, height: int) -> None:
    assert [row for part in tiles(rows, height) for row in range(rows)[part]] == list(range(rows))


def test_results_are_in_order_without_warnings() -> None:
    def inverse(part: slice) -> tuple[int, float]:
        return part.start, float(np.float64(1) / np.float64(0))  # warnings are errors here

    assert on_tiles(inverse, tiles(10, 3)) == [(start, np.inf) for start in (0, 3, 6, 9)]
    assert on_tiles(inverse, []) == []


@pytest.mark.usefixtures("two_threads")
def test_the_pool_does_not_wait_for_itself() -> None:
    """Every thread of the pool has tiles worked on, and something read ahead, at the same time."""
    together = threading.Barrier(2)

    def outer(part: slice) -> list[int]:
        together.wait(LIMIT)
        nested = on_tiles(lambda inner: part.start + inner.start, tiles(4, 2))
        return [ahead(lambda: 10 * part.start).result(LIMIT), *nested]

    caller = ThreadPoolExecutor(1)
    results = caller.submit(on_tiles, outer, tiles(2, 1)).result(LIMIT)
    assert results == [[0, 0, 2], [10, 1, 3]]


@pytest.mark.usefixtures("two_threads")
def test_nothing_runs_any_more_once_an_error_is_raised() -> None:
    """What is in progress is finished, what has not begun never begins."""
    began, go, ended = threading.Event(), threading.Event(), []

    def work(part: slice) -> None:
        if part.start == 0:
            assert began.wait(LIMIT)
            threading.Timer(0.2, go.set).start()
            raise ZeroDivisionError
        began.set()
        assert go.wait(LIMIT)
        ended.append(part.start)

    with pytest.raises(ZeroDivisionError):
        on_tiles(work, tiles(50, 1))
    assert go.is_set() and 1 <= len(ended) <= 2
    before = list(ended)
    finish([module.pool().submit(lambda: None) for _ in range(4)])
    assert ended == before


def test_finish_waits_and_cancels() -> None:
    release, pool = threading.Event(), ThreadPoolExecutor(1)
    running: Future[bool] = pool.submit(release.wait, LIMIT)
    waiting = pool.submit(lambda: None)
    threading.Timer(0.1, release.set).start()
    finish([running, waiting])
    assert running.done() and waiting.cancelled()


def test_an_error_is_raised_when_its_result_is_asked_for() -> None:
    """Also if the call is made at once."""

    def outer(part: slice) -> str:
        future = ahead(lambda: [][1])
        with pytest.raises(IndexError):
            future.result(LIMIT)
        return "raised"

    assert on_tiles(outer, tiles(2, 1)) == ["raised", "raised"]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("most", [1, 2])
def test_no_more_parts_are_under_way_than_a_limit_allows(most: int) -> None:
    """Of this thread only; others have the pool to themselves."""
    begun, most_begun, asked = 0, 0, 0
    counting, waiting = threading.Lock(), threading.Barrier(2)

    def count(part: int) -> int:
        nonlocal begun, most_begun
        with counting:
            begun += 1
            most_begun = max(most_begun, begun)
        if most == 2:
            waiting.wait(LIMIT)
        with counting:
            begun -= 1
        return part

    def limit() -> int:
        nonlocal asked
        asked += 1
        return most

    with limited(limit):
        assert on_tiles(count, range(10)) == list(range(10))
    assert most_begun == most and asked == 10
    on_tiles(lambda _: waiting.wait(LIMIT), range(2))  # at the same time again


@pytest.mark.usefixtures("two_threads")
def test_what_a_limit_raises_ends_the_work() -> None:
    done: list[int] = []

    def limit() -> int:
        if len(done) > 2:
            raise InterruptedError
        return 1

    with pytest.raises(InterruptedError), limited(limit):
        on_tiles(done.append, range(1000))
    assert len(done) < 10
