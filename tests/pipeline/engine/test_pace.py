"""How much is checked beside reads: as much as takes no longer than reading alone."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import pipeline.engine.pace
from pipeline.engine.pace import KEPT, UNCHECKED_BYTES, Check, Pace


@pytest.mark.parametrize(("checked", "share"), [(0.5e-9, 1.0), (1.5e-9, 1.0), (4e-9, 0.5)])
def test_the_pace(checked: float, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes twice as long as one without checks at most, and half a second in any case. Seconds per byte."""
    clock = [0.0]
    monkeypatch.setattr(pipeline.engine.pace, "perf_counter", lambda: clock[0])
    pace, part, unchecked, given, later = Pace(), 2**26, 1e-9, 0, 0
    number = 4000
    for _ in range(number):
        check = pace.check(part)
        later += part * (check is Check.LATER)
        if check is Check.BESIDE:
            given += part
            clock[0] += checked * part
        else:
            clock[0] += unchecked * part
    assert clock[0] <= 2 * unchecked * number * part + 0.5 + checked * part
    left_out = number * part - given
    assert sum(UNCHECKED_BYTES) <= later <= sum(UNCHECKED_BYTES) + 3 * part
    if share == 1.0:
        assert left_out == later
    else:
        assert clock[0] >= 2 * unchecked * number * part * 0.98


def test_one_pace_for_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where runs take turns in a worker; those that are over are forgotten."""
    monkeypatch.setattr(pipeline.engine.pace, "_paces", OrderedDict())
    first = Pace.of(("a", "histogram"))
    assert Pace.of(("a", "histogram")) is first is not Pace.of(("a", "reduce"))
    for number in range(KEPT):
        Pace.of((number, "histogram"))
        assert Pace.of(("a", "histogram")) is first
    for number in range(KEPT):
        Pace.of((number, "reduce"))
    assert Pace.of(("a", "histogram")) is not first
