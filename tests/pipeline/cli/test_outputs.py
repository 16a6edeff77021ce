"""What a command leaves: known obstacles are told before anything is computed, and no verified result is lost."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import jobs
from pipeline.cli.main import main
from pipeline.report import result_file
from pipeline.storage.atomic_file import reserved

ROOT = Path(__file__).parents[3]
Call = Callable[..., tuple[int, str, str]]
SAMPLES = np.random.default_rng(0).integers(0, 1024, 5000).astype("<i4")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Call]:
    """Runs the command line in a folder that has data.bin: (exit status, stdout, stderr)."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    SAMPLES.tofile("data.bin")
    handler = signal.getsignal(signal.SIGTERM)

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
        return int(caught.value.code or 0), *capsys.readouterr()

    yield run
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be computed."""
    monkeypatch.setattr(jobs, "run_all", lambda *_: pytest.fail("computed"))
    monkeypatch.setattr("pipeline.engine.array.run_array", lambda *_: pytest.fail("computed"))


def kept(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "state" / "baru" / "results"
    return sorted(folder.iterdir()) if folder.exists() else []


SAME = [
    # (words, what the line names)
    ("histogram data.bin --edges e.csv -o e.csv", "--edges e.csv and -o e.csv"),
    ("histogram data.bin --edges e.csv -o ./e.csv", "--edges e.csv and -o ./e.csv"),
    ("histogram data.bin --edges e.csv -o hard.csv", "--edges e.csv and -o hard.csv"),
    ("histogram data.bin --edges e.csv --trace hard.json", "--edges e.csv and --trace hard.json"),
    ("histogram data.bin -o a.json --also 'reduce -o ./a.json'", "-o a.json and --also reduce: -o ./a.json"),
    (
        "histogram data.bin -o a.json --also 'reduce -o ../here/a.json'",
        "-o a.json and --also reduce: -o ../here/a.json",
    ),
    ("histogram data.bin -o a.json --also 'reduce -o folder/a.json'", "-o a.json and --also reduce: -o folder/a.json"),
    ("histogram data.bin -o e.csv --also 'reduce -o hard.csv'", "-o e.csv and --also reduce: -o hard.csv"),
    ("histogram data.bin --also 'histogram --edges e.csv' -o e.csv", "--also histogram: --edges e.csv and -o e.csv"),
    ("histogram data.bin -o a.json --trace a.json", "-o a.json and --trace a.json"),
    ("histogram data.bin --trace data.json", "data.bin and --trace data.json"),
    ("histogram data.bin data.json -o data.json", "the output is one of the inputs"),
    ("transpose a.npy -o b.png --trace b.png", "-o b.png and --trace b.png"),
    ("transpose a.npy -o b.npy --trace a.json", "a.npy and --trace a.json"),
    ("transpose a.npy -o a.npy", "a.npy and -o a.npy"),
    ("stencil a.npy --weights w.npy -o w.npy", "--weights w.npy and -o w.npy"),
]


@pytest.mark.parametrize(("words", "named"), SAME)
def test_no_two_files_are_one(call: Call, unstarted: None, words: str, named: str) -> None:
    Path("e.csv").write_text("0\n10\n1000\n")
    os.link("e.csv", "hard.csv")
    os.link("e.csv", "hard.json")
    os.link("data.bin", "data.json")
    Path("folder").symlink_to(".")
    np.save("a.npy", np.ones((5, 7)))
    if "a.json" in words and "a.npy" in words:
        os.link("a.npy", "a.json")
    np.save("w.npy", np.ones(7))
    before = {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    status, out, err = call(*shlex.split(words))
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert named in err and ("expected different files, got one and the same" in err or "one of the inputs" in err)
    assert {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before


def test_reading_one_file_twice_is_no_mistake(call: Call) -> None:
    np.save("a.npy", np.arange(36.0).reshape(6, 6))
    assert call("matmul", "a.npy", "a.npy", "-o", "b.npy")[0] == 0
    Path("e.csv").write_text("0\n10\n1000\n")
    assert call("histogram", "data.bin", "--edges", "e.csv", "--also", "histogram --edges e.csv")[0] == 0


@pytest.mark.parametrize(
    "name", ["fifo.json", "dangling.json", "folder.json", "x" * 300 + ".json", "no/a.json", "a.json/"]
)
@pytest.mark.parametrize("flag", ["-o", "--trace"])
def test_output_that_cannot_be_is_told_at_once(call: Call, unstarted: None, name: str, flag: str) -> None:
    os.mkfifo("fifo.json")
    Path("dangling.json").symlink_to("nowhere")
    Path("folder.json").mkdir()
    status, out, err = call("histogram", "data.bin", flag, name)
    assert (status, out) == (2, "") and err.count("\n") == 1 and "expected" in err


@pytest.mark.parametrize("words", ["histogram data.bin -o out.json", "histogram data.bin --trace out.json",
                                   "histogram data.bin --also 'reduce -o out.json'"])  # fmt: skip
def test_output_of_another_run(call: Call, unstarted: None, words: str) -> None:
    with reserved("out.json"):
        status, out, err = call(*shlex.split(words))
    assert (status, out) == (1, "") and "out.json: another run is writing it, process " in err
    assert os.listdir() == ["data.bin"]


def test_array_of_another_run(call: Call) -> None:
    np.save("a.npy", np.ones((5, 7)))
    with reserved("out.npy"):
        status, out, err = call("transpose", "a.npy", "-o", "out.npy")
    assert (status, out) == (1, "") and "out.npy: another run is writing it, process " in err


def test_private_result_stays_private(call: Call) -> None:
    Path("out.json").write_bytes(b"old")
    Path("out.json").chmod(0o600)
    np.save("out.npy", np.ones(1))
    Path("out.npy").chmod(0o640)
    assert call("histogram", "data.bin", "-o", "out.json")[0] == 0
    np.save("a.npy", np.ones((5, 7)))
    assert call("transpose", "a.npy", "-o", "out.npy")[0] == 0
    assert [stat.S_IMODE(os.stat(name).st_mode) for name in ("out.json", "out.npy")] == [0o600, 0o640]


# --- what fails at the end --------------------------------------------------------------------------------------------


def full(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make flushing temporary files of these names fail."""
    real = os.fsync

    def fsync(file: int) -> None:
        if any(f".{name}." in os.readlink(f"/proc/self/fd/{file}") for name in names):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)


