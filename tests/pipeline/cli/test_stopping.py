"""The end of a command from outside: time limits, signals, a full disk where its output goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import inputs
from pipeline.cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder, with a file of samples."""
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    monkeypatch.chdir(tmp_path)


def test_time_limit_counts_from_the_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Files may take long to open; without a supervisor, too."""

    def slow(*_: Any, **__: Any) -> None:
        time.sleep(20)

    monkeypatch.setattr(inputs, "open_source", slow)
    with pytest.raises(SystemExit) as caught:
        main(["histogram", "samples.bin", "--time-limit", "0.2s"])
    assert (caught.value.code, *capsys.readouterr()) == (
        75, "", "stopped by the time limit of 0.2 s: nothing was written\n")  # fmt: skip


ENV = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def command(*words: str, **how: Any) -> subprocess.Popen[str]:
    words = (sys.executable, "-m", "pipeline", *words)
    return subprocess.Popen(words, text=True, stderr=subprocess.PIPE, env=ENV, **how)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["histogram", "--help"]])
def test_help_to_a_full_disk(words: list[str]) -> None:
    with open("/dev/full", "w") as full, command(*words, stdout=full) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.startswith("error: expected to write to standard output, got No space left on device; keep its reader")
    assert said.count("\n") == 1


def test_array_on_a_full_standard_output(tmp_path: Path) -> None:
    """It is in its file, and the message says so."""
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    words = "transpose", "a.npy", "-o", "t.npy", "-q"
    with open("/dev/full", "w") as full, command(*words, stdout=full, cwd=tmp_path) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and said.endswith("; the verified result is in t.npy\n")
    assert np.load(tmp_path / "t.npy").tolist() == [[0, 3], [1, 4], [2, 5]]


def test_working_folder_that_was_removed(tmp_path: Path) -> None:
    """The result all the same."""
    path = str(tmp_path / "samples.bin")
    Path(path).write_bytes(bytes(4000))
    program = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    (tmp_path / "gone").mkdir()
    words = [sys.executable, "-c", program, "-m", "pipeline", "histogram", path, "--json"]
    done = subprocess.run(words, cwd=tmp_path / "gone", env=ENV, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["result"]["samples"] == 1000


BEFORE = "signals.install = lambda install=signals.install: (install(), signal.raise_signal(15))"
AFTER = "atexit.register(signal.raise_signal, 15)"
LOST = """signals.install = lambda install=signals.install: (install(), [Late()].clear(), time.sleep(20))
class Late:
    def __del__(self):
        signal.raise_signal(15)
"""
OTHER = """signals.install = lambda install=signals.install: (install(), fails())
def fails():
    try:
        signal.raise_signal(15)
    finally:
        raise SyntaxError("cannot load what it needs")
"""
START = "import atexit, signal, time; from pipeline.process import signals; from pipeline.__main__ import main"


FIRST = "from pipeline import packages; packages.foreign = lambda: signal.raise_signal(2)"


@pytest.mark.parametrize(
    ("place", "expected"), [(FIRST, (-2, "")), (BEFORE, (143, "stopped by SIGTERM\n")), (AFTER, (0, ""))]
)
def test_signal_in_the_first_and_last_milliseconds(place: str, expected: tuple[int, str]) -> None:
    """Ended without a word, or with a traceback."""
    words = [sys.executable, "-c", f"{START}; {place}; main(['--version'])"]
    done = subprocess.run(words, env=ENV, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == expected


@pytest.mark.parametrize("place", [LOST, OTHER])
def test_signal_in_a_finalizer_or_where_it_becomes_another_error(place: str) -> None:
    """Lost, with a traceback; or status 1 and an error of what it interrupted, as of Python's compiler."""
    words = [sys.executable, "-c", f"{START}\n{place}\nmain(['--version'])"]
    done = subprocess.run(words, env=ENV, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (143, "stopped by SIGTERM\n")


def test_dask_pipeline_stops_as_the_command_does() -> None:
    """`dask` finds the command by its installed entry point; this is what that names."""
    start = "from pipeline.dask_command import dask_command; import time; from pipeline.cli import inputs"
    body = "inputs.open_source = lambda *a, **k: time.sleep(20)"
    words = ["-c", f"{start}; {body}; dask_command()", "histogram", "samples.bin", "--time-limit", "0.2s"]
    done = subprocess.run([sys.executable, *words], env=ENV, capture_output=True, text=True, timeout=60)
    expected = (75, "", "stopped by the time limit of 0.2 s: nothing was written\n")
    assert (done.returncode, done.stdout, done.stderr) == expected
