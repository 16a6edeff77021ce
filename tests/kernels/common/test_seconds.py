"""Seconds that threads spend on something, once where they overlap."""

from __future__ import annotations

import pytest

from kernels.common import seconds
from kernels.common.seconds import Seconds


def test_what_overlaps_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 3.0, 4.0, 10.0, 10.5])  # two bodies from 0 to 3 and from 1 to 4, then one
    monkeypatch.setattr(seconds, "perf_counter", lambda: next(times))
    spent = Seconds()
    first, second = spent.counted(), spent.counted()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert spent.total == 4.0
    with pytest.raises(KeyError), spent.counted():
        raise KeyError
    assert spent.total == 4.5


def test_what_takes_little_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.5, 1.0, 1.75])
    monkeypatch.setattr(seconds, "perf_counter", lambda: next(times))
    spent = Seconds(least=0.5)
    for _ in range(2):
        with spent.counted():
            pass
    assert spent.total == 0.75