def test_result_that_cannot_be_written_is_printed_and_kept(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other results are written."""
    Path("a.csv").write_bytes(b"old")
    full(monkeypatch, "a.csv")
    status, out, err = call("histogram", "data.bin", "-o", "a.csv", "--also", "reduce --op sum -o b.json", "--json")
    (place,) = kept(tmp_path)
    assert (status, err) == (1, "error: a.csv: expected to write the file, got No space left on device; choose another "
                             f"place; the verified result is kept as {place}\n")  # fmt: skip
    histogram, reduce = map(json.loads, out.splitlines())
    assert (
        sum(histogram["result"]["histogram"]["storage"]["values"]) == 5000 and reduce["result"]["sum"] == SAMPLES.sum()
    )
    assert json.loads(Path("b.json").read_text())["sum"] == SAMPLES.sum()
    assert Path("a.csv").read_bytes() == b"old"
    assert place.read_text().splitlines()[0] == "lower,upper,count" and place.suffix == ".csv"
    assert sorted(os.listdir()) == ["a.csv", "b.json", "data.bin"]


def test_everything_that_fails_is_told(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full(monkeypatch, "a.json", "b.json", "t.json")
    status, out, err = call("histogram", "data.bin", "-o", "a.json", "--also", "reduce -o b.json", "--trace", "t.json")
    assert status == 1 and out.startswith("histogram of data.bin") and "\n\nreduce of data.bin" in out
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert line.count("No space left on device") == 3 and line.count("the verified result is kept as") == 2
    assert len(kept(tmp_path)) == 2 and os.listdir() == ["data.bin"]


def test_result_that_cannot_be_rendered_costs_nothing_else(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("planted")

    monkeypatch.setitem(result_file.WRITERS, ".csv", fail)
    status, out, err = call("histogram", "data.bin", "-o", "a.csv", "--also", "reduce --op sum -o b.json")
    (place,) = kept(tmp_path)
    line = f"error: writing a.csv failed: MemoryError: planted; the verified result is kept as {place}\n"
    assert (status, re.sub(r" \(test_outputs.py, line \d+\)", "", err)) == (1, line) and out.count("verdict") == 2
    assert place.suffix == ".json" and json.loads(place.read_text())["result"]["histogram"]
    assert json.loads(Path("b.json").read_text())["sum"] == SAMPLES.sum() and not Path("a.csv").exists()


def test_trace_that_cannot_be_written_costs_no_result(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(monkeypatch, "t.json")
    np.save("a.npy", np.arange(35).reshape(5, 7))
    for words in (("histogram", "data.bin", "-o", "o.json"), ("transpose", "a.npy", "-o", "o.npy")):
        status, out, err = call(*words, "--trace", "t.json")
        assert status == 1 and "verdict" in out
        assert "error: t.json: expected to write the file, got No space left on device; choose another place\n" in err
    assert json.loads(Path("o.json").read_text())["histogram"]
    np.testing.assert_array_equal(np.load("o.npy"), np.arange(35).reshape(5, 7).T)
    assert kept(tmp_path) == []


def test_array_that_cannot_get_its_name_is_kept(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("a.npy", np.arange(35).reshape(5, 7))
    real = os.rename

    def refuse(one: str, other: str, **folders: Any) -> None:
        if other == "o.npy":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        real(one, other, **folders)

    monkeypatch.setattr(os, "rename", refuse)
    status, out, err = call("transpose", "a.npy", "-o", "o.npy")
    (place,) = Path.cwd().glob("o.npy.*.kept")
    assert (status, out) == (1, "")
    assert err == ("error: o.npy: expected to write the file, got Read-only file system; what was written is kept "
                   f"as {place}\n")  # fmt: skip
    np.testing.assert_array_equal(np.load(place), np.arange(35).reshape(5, 7).T)


@contextmanager
def unwritable(kind: str) -> Iterator[int | None]:
    """A standard output: a full disk, a pipe without a reader, or none."""
    if kind == "closed":
        yield None
        return
    reader, writer = os.pipe() if kind == "pipe" else (None, os.open("/dev/full", os.O_WRONLY))
    if reader is not None:
        os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("kind", ["full", "pipe", "closed"])
@pytest.mark.parametrize("words", [("--json",), (), ("-o", "out.json")])
def test_standard_output_that_cannot_be_written(call: Call, tmp_path: Path, kind: str, words: tuple[str, ...]) -> None:
    """In a real process. A result that is in no file is kept."""
    command = [sys.executable, "-m", "pipeline", "histogram", "data.bin", *words]
    if kind == "closed":
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with unwritable(kind) as writer:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    (line,) = [
        line for line in done.stderr.splitlines() if not line.startswith("histogram: starting")
    ]  # a busy machine
    reason = {"full": "No space left on device", "pipe": "Broken pipe", "closed": "a closed file"}[kind]
    assert done.returncode == 1 and line.startswith(f"error: expected to write to standard output, got {reason}")
    if words == ("-o", "out.json"):
        assert json.loads(Path("out.json").read_text())["histogram"] and kept(tmp_path) == []
        assert line.endswith("; the verified result is in out.json")
    else:
        (place,) = kept(tmp_path)
        assert line.endswith(f"; the verified result is kept as {place}")
        assert sum(json.loads(place.read_text())["result"]["histogram"]["storage"]["values"]) == 5000


# --- names that are not plain -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\nb.bin", "\x1b[31m.bin", "\udcff.bin", "\u2028.bin", "é.bin", "-x.bin"])
def test_strange_names_of_inputs(call: Call, name: str) -> None:
    """One line for an error, no control characters on the terminal, no traceback for what has no encoding."""
    SAMPLES.tofile(name)
    status, out, err = call("histogram", "--", f"./{name}")
    assert (status, err) == (0, "") and "verdict" in out
    out.encode()
    status, _, err = call("histogram", "--", f"./missing{name}")
    assert status == 2 and err.count("\n") == 1
    for text in (out, err):
        assert not any(ord(one) < 32 or one == "\u2028" for one in text.replace("\n", ""))
    assert call("histogram", "--json", "--", f"./{name}")[0] == 0


@pytest.mark.parametrize("limit", ["-5", "0", "0.1"])
@pytest.mark.parametrize("flag", ["--memory-limit", "--device-memory-limit", "--chunk-size"])
def test_limits_below_a_byte(call: Call, unstarted: None, flag: str, limit: str) -> None:
    np.save("a.npy", np.ones((100, 100)))
    status, out, err = call("transpose", "a.npy", "-o", "b.npy", flag, limit)
    assert (status, out) == (2, "") and f"expected a size of 1 byte or more, got '{limit}'" in err
