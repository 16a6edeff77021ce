"""Scripts for sbatch: what is printed is run, warned and queued again, with a `scontrol` that notes its words."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from tests.project.test_documents import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.arange(5000, dtype="<i4").tofile("a b.bin")
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" >> queued\nexit 1\n')
    (tmp_path / "scontrol").chmod(0o755)
    return tmp_path


def script(*words: str) -> str:
    done = CliRunner().invoke(cli, ["slurm", *words])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def started(text: str, folder: Path, **streams: int) -> subprocess.Popen[str]:
    variables = {"PYTHONPATH": str(ROOT), "PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "17",
                 "XDG_STATE_HOME": str(folder / "state")}  # fmt: skip
    Path("job.sh").write_text(text)
    return subprocess.Popen(["bash", "job.sh"], env=os.environ | variables, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, **streams)  # fmt: skip


def test_runs_the_job(folder: Path) -> None:
    text = script("--gpus-per-node", "2", "--time", "1-0:00:00", "--directive", "partition=long",
                  "histogram", "a b.bin", "--range", "0", "99", "-o", "out put.json")  # fmt: skip
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", text, re.M))
    assert options["gpus-per-node"] == "2" and options["time"] == "1-0:00:00" and options["partition"] == "long"
    assert options["signal"].startswith("B:USR1@") and "\n#SBATCH --requeue\n" in text
    running = started(text, folder)
    out, _ = running.communicate(timeout=90)
    assert running.returncode == 0 and "verdict" in out and Path("out put.json").exists()
    assert not Path("queued").exists()


@pytest.mark.parametrize(("number", "status", "queued"), [(signal.SIGUSR1, 75, True), (signal.SIGTERM, 143, False)])
def test_warned_or_cancelled(folder: Path, number: signal.Signals, status: int, queued: bool) -> None:
    """A job that waits for input that never comes: after a warning it is queued again, after scancel it is not."""
    os.mkfifo("never")
    text = script("digest", "a b.bin").replace("'a b.bin'", "- < never")
    holding = os.open("never", os.O_RDWR)
    try:
        running = started(text, folder)
        until = monotonic() + 60
        while not is_waiting(running.pid) and monotonic() < until:
            sleep(0.1)
        running.send_signal(number)
        out, _ = running.communicate(timeout=60)
    finally:
        os.close(holding)
    assert running.returncode == status, out
    assert Path("queued").exists() == queued
    if queued:
        assert Path("queued").read_text() == "requeue 17\n"


def is_waiting(shell: int) -> bool:
    """Whether the job below the shell has installed its handlers: it catches SIGUSR1."""
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    for child in children:
        for line in Path(f"/proc/{child}/status").read_text().splitlines():
            if line.startswith(("SigCgt:", "SigBlk:")) and int(line.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1:
                return True
    return False


@pytest.mark.parametrize(
    ("words", "message"),
    [(("histogram", "x.bin", "--bin", "3"), "got '--bin'; did you mean '--bins'?"),
     (("histgram", "x"), "expected run or one of"),
     (("digest", "-"), "standard input"), (("--time", "soon", "digest", "x"), "--time: expected a time"),
     (("--directive", "a\nb", "digest", "x"), "--directive: expected one line"), ((), "expected JOB, got none"),
     (("run", "gone.toml"), "gone.toml: expected a file of jobs"), (("reduce",), "expected FILES, got none"),
     (("digest", "https://h.example/a.bin?sig=1"), "without signatures")],
)  # fmt: skip
def test_what_cannot_run_is_refused(folder: Path, words: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(cli, ["slurm", *words])
    assert (done.exit_code, done.stdout) == (2, "") and message in done.stderr


def test_of_a_file_of_jobs(folder: Path) -> None:
    Path("night.toml").write_text("[[jobs]]\njob = 'digest'\nfiles = 'a b.bin'\n")
    text = script("run", "night.toml")
    assert "--job-name=baru-night\n" in text and f"{sys.executable} -m pipeline run --resume night.toml &" in text
