"""Batches: jobs of a file on one cluster, their lines and exit status, what is resumed, and what is refused at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import pipeline.cluster.placement
from pipeline.cli.main import cli
from pipeline.errors import PipelineError
from pipeline.process import signals
from pipeline.process.signals import Stopped
from tests.project.test_documents import ROOT

Call = Callable[..., tuple[int, list[dict[str, Any]], str]]

JOBS = """
[defaults]
verify = "full"
bins = 16       # of those that have bins

[[jobs]]
name = "all"
job = "histogram"
files = "run-*.bin"
range = [0, 512]
output = "all.json"
also = ["reduce --op sum -o 'all sums.json'"]

[[jobs]]
job = "reduce"
each = "run-*.bin"
op = ["sum", "max"]
with-digest = true
output = "of-{stem}.json"

[[jobs]]
job = "map"
operation = "add"
files = ["x.npy", "x.npy"]
output = "twice.npy"
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a file of jobs with --json in a folder with three recordings: (exit status, lines, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for number in range(3):
        np.random.default_rng(number).integers(0, 1024, 900 + number).astype("<i4").tofile(f"run-{number}.bin")
    np.save("x.npy", np.arange(12.0).reshape(3, 4))

    def run(text: str, *words: str) -> tuple[int, list[dict[str, Any]], str]:
        Path("jobs.toml").write_text(text)
        done = CliRunner().invoke(cli, ["run", "jobs.toml", "--json", *words])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    return run


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes for which each cluster was started."""
    started: list[int] = []
    real = pipeline.cluster.placement.open_workers

    def counting(placement: Any, nbytes: int, *more: Any) -> Any:
        started.append(nbytes)
        return real(placement, nbytes, *more)

    monkeypatch.setattr(pipeline.cluster.placement, "open_workers", counting)
    return started


def test_all_jobs_on_one_cluster(call: Call, opened: list[int]) -> None:
    status, lines, err = call(JOBS)
    assert status == 0 and "5 of 5 jobs verified" in err
    assert opened == [4 * 2 * (900 + 901 + 902) + 2 * os.path.getsize("x.npy")]  # for all of them, once
    names = ["all", "reduce run-0.bin", "reduce run-1.bin", "reduce run-2.bin", "map"]
    assert [(line["name"], line["status"]) for line in lines] == [(name, 0) for name in names]
    every = [np.fromfile(f"run-{number}.bin", "<i4") for number in range(3)]
    counts = json.loads(Path("all.json").read_text())["histogram"]["storage"]["values"]
    np.testing.assert_array_equal(counts[1:-1], np.histogram(np.concatenate(every), 16, (0, 512))[0])
    assert json.loads(Path("all sums.json").read_text())["sum"] == sum(int(one.sum()) for one in every)
    for number, one in enumerate(every):
        document = json.loads(Path(f"of-run-{number}.json").read_text())
        assert (document["sum"], document["max"]) == (one.sum(), one.max())
        assert lines[1 + number]["results"][0]["samples"] == one.size
        assert len(lines[1 + number]["results"][0]["blake3"]) == 64
    np.testing.assert_array_equal(np.load("twice.npy"), 2 * np.load("x.npy"))


def test_another_place_is_another_cluster(call: Call, opened: list[int]) -> None:
    text = '[[jobs]]\njob = "digest"\nfiles = "run-0.bin"\n'
    assert call(f'{text}device = "cpu"\n{text}device = "cpu"\n{text}{text}')[0] == 0
    assert len(opened) == 2


def test_table_for_people(call: Call) -> None:
    assert call(JOBS)[0] == 0
    done = CliRunner().invoke(cli, ["run", "jobs.toml", "-q"])
    lines = done.stdout.splitlines()
    assert (done.exit_code, done.stderr, len(lines)) == (0, "", 9)
    assert lines[0].split() == ["job", "status", "samples", "checked", "seconds", "output"]
    assert lines[2].split()[:5] == ["all", "verified", "2,703", "100", "%"] and lines[2].endswith("all sums.json")
    assert lines[-1] == "5 of 5 jobs verified"


def test_one_that_fails_stops_no_other(call: Call, monkeypatch: pytest.MonkeyPatch, opened: list[int]) -> None:
    """The exit status is that of the worst; after a failure the cluster is another one."""
    failing = '[[jobs]]\nname = "gone"\njob = "histogram"\nfiles = "gone.bin"\n'
    status, lines, err = call(failing + JOBS)
    assert (status, [line["status"] for line in lines]) == (2, [2, 0, 0, 0, 0, 0])
    assert "gone: error: " in err and "found none there" in lines[0]["error"] and "5 of 6 jobs verified" in err
    assert len(opened) == 1
    import pipeline.cli.jobs

    real = pipeline.cli.jobs.run_all
    errors = iter([PipelineError("lost"), pipeline.errors.VerificationError("wrong"), None, None])

    def broken(*arguments: Any) -> Any:
        if (error := next(errors)) is not None:
            raise error
        return real(*arguments)

    monkeypatch.setattr(pipeline.cli.jobs, "run_all", broken)
    status, lines, _ = call(JOBS)
    assert (status, [line["status"] for line in lines]) == (3, [1, 3, 0, 0, 0])
    assert not os.path.exists("of-run-0.json.part")


def test_resumed(call: Call, tmp_path: Path) -> None:
    """Only what is not there any more, has another input or other words is run again."""
    failing = JOBS + '[[jobs]]\nname = "late"\njob = "digest"\nfiles = "late.bin"\n'
    assert call(failing)[0] == 2

    def again(text: str = failing) -> list[str]:
        _, lines, _ = call(text, "--resume")
        return [line["name"] for line in lines if not line.get("resumed")]

    assert again() == ["late"]
    os.remove("of-run-1.json")
    np.arange(7, dtype="<i4").tofile("run-2.bin")
    assert again() == ["all", "reduce run-1.bin", "reduce run-2.bin", "late"]
    assert again(failing.replace("bins = 16", "bins = 17")) == ["all", "late"]
    os.remove("all sums.json")  # of --also
    assert again(failing.replace("bins = 16", "bins = 17")) == ["all", "late"]
    Path("late.bin").write_bytes(bytes(4))
    assert again() == ["all", "late"] and list((tmp_path / "state/baru/batches").iterdir()) == []
    status, lines, err = call(failing, "--resume")
    assert status == 0 and "no unfinished batch" in err and not any(line.get("resumed") for line in lines)


def test_without_a_state_folder(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    status, _, err = call(JOBS)
    assert status == 0 and err.count("--resume will run all jobs again") == 1


REFUSED = [
    ("[[jobs]]\njob = 'histogramm'\nfiles = 'run-0.bin'", "did you mean 'histogram'?"),
    ("[[jobs]]\njob = 'histogram'\nfiels = 'run-0.bin'", "job 1: expected no key 'fiels'; did you mean 'files'?"),
    ("[[jobs]]\njob = 'histogram'\nfiles = 'a'\nbin = 5", "did you mean 'bins'?"),
    ("[[jobs]]\njob = 'reduce'\nfiles = 'a'\nbins = 5", "expected no key 'bins'"),
    ("[defaults]\nverfy = 'full'\n[[jobs]]\njob = 'reduce'\nfiles = 'a'", "key 'verfy'; did you mean 'verify'?"),
    ("[default]\n[[jobs]]\njob = 'reduce'\nfiles = 'a'", "did you mean 'defaults'?"),
    ("[[jobs]]\njob = 'reduce'\nfiles = 'a'\nresume = true", "no job of a batch has it of its own"),
    ("[[jobs]]\njob = 'reduce'", "got none"), ("[[jobs]]\njob = 'reduce'\nfiles = 'a'\neach = 'b'", "got both"),
    ("[[jobs]]\njob = 'reduce'\nfiles = 'a'\nop = 'sun'", "--op: expected some of"),
    ("[[jobs]]\njob = 'histogram'\nfiles = 'a'\nrange = [1]", "job 1 (histogram): "),
    ("[[jobs]]\njob = 'histogram'\nfiles = 'a'\nbins = true", "bins: expected"),
    ("[[jobs]]\njob = 'histogram'\nfiles = 'a'\nrecursive = 'yes'", "recursive: expected true or false"),
    ("[[jobs]]\njob = 'histogram'\nfiles = []", "an empty list"),
    ("[[jobs]]\njob = 'histogram'\nfiles = {a = 1}", "got dict"),
    ("[[jobs]]\njob = 'histogram'\neach = 'none-*.bin'", "expected at least one file to match"),
    ("[[jobs]]\njob = 'histogram'\neach = 'run-*.bin'\noutput = 'same.json'", "both histogram run-0.bin and histogram "
     "run-1.bin write same.json; {stem} and {name}"),
    ("[[jobs]]\njob = 'transpose'\nfiles = 'x.npy'\noutput = 'o.h5::/a'\n[[jobs]]\njob = 'transpose'\nfiles = 'x.npy'\n"
     "output = 'o.h5::/b'", "both transpose and transpose write o.h5::/b"),
    ("[[jobs]]\njob = 'digest'\neach = 'run-*.bin'\nperformance-report = 'r.html'", "run-1.bin write r.html"),
    ("[[jobs]]\njob = 'map'\nfiles = 'x.npy'\noutput = 'y.npy'", "job 1 (map): "),
    ("jobs = 5", "expected one or more tables [[jobs]], got int"), ("", "got none"), ("[[jobs]", "expected TOML"),
    ("[[jobs]]\njob = 'reduce'\nfiles = 'a'\nalso = ['redcue']", "--also: expected a job, one of"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_wrong_is_told_before_anything_runs(call: Call, text: str, message: str, opened: list[int]) -> None:
    before = sorted(os.listdir())
    status, lines, err = call(text)
    assert (status, lines, err.count("\n")) == (2, [], 1) and message in err and err.startswith("error: jobs.toml")
    assert opened == [] and sorted(os.listdir()) == sorted({*before, "jobs.toml"})


def test_signal_that_came_when_all_was_verified_stops_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with signals.handled():
        signals.unseal()
        signals.seal()
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(Stopped) as caught:
            signals.unseal()
    assert caught.value.status == 75


def test_time_limit_ends_all_and_resume_does_the_rest(call: Call, tmp_path: Path) -> None:
    """In a real process, which also has a supervisor; the second job never begins to be read."""
    os.mkfifo("pipe")
    text = '[[jobs]]\njob = "digest"\nfiles = "run-0.bin"\n[[jobs]]\nname = "stuck"\njob = "digest"\nfiles = "-"\n'
    Path("jobs.toml").write_text(text)
    words = [sys.executable, "-m", "pipeline", "run", "jobs.toml", "--json", "--time-limit", "4s"]
    holding = os.open("pipe", os.O_RDWR)
    try:
        with open("pipe", "rb") as stdin:
            done = subprocess.run(words, stdin=stdin, capture_output=True, text=True, timeout=90, env=os.environ | {
                "PYTHONPATH": str(ROOT)})  # fmt: skip
    finally:
        os.close(holding)
    assert done.returncode == 75, done.stderr
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == [0]
    assert "1 of 2 jobs are done; the same command with --resume does the rest" in done.stderr
    _, lines, _ = call(text.replace('"-"', '"run-1.bin"'), "--resume")
    assert [line.get("resumed", False) for line in lines] == [True, False]


def test_dry_run_says_what_each_job_would_need(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    status, plans, _ = call(JOBS, "--dry-run")
    assert status == 0 and not list(Path().glob("*.json"))
    assert [plan["what"].partition(" of ")[0] for plan in plans] == [
        "histogram, reduce",
        *["reduce, digest"] * 3,
        "map",
    ]
    status, plans, err = call(JOBS.replace("x.npy", "gone.npy"), "--dry-run")
    assert (status, len(plans)) == (2, 4) and "map: error: " in err
    done = CliRunner().invoke(cli, ["run", "jobs.toml", "--dry-run"])
    assert done.stdout.startswith("all: histogram run-*.bin\nplan ")
