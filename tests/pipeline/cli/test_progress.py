"""Progress: a line every ten seconds in a log, a bar on a terminal, nothing when quiet; never on stdout."""

from __future__ import annotations

import io
import sys

import pytest

from pipeline.cli import progress
from pipeline.cli.progress import show_progress

GB = 10**9


class Clock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def test_a_line_every_ten_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("histogram", quiet=False) as update:
        for second in range(1, 26):
            clock.now = 1000.0 + second
            update(second * GB, 40 * GB)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "histogram: 25 % of 40.0 GB, 1.00 GB/s, 30 s left",
        "histogram: 50 % of 40.0 GB, 1.00 GB/s, 20 s left",
    ]


def test_no_line_of_a_short_run(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("histogram", quiet=False) as update:
        clock.now += 9.9
        update(GB, GB)
    assert capsys.readouterr() == ("", "")


def test_second_pass_has_its_own_rate(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """With --range auto the data are read twice, and the count starts again."""
    with show_progress("histogram", quiet=False) as update:
        for seconds, done in ((15, 5), (15, 10), (5, 5), (5, 10)):
            clock.now += seconds
            update(done * GB, 10 * GB)
    assert capsys.readouterr().err.splitlines() == [
        "histogram: 50 % of 10.0 GB, 0.33 GB/s, 15 s left",
        "histogram: 100 % of 10.0 GB, 0.33 GB/s, 0 s left",
        "histogram: 100 % of 10.0 GB, 1.00 GB/s, 0 s left",
    ]


def test_passes_of_one_chunk(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("extent", quiet=False) as update:
        for seconds in (20, 10):
            clock.now += seconds
            update(10 * GB, 10 * GB)
    assert [line.split(", ")[1] for line in capsys.readouterr().err.splitlines()] == ["0.50 GB/s", "1.00 GB/s"]


def test_quiet(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("histogram", quiet=True) as update:
        clock.now += 100
        update(GB, 2 * GB)
    assert capsys.readouterr() == ("", "")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: bool) -> None:
    terminal = _Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with show_progress("histogram", quiet) as update:
        update(GB, 4 * GB)
    assert ("histogram" in terminal.getvalue()) is not quiet
    assert ("1.0/4.0 GB" in terminal.getvalue()) is not quiet
    assert capsys.readouterr().out == ""
