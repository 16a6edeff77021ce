"""What a newcomer meets first: the command alone, wrong words, configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cli.command_list import JOBS, LISTED
from pipeline.cli.configuration import SECTION, keys
from pipeline.cli.main import cli
from tests.pipeline.cli.test_main import (
    ECG,
    NO_DASK_CONFIG,
    Run,
    run,  # noqa: F401
)
from workflows import WORKFLOWS

ROOT = Path(__file__).parents[3]


def test_the_command_alone(run: Run) -> None:  # noqa: F811
    """Ten lines at most, with three commands that exist."""
    status, out, err = run()
    lines = out.splitlines()
    assert (status, err) == (0, "") and len(lines) <= 10
    commands = [line.split()[3] for line in lines if line.startswith("  python -m pipeline ")]
    assert len(commands) == 3 and set(commands) <= set(cli.commands)


def test_list_says_of_jobs_what_their_declarations_say() -> None:
    assert list(LISTED) == list(cli.commands)
    jobs = {name: text for name, (section, text) in LISTED.items() if section == JOBS}
    assert jobs == {name: workflow.summary for name, workflow in WORKFLOWS.items()}


@pytest.mark.parametrize(
    ("words", "status"), [([], 0), (["--help"], 0), (["-h"], 0), (["--version"], 0), (["none"], 2), (["--none"], 2)]
)
def test_what_needs_no_job_imports_none_and_starts_nothing(words: list[str], status: int) -> None:
    code = f"""
import os, sys, threading
from pipeline.process import supervisor
supervisor.supervise = lambda: None
from pipeline.__main__ import main
try:
    main({words})
except SystemExit as error:
    assert error.code == {status}, error.code
heavy = {{name.partition(".")[0] for name in sys.modules}} & {{"numpy", "dask", "distributed", "cupy", "subprocess"}}
assert (heavy, threading.active_count()) == (set(), 1), heavy
os.waitpid(-1, os.WNOHANG)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stderr.splitlines()[-1:] == ["ChildProcessError: [Errno 10] No child processes"]


@pytest.mark.parametrize(("words", "error"), [(["--help"], ""), (["--version"], "error: expected to write to ")])
def test_reader_of_help_may_leave(words: list[str], error: str) -> None:
    """Once it has seen enough; of anything else less than all is an error."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([sys.executable, "-m", "pipeline", *words], stdout=writing, stderr=subprocess.PIPE,
                              text=True, cwd=ROOT, timeout=60)  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr[: len(error)]) == (int(bool(error)), error) and bool(done.stderr) == bool(
        error
    )


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["histogramm", "x"], "'histogram'"), (["duce", "x"], "'reduce'"), (["plan", "matmull"], "'matmul'"),
        (["runs", "lst"], "'list'"), (["histogram", "--bin", "5", "x"], "'--bins'"),
        (["histogram", "--dtype", "flaot32", "x"], "'float32'"), (["generate", "x", "--dtype", "unit8"], "'uint8'"),
        (["generate", "x", "--distribution", "gausian"], "'gaussian'"),
    ],
)  # fmt: skip
def test_nearest_names(words: list[str], nearest: str, run: Run) -> None:  # noqa: F811
    status, out, err = run(*words)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert nearest in err and "id you mean" in err


@pytest.mark.parametrize("name", ["-::x", "-[2:5]", "-5.bin"])
def test_file_that_begins_with_a_minus(name: str, run: Run) -> None:  # noqa: F811
    """It is taken for an option; the message says how it is not."""
    status, out, err = run("info", name)
    assert (status, out) == (2, "") and err.endswith("; write -- before a file that begins with a minus\n")
    _, _, err = run("info", "--", name)
    assert "option" not in err and name[1:] in err
    assert "begins with a minus" not in run(name)[2]  # before the command there is no file


def test_nothing_is_near(run: Run) -> None:  # noqa: F811
    _, _, err = run("zzz")
    assert err.endswith(", got 'zzz'\n") and "expected a command, one of histogram, reduce, " in err


def test_file_in_the_place_of_a_job(run: Run) -> None:  # noqa: F811
    _, _, err = run(ECG)
    assert err.endswith(f", got '{ECG}'; the job comes before its files: python -m pipeline histogram {ECG}\n")


def test_quiet_is_one_line(run: Run) -> None:  # noqa: F811
    """A line for each job; JSON stays what it is."""
    verdict = "100 % of 108,000 samples checked: equal to the reference\n"
    assert run("histogram", ECG, "-q") == (0, f"histogram of data/ecg.npy (uint16): {verdict}", "")
    _, out, _ = run("histogram", ECG, "-q", "--also", "reduce --op sum")
    assert [line.split()[0] for line in out.splitlines()] == ["histogram", "reduce"]
    assert json.loads(run("histogram", ECG, "-q", "--json")[1])["result"]["samples"] == 108_000


def test_of_a_small_file_nothing_bound_the_run(run: Run) -> None:  # noqa: F811
    document = json.loads(run("histogram", ECG, "--json")[1])
    assert document["performance"]["bound_by"] is None
    assert "GB/s" not in run("histogram", ECG)[1]


def test_config_lists_every_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The keys that jobs read, and no others; one that nothing reads is named."""
    import dask.config

    status, out, err = run("config", "--json")
    listed = json.loads(out)["keys"]
    assert (status, err) == (0, "") and set(listed) == set(keys())
    assert listed["chunk-size"] == {"variable": "DASK_PIPELINE__CHUNK_SIZE", "jobs": list(WORKFLOWS), "value": None}
    with dask.config.set({"pipeline": {"chunk_size": "108kB", "chunksise": 1}}):
        status, out, err = run("config")
        assert json.loads(run("histogram", ECG, "--json")[1])["verification"]["chunks"] == 2
    assert "all jobs  = '108kB'" in out
    assert err == (f"warning: configuration {SECTION}.chunksise: expected a key that this command lists, got one that "
                   "nothing reads; did you mean 'chunk-size'?\n")  # fmt: skip


@pytest.mark.parametrize("key", ["verify", "device", "chunk-size", "bins"])
def test_listed_variables_are_read(key: str, run: Run) -> None:  # noqa: F811
    """A wrong value of each is refused with its name."""
    variable = json.loads(run("config", "--json")[1])["keys"][key]["variable"]
    done = subprocess.run([sys.executable, "-m", "pipeline", "histogram", str(ECG)], text=True, capture_output=True,
                          env=NO_DASK_CONFIG | {variable: "wrong"}, timeout=60, cwd=ROOT)  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith("error: ") and "wrong" in done.stderr


NO_NETWORK = """
import socket
def connect(*_):
    raise OSError(101, "Network is unreachable")
socket.socket.connect = connect
from pipeline.__main__ import main
main()
"""


def test_nothing_is_said_of_a_network_that_no_run_needs(tmp_path: Path) -> None:
    (tmp_path / "samples.bin").write_bytes(bytes(400))
    words = [sys.executable, "-c", NO_NETWORK, "histogram", str(tmp_path / "samples.bin"), "--json", "--device", "cpu"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout)["result"]["samples"] == 100
