"""Progress: lines that stay in place on a terminal, a line every ten seconds in a log, nothing when quiet."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import progress
from pipeline.cli.progress import line, lines, show_progress

GB = 10**9
UNIT = {"name": "GPU 0", "unit": "GPU-1 on h", "device": "NVIDIA X", "chunks": 3, "bytes": GB,
        "bytes_per_second": 5.9e9, "stages": {"verify": 6.1e9, "kernel": 4.1e11, "read+copy": 5.94e9}}  # fmt: skip
STATE: dict[str, Any] = {
    "job": "histogram", "state": "running", "verify": "auto", "seconds": 20.0, "pass": 1, "bytes": 12 * GB,
    "total_bytes": 40 * GB, "bytes_per_second": 11.8e9, "seconds_left": 2.37, "chunks": 3, "checked_bytes": 0,
    "units": [UNIT, UNIT | {"name": "GPU 1"}], "warnings": [], "error": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "histogram: 30 % of 40.0 GB, 11.80 GB/s, 2 s left, GPU 0 5.90 GB/s, GPU 1 5.90 GB/s"),
        ({"units": [UNIT]}, "histogram: 30 % of 40.0 GB, 11.80 GB/s, 2 s left"),
        ({"units": [], "pass": 0}, "histogram: starting, 20 s"),
        ({"units": [], "bytes": 0}, "histogram: 0 % of 40.0 GB, first chunks under way, 20 s"),
        ({"units": [], "total_bytes": None, "seconds_left": None}, "histogram: 12.0 GB, 11.80 GB/s"),
        ({"units": [], "bytes": 40 * GB, "seconds_left": 0.0},
         "histogram: 100 % of 40.0 GB, 11.80 GB/s, checks under way"),
        ({"units": [], "pass": 2, "seconds_left": 4000.0},
         "histogram: pass 2, 30 % of 40.0 GB, 11.80 GB/s, 1:06:40 left"),
        ({"units": [], "total_bytes": 0, "bytes": 1, "seconds_left": 150.0},
         "histogram: 100 % of 0.0 kB, 11.80 GB/s, 2 min left"),
    ],
)  # fmt: skip
def test_line_of_a_log(changes: dict[str, Any], expected: str) -> None:
    assert line(STATE | changes) == expected


def test_nearly_all_is_not_all() -> None:
    assert "99 %" in line(STATE | {"bytes": 40 * GB - 1})


def test_line_for_each_gpu_on_a_terminal() -> None:
    assert lines(STATE, 100) == [
        "histogram  ████░░░░░░░░░░░░  30 % of 40.0 GB, 11.80 GB/s, 2 s left",
        "GPU 0    5.90 GB/s  read+copy 5.94  kernel 410  check 6.1 GB/s, 3 chunks",
        "GPU 1    5.90 GB/s  read+copy 5.94  kernel 410  check 6.1 GB/s, 3 chunks",
    ]


@pytest.mark.parametrize("width", [1, 4, 20, 60, 72, 80, 300])
def test_lines_fit(width: int) -> None:
    """With room for what the terminal shows for Ctrl-C, and in any case for an ordinary one."""
    named = STATE | {"job": "histogram, reduce, digest", "units": [UNIT | {"name": "some-host GPU-01234567"}]}
    assert max(map(len, lines(named, width))) <= max(1, min(width, 79) - 3)


def test_lines_come_while_nothing_happens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    with show_progress(lambda: STATE, quiet=False):
        until = time.monotonic() + 30
        text = ""
        while text.count("\n") < 3 and time.monotonic() < until:
            text += capsys.readouterr().err
            time.sleep(0.01)
    assert text.startswith(f"{line(STATE)}\n{line(STATE)}\n")


@pytest.mark.parametrize("quiet", [True, False])
def test_nothing_of_a_short_run_or_when_quiet(capsys: pytest.CaptureFixture[str], quiet: bool) -> None:
    with show_progress(lambda: STATE, quiet):
        pass
    assert capsys.readouterr() == ("", "")


class Terminal:
    """A command whose stderr is a terminal."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.controller, terminal = pty.openpty()
        self.resize(100)
        environ = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}  # as it was once
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pipeline", *words], cwd=folder, env=environ, stderr=terminal,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self.text = ""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read_until(self, pattern: str) -> None:
        """Read until a pattern appears, or the command ends."""
        seen, until = len(self.text), time.monotonic() + 40
        while not re.search(pattern, self.text[seen:]) and time.monotonic() < until:
            if select.select([self.controller], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.controller, 2**16).decode(errors="replace")
                except OSError:  # nobody has the other end any more
                    return


def test_terminal_is_left_as_it_was(tmp_path: Path) -> None:
    """Lines become shorter with the terminal; Ctrl-C removes them; the cursor is never hidden."""
    with open(tmp_path / "data.bin", "wb") as file:
        file.truncate(2**37)  # of zeros that are nowhere: it takes minutes
    terminal = Terminal(tmp_path, "histogram", "data.bin", "--chunk-size", "4MiB", "--verify", "full")
    try:
        terminal.read_until(r"█.*GB/s")
        assert re.search(r"process \d+ +[\d.]+ GB/s", terminal.text)
        terminal.resize(40)
        terminal.read_until(r"histogram  \d+ %[^\r\n]*…")
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.read_until("(?!)")
    finally:
        terminal.process.kill()
        os.close(terminal.controller)
    assert terminal.process.wait(60) == 130
    assert "\x1b[?25l" not in terminal.text
    # What is left after the last line was erased is the message alone.
    assert re.sub(r"\x1b\[[\d;?]*\w|\r", "", terminal.text.rpartition("\x1b[2K")[2]).strip().startswith("interrupted")
