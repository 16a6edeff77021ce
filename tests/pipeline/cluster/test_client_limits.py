"""A client's answers: what Dask loses is asked for again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client

from pipeline.cluster.client import LimitedClient
from pipeline.engine.submit import MOST_LOST, _result
from pipeline.errors import LostAnswer


def test_cancelled_coroutines_are_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's `sync` ends in an UnboundLocalError then: a cancellation is no Exception."""

    def sync(*_: Any, **__: Any) -> Any:
        if False:
            result = 0
        return result

    monkeypatch.setattr(Client, "sync", sync)
    client: Any = LimitedClient.__new__(LimitedClient)
    with pytest.raises(LostAnswer):
        client.sync(None)
    client.__dict__.clear()


def test_errors_of_tasks_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same kind, but raised elsewhere: they are what the user has to see."""

    def task() -> Any:
        if False:
            result = 0
        return result

    monkeypatch.setattr(Client, "sync", lambda *_, **__: task())
    client: Any = LimitedClient.__new__(LimitedClient)
    with pytest.raises(UnboundLocalError):
        client.sync(None)
    client.__dict__.clear()


@pytest.mark.parametrize(("lost", "status"), [(0, "finished"), (2, "finished"), (10**9, "finished"), (2, "cancelled")])
def test_lost_answers_are_asked_for_again(lost: int, status: str) -> None:
    """A few times; not of a future that is cancelled."""
    asked: list[float] = []

    def result(seconds: float) -> str:
        asked.append(seconds)
        if len(asked) <= lost:
            raise LostAnswer
        return "answer"

    future: Any = SimpleNamespace(result=result, status=status)
    workers: Any = SimpleNamespace(watch=lambda waited: None, left=lambda: True)
    if lost > MOST_LOST or status == "cancelled":
        with pytest.raises(LostAnswer):
            _result(future, workers)
        assert len(asked) == (1 if status == "cancelled" else MOST_LOST + 1)
    else:
        assert _result(future, workers) == "answer"
        assert len(asked) == lost + 1
