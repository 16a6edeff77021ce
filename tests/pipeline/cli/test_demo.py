"""The command `demo`: an error is planted and caught, and nothing is left behind, also if it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.cli import demo
from pipeline.process import signals
from tests.pipeline.cli.test_main import (
    Run,
    run,  # noqa: F401
)
from workflows.histogram import HISTOGRAM


def test_the_error_is_caught_and_all_is_removed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(demo, "SAMPLES", 2**16)
    status, out, err = run("demo")
    assert (status, err) == (0, "")
    assert "100 % of 65,536 samples checked: equal to the reference" in out
    caught = next(line for line in out.splitlines() if line.startswith("   caught: "))
    assert "bin 1022 [1022, 1023): expected 0, got 1; bin 1023 [1023, 1024]: expected 1, got 0" in caught
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_is_not_caught_fails(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    """The demonstration itself can fail: here nothing is planted."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(demo, "SAMPLES", 2**16)
    monkeypatch.setattr(demo, "_wrong", HISTOGRAM.compute)
    status, out, err = run("demo")
    assert (status, err) == (1, "error: demo: expected the planted error to be caught, got a verified result; report "
                                "this\n")  # fmt: skip
    assert "removed" not in out and list(tmp_path.iterdir()) == []


def test_wrong_counts_are_not_shown_as_right(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    """Counts are compared with NumPy's, whatever the run says."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(demo, "SAMPLES", 2**16)
    monkeypatch.setattr(demo, "_make", lambda path, make=demo._make: make(path)[::-1] // 2)
    status, _, err = run("demo")
    assert (status, err) == (1, "error: demo: expected the counts of numpy.histogram, got others; report this\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", ["1.", "3."])
def test_a_signal_removes_all(tmp_path: Path, number: signal.Signals, after: str) -> None:
    words = [sys.executable, "-m", "pipeline", "demo"]
    process = subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=1,
                               env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"})  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(after):
            process.send_signal(number)
            break
    _, err = process.communicate(timeout=60)
    deadline = time.monotonic() + 10
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []
    if process.returncode:  # else the demonstration was over by then
        assert process.returncode == 128 + number
        assert "what the demo had made is removed" in err


def test_a_signal_after_a_verified_run_stops_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with signals.handled():
        signals.seal()
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.in_a_hurry()
        with pytest.raises(signals.Stopped) as caught:
            signals.unseal()
        assert caught.value.status == 143 and not signals.in_a_hurry()
