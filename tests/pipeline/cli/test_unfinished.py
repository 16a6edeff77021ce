"""Interrupted commands: the line that continues them, the question on a terminal, and the lists of unfinished runs."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import outputs, unfinished
from pipeline.cli.main import main
from pipeline.engine import journal
from pipeline.engine.journal import Journal
from pipeline.errors import PipelineError
from pipeline.gpu.devices import Devices

Call = Callable[..., tuple[int, str, str]]
SAMPLES = np.random.default_rng(0).integers(0, 1024, 20_000).astype("<i4")
HISTOGRAM = ["histogram", "data.bin", "--verify", "full", "-c", "4000"]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Call]:
    """Runs the command line in a folder that has data.bin, interrupted after so many chunks."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("AFTER_SECONDS", "EVERY_SECONDS", "COMMIT_SHARE"):
        monkeypatch.setattr(journal, name, 0)
    SAMPLES.tofile("data.bin")
    handler, log, left = signal.getsignal(signal.SIGTERM), Journal.log, 0

    def counted(self: Journal, *arguments: Any) -> None:
        nonlocal left
        log(self, *arguments)
        left -= 1
        if not left:
            signal.raise_signal(signal.SIGINT)

    def run(*words: str, after: int = 0) -> tuple[int, str, str]:
        nonlocal left
        left = after
        monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py", *words])
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        return int(caught.value.code or 0), *capsys.readouterr()

    monkeypatch.setattr(Journal, "log", counted)
    yield run
    signal.signal(signal.SIGTERM, handler)


def counts(out: str) -> Any:
    return json.loads(out)["result"]["histogram"]["storage"]["values"][1:-1]


def test_the_line_that_continues(call: Call) -> None:
    status, out, err = call(*HISTOGRAM, "--json", after=12)
    assert (status, out) == (130, "") and err.count("to continue: ") == 1
    line = err.rpartition("to continue: ")[2]
    assert line == f"python -m pipeline {shlex.join(HISTOGRAM)} --json --resume\n"
    status, out, err = call(*shlex.split(line)[3:])
    assert status == 0 and err.startswith("continues an unfinished run (")
    assert counts(out) == np.bincount(SAMPLES, minlength=1024).tolist()
    assert call("runs", "list") == (0, "no unfinished runs\n", "")


def test_the_line_that_continues_after_an_error(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Journal.log

    def failing(self: Journal, *arguments: Any) -> None:
        log(self, *arguments)
        if self.saved:
            raise PipelineError("planted")

    monkeypatch.setattr(Journal, "log", failing)
    status, _, err = call(*HISTOGRAM, "-q")
    line = f"to continue: python -m pipeline {shlex.join(HISTOGRAM)} -q --resume"
    assert (status, err) == (1, f"error: planted\n{line}\n")


@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked(call: Call, answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    call(*HISTOGRAM, "--json", after=12)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(unfinished.click, "confirm", lambda question, default, err: default and answer)
    status, out, err = call(*HISTOGRAM, "--json", "-q")
    assert status == 0 and ("continues" in err) == answer
    assert counts(out) == np.bincount(SAMPLES, minlength=1024).tolist()


def test_array_that_cannot_be_printed_is_finished(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("m.npy", SAMPLES.reshape(200, 100))
    monkeypatch.setattr(outputs, "emit", _closed)
    status, _, err = call("transpose", "m.npy", "-o", "t.npy", "-c", "8000")
    assert status == 1 and err == "error: closed; the verified result is in t.npy\n"
    np.testing.assert_array_equal(np.load("t.npy"), SAMPLES.reshape(200, 100).T)
    assert call("runs", "list") == (0, "no unfinished runs\n", "")


def _closed(*_: str) -> None:
    raise PipelineError("closed")


def test_list_and_clean(call: Call) -> None:
    np.save("m.npy", SAMPLES.reshape(200, 100))
    transpose = ["transpose", "m.npy", "-o", "t.npy", "-c", "8000"]
    call(*HISTOGRAM, after=12)
    call(*transpose, after=12)
    status, out, _ = call("runs", "list")
    assert status == 0 and len(out.splitlines()) == 2
    (array,) = (line for line in out.splitlines() if "transpose of" in line)
    assert ".t.npy." in array and "GB in" in array
    status, out, _ = call("runs", "clean", array.split()[0])
    assert status == 0 and out == f"removed {array}\n"
    assert sorted(path.name for path in Path().iterdir()) == ["data.bin", "m.npy"]
    assert len(call("runs", "list")[1].splitlines()) == 1
    status, _, err = call("runs", "clean", "ffffffffff")
    assert status == 2 and "expected an identifier from `runs list`" in err
    assert call("runs", "clean")[0] == 0 and call("runs", "list")[1] == "no unfinished runs\n"


def test_first_process_knows_how_to_continue(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first commit until the journal is removed: it may have to kill the process that would tell."""
    advice: list[str] = []
    monkeypatch.setattr("pipeline.process.supervisor.advise", advice.append)
    line = f"to continue: python -m pipeline {shlex.join(HISTOGRAM)} --resume"
    assert call(*HISTOGRAM, after=2)[0] == 130
    assert advice == ["", line]
    assert call(*HISTOGRAM, "--resume")[0] == 0
    assert advice[2:] == [line, ""]


def test_line_that_would_be_too_long(call: Call) -> None:
    _, _, said = call(*HISTOGRAM, *["data.bin"] * 500, after=2)
    assert said.splitlines()[-1] == "to continue: the same command with --resume"


@pytest.mark.parametrize(
    "more", [["--device", "gpu"], ["--gpus", "2"], ["--replay", "2"], ["--device-memory-limit", "1"]]
)
@pytest.mark.parametrize("resume", [True, False])
def test_a_request_that_is_refused_late(
    call: Call, more: list[str], resume: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is the only line, and the unfinished run can still be continued."""
    monkeypatch.setattr("pipeline.cluster.placement.find_devices", lambda: Devices((), None, None, "there is none"))
    words = [*HISTOGRAM, "--json", *more, *["--resume"] * resume]
    status, out, err = call(*words)  # there is nothing to be continued
    assert (status, out, err.count("\n"), err[:7]) == (2, "", 1, "error: ")
    assert call(*HISTOGRAM, "--json", after=12)[0] == 130
    left = call("runs", "list")[1].partition("begun")[0]
    status, out, err = call(*words)
    assert (status, out, err.count("\n"), err[:7]) == (2, "", 1, "error: ")
    assert call("runs", "list")[1].partition("begun")[0] == left and "unfinished" in left
    status, out, err = call(*HISTOGRAM, "--json", "--resume")
    assert status == 0 and err.startswith("continues an unfinished run (") and err.count("\n") == 1
    assert counts(out) == np.bincount(SAMPLES, minlength=1024).tolist()


def test_an_array_that_a_memory_limit_refuses_to_continue(call: Call) -> None:
    np.save("m.npy", SAMPLES.reshape(200, 100))
    transpose = ["transpose", "m.npy", "-o", "t.npy", "-c", "8000", "-q"]
    assert call(*transpose, after=4)[0] == 130
    status, out, err = call(*transpose, "--memory-limit", "10", "--resume")
    assert (status, out, err.count("\n")) == (2, "", 1) and "raise the limit" in err
    status, _, err = call(*transpose, "--resume")
    assert status == 0 and err.startswith("continues an unfinished run (")
    np.testing.assert_array_equal(np.load("t.npy"), SAMPLES.reshape(200, 100).T)
