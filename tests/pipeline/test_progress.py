"""What a run tells of itself: counts and rates by GPU, passes, checks, how it ended; names of ranges for Nsight."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from pipeline.progress import RunProgress
from pipeline.timeline import Timeline, stage_range

GB = 10**9
WORKERS = SimpleNamespace(names={"GPU-aaaa": "GPU 0", "GPU-bbbb": "GPU 1"})


class Result(NamedTuple):
    worker: str
    device: str
    unit: str
    timeline: Timeline


def timed(**stages: tuple[float, int]) -> Timeline:
    timeline = Timeline()
    for stage, (seconds, nbytes) in stages.items():
        timeline.add(stage, 0.0, seconds, nbytes)
    return timeline


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rates_of_two_gpus() -> None:
    clock = Clock()
    progress = RunProgress("auto", clock)
    with progress.running(WORKERS):
        clock.now += 5  # start-up does not count
        progress.begin(8 * GB, {"read": 4, "kernel": 2})
        assert progress.snapshot()["seconds_left"] is None
        clock.now += 2
        work = {"read": (1.0, GB), "kernel": (0.5, GB)}
        for unit, number in (("GPU-aaaa on host", 3), ("GPU-bbbb on host", 1)):
            for _ in range(number):
                progress.finished(GB, Result(unit, "NVIDIA X", unit, timed(**work)), [timed(verify=(1.0, GB // 4))])
        progress.checked("GPU-bbbb on host", timed(verify=(1.0, GB)))
        progress.checked("unknown", timed(verify=(1.0, GB)))
        state = progress.snapshot()
    assert (state["bytes"], state["bytes_per_second"], state["seconds_left"]) == (4 * GB, 2 * GB, 2.0)
    assert (state["chunks"], state["checked_bytes"], state["state"]) == (4, 2 * GB, "running")
    one, other = state["units"]
    assert (one["name"], one["chunks"], one["bytes_per_second"]) == ("GPU 0", 3, 1.5 * GB)
    assert (other["name"], other["chunks"], other["bytes_per_second"]) == ("GPU 1", 1, 0.5 * GB)
    # Two of four reading lanes are this GPU's, and one of two that compute.
    assert one["stages"] == {"read": 2 * GB, "kernel": 2 * GB, "verify": GB / 4}
    assert other["stages"]["verify"] == 1.25 * GB / 2


def test_second_pass_begins_at_nothing() -> None:
    clock = Clock()
    progress = RunProgress("full", clock)
    with progress.running(WORKERS):
        for seconds in (4, 1):
            progress.begin(GB, {})
            clock.now += seconds
            progress.finished(GB, Result("a", "cpu", "process 1 on h", timed(read=(1.0, GB))), [])
            state = progress.snapshot()
            assert (state["bytes"], state["chunks"], state["bytes_per_second"]) == (GB, 1, GB / seconds)
    assert state["pass"] == 2


def test_end_stops_the_clock() -> None:
    clock = Clock()
    progress = RunProgress("off", clock)
    with progress.running(WORKERS):
        progress.begin(GB, {})
        clock.now += 2
        progress.finished(GB, Result("a", "cpu", "process 1 on h", timed()), [])
    clock.now += 100
    state = progress.snapshot()
    assert (state["state"], state["seconds"], state["bytes_per_second"]) == ("finished", 2.0, GB / 2)


def test_failure_is_told() -> None:
    progress = RunProgress()
    with pytest.raises(ValueError, match="wrong bin"), progress.running(WORKERS):
        raise ValueError("wrong bin\nsecond line")
    assert (progress.snapshot()["state"], progress.snapshot()["error"]) == ("failed", "wrong bin")


def test_names_of_several_hosts_and_unknown_gpus() -> None:
    progress = RunProgress()
    with progress.running(SimpleNamespace(names={})):
        progress.begin(None, {})
        for unit in ("GPU-0123456789abcdef on left", "GPU-0123456789abcdef on right"):
            progress.finished(1, Result(unit, "x", unit, timed()), [])
    names = [unit["name"] for unit in progress.snapshot()["units"]]
    assert names == ["left GPU-01234567", "right GPU-01234567"]


def test_warnings_are_bounded() -> None:
    progress = RunProgress()
    for number in range(1000):
        progress.warn(f"done again: {number}")
    assert len(progress.snapshot()["warnings"]) == 100
    assert progress.snapshot()["warnings"][-1] == "done again: 999"


@pytest.mark.parametrize("with_ranges", [True, False])
def test_ranges_have_the_names_of_stages(monkeypatch: pytest.MonkeyPatch, with_ranges: bool) -> None:
    calls: list[Any] = []
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    if with_ranges:
        cuda.nvtx = SimpleNamespace(RangePush=calls.append, RangePop=lambda: calls.append("end"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    timeline = Timeline()
    with timeline.measure("read", 5), stage_range("kernel"):
        pass
    with pytest.raises(KeyError), timeline.measure("verify"):
        raise KeyError
    assert calls == (["read", "kernel", "end", "end", "verify", "end"] if with_ranges else [])
    assert timeline.nbytes["read"] == 5


def test_no_ranges_and_no_import_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    with stage_range("read"):
        assert "cupy" not in sys.modules
