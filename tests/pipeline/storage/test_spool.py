"""Standard input in a temporary file: read twice, in any order; removed at the end, however that comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

from tests.cases.format_files import CASES

DATA = np.random.default_rng(3).integers(-9000, 9000, 5_000_000).astype("<i2")
WAIT_SECONDS = 60


def npy(array: Any) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def started(folder: Path, *words: str, limit: str = "") -> subprocess.Popen[bytes]:
    """A command that waits for its standard input, with a folder of temporary files of its own."""
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "XDG_STATE_HOME": str(folder / "state")}
    code = f"import resource; {limit}; from pipeline.__main__ import main; import sys; sys.argv[0] = 'baru'; main()"
    command = [sys.executable, *(("-c", code) if limit else ("-m", "pipeline")), *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment)  # fmt: skip


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[None]:
    """Nothing is left in the folder of temporary files; a supervisor removes the rest moments after the command."""
    yield
    until = monotonic() + WAIT_SECONDS
    while (left := list((tmp_path / "tmp").iterdir())) and monotonic() < until:
        sleep(0.05)
    assert left == [] and not list((tmp_path / "state").rglob("*.sqlite*"))


@pytest.mark.usefixtures("gone")
def test_two_passes(tmp_path: Path) -> None:
    command = started(tmp_path, "histogram", "-", "--dtype", "int16", "--range", "auto", "--bins", "100", "--spool",
                      "--json", "--verify", "full")  # fmt: skip
    out, err = command.communicate(DATA.tobytes())
    assert command.returncode == 0, err
    report = json.loads(out)
    low, high = report["job"]["options"]["range"]
    assert (low, high) == (DATA.min(), DATA.max())
    values = report["result"]["histogram"]["storage"]["values"]
    np.testing.assert_array_equal(
        values[1:-1] if len(values) > 100 else values, np.histogram(DATA, 100, (low, high))[0]
    )


@pytest.mark.usefixtures("gone")
def test_array_job_and_member(tmp_path: Path) -> None:
    command = started(tmp_path, "transpose", "-", "--spool", "-o", str(tmp_path / "t.npy"))
    _, err = command.communicate(npy(DATA.reshape(5000, 1000)))
    assert command.returncode == 0, err
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), DATA.reshape(5000, 1000).T)
    written = CASES["npz deflated"].written(tmp_path)
    command = started(tmp_path, "reduce", "--spool", "--op", "sum", "--json", "--", "-::second")
    out, err = command.communicate((tmp_path / "a.npz").read_bytes())
    assert command.returncode == 0, err
    assert json.loads(out)["result"]["sum"] == written.array.sum()
    assert json.loads(out)["input"]["files"] == ["standard input::second"]
    out, err = started(tmp_path, "reduce", "-", "--spool").communicate((tmp_path / "a.npz").read_bytes())
    assert out == b"" and b"name one of them like '-- -::first'" in err


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize(
    ("words", "array"),
    [(["histogram"], DATA), (["reduce", "--part", "real"], DATA.view("<i2").astype("c8")[:1000]),
     (["transpose", "-o", "t.npy"], DATA.reshape(5000, 1000)),
     (["transpose", "-o", "t.npy", "--part", "abs"], DATA[:1000].astype("c8").reshape(40, 25))],
)  # fmt: skip
def test_panel_calls_it_standard_input(tmp_path: Path, words: list[str], array: Any) -> None:
    words = [str(tmp_path / word) if word == "t.npy" else word for word in words]
    out, err = started(tmp_path, words[0], "-", *words[1:], "--spool").communicate(npy(array))
    assert b"standard input (" in out, (out, err)
    assert b"standard-input" not in out + err


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_while_it_is_written(tmp_path: Path, number: signal.Signals) -> None:
    command = started(tmp_path, "histogram", "-", "--dtype", "int16", "--range", "auto", "--spool")
    assert command.stdin is not None
    command.stdin.write(DATA.tobytes())
    command.stdin.flush()
    until = monotonic() + WAIT_SECONDS
    while not any(path.stat().st_size for path in (tmp_path / "tmp").glob("*/standard-input")):
        assert monotonic() < until and command.poll() is None
        sleep(0.01)
    command.send_signal(number)
    out, err = command.communicate()
    if number != signal.SIGKILL:
        assert command.returncode == 128 + number and err.endswith(b": nothing was written\n"), err
    assert out == b"" and b"Traceback" not in err


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize(
    ("words", "content", "status", "expected"),
    [
        (["histogram", "-"], b"", 2, "standard input: expected samples, got 0 bytes; did its writer fail?"),
        (["histogram", "-", "-"], b"1234", 2, "-: expected standard input once, got it twice"),
        (["histogram", "-"], b"12345", 2, "standard input: expected a multiple of 4 bytes for int32, got 5"),
        (["histogram", "-", "--resume"], b"1234", 2, "--spool: expected no --resume, since"),
        (["histogram", "-", "--stall-timeout", "0.2s"], None, 1, "standard input: expected more samples or the end"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, words: list[str], content: bytes | None, status: int, expected: str
) -> None:
    command = started(tmp_path, *words, "--spool")
    if content is None:
        assert command.wait(WAIT_SECONDS) == status
    _, err = command.communicate(content)
    assert command.returncode == status
    (line,) = err.decode().splitlines()
    assert expected in line


@pytest.mark.usefixtures("gone")
def test_full_disk(tmp_path: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))"
    command = started(tmp_path, "histogram", "-", "--dtype", "int16", "--spool", limit=limit)
    _, err = command.communicate(DATA.tobytes())
    (line,) = err.decode().splitlines()
    assert command.returncode == 1
    assert "standard input: expected to write it to a temporary file, got 'File too large' after " in line
    assert line.endswith("name another folder with TMPDIR")


@pytest.mark.usefixtures("gone")
def test_hints_name_what_works(tmp_path: Path) -> None:
    """Where a second pass is refused, and where the report speaks of one."""
    words = ["histogram", "-", "--dtype", "int16"]
    command = started(tmp_path, *words, "--range", "auto")
    _, err = command.communicate(DATA.tobytes())
    assert command.returncode == 2 and b"or --spool, which writes it to a temporary file" in err
    command = started(tmp_path, *words)
    out, err = command.communicate(DATA.tobytes())
    assert command.returncode == 0, err
    assert b"--range auto --spool includes all that are finite" in out
