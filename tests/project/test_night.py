"""The batch example: a night's work on the CPU, done once, with failures listed, and stopped by a warning."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "examples" / "night.sh"
SECONDS = 120  # that a night may take here
# In place of the command: takes long, and ends as baru does when it is warned.
SLOW = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
print("began", flush=True)
time.sleep(60)
"""
# A shell cannot handle signals that the process that starts it ignores or blocks.
FRESH = """
import os, signal, sys
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Two recordings, one of them raw, and a pair of stacks of matrices."""
    for name in ("recordings", "matrices"):
        (tmp_path / name).mkdir()
    random = np.random.default_rng(0)
    np.save(tmp_path / "recordings" / "ecg.npy", np.load(ROOT / "data" / "ecg.npy"))
    random.integers(0, 1024, 5000, np.int32).tofile(tmp_path / "recordings" / "a night's.bin")
    np.save(tmp_path / "matrices" / "s-a.npy", random.standard_normal((3, 20, 30)))
    np.save(tmp_path / "matrices" / "s-b.npy", random.standard_normal((3, 30, 10)))
    return tmp_path


def command(folder: Path, *words: str) -> list[str]:
    return [str(SCRIPT), *(str(folder / name) for name in ("recordings", "matrices", "results")), *words]


def night(folder: Path) -> tuple[int, list[str]]:
    done = subprocess.run(command(folder, "--device", "cpu"), env=environment(f"{sys.executable} -m pipeline"),
                          cwd=ROOT, text=True, capture_output=True, timeout=SECONDS)  # fmt: skip
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def environment(baru: str) -> dict[str, str]:
    return {**os.environ, "BARU": baru, "PYTHONPATH": str(ROOT)}


def test_a_night(folders: Path) -> None:
    """The second one has nothing left to do; the third only what is new."""
    assert night(folders) == (0, ["ecg.npy: verified", "a night's.bin: verified", "s: verified"])
    results = folders / "results"
    raw = np.fromfile(folders / "recordings" / "a night's.bin", np.int32)
    for name, samples in (("ecg.npy", np.load(folders / "recordings" / "ecg.npy")), ("a night's.bin", raw)):
        with np.load(results / f"{name}.npz") as kept:
            np.testing.assert_array_equal(kept["counts"], np.histogram(samples, 1024, (0, 1024))[0])
        assert json.loads((results / f"{name}.json").read_text())["sum"] == samples.sum(dtype=np.int64)
    stacks = [np.load(folders / "matrices" / f"s-{part}.npy") for part in "ab"]
    np.testing.assert_allclose(np.load(results / "s.npy"), stacks[0] @ stacks[1], rtol=0, atol=1e-13)
    assert night(folders) == (0, [])
    np.save(folders / "recordings" / "ecg.npy", np.arange(9, dtype=np.int16))
    os.utime(folders / "recordings" / "ecg.npy", (monotonic() + 2e9,) * 2)
    assert night(folders) == (0, ["ecg.npy: verified"])


def test_what_fails_is_listed_and_the_rest_is_done(folders: Path) -> None:
    (folders / "recordings" / "ecg.npy").write_bytes(b"no array")
    status, lines = night(folders)
    assert status == 1 and lines[-1] == "failed: ecg.npy"
    assert re.match(r"ecg\.npy: error: .*ecg\.npy", lines[0])
    assert lines[1:3] == ["a night's.bin: verified", "s: verified"] and (folders / "results" / "s.npy").exists()


@pytest.mark.parametrize("warning", [signal.SIGUSR1, signal.SIGTERM])
def test_a_warning_reaches_the_job_and_ends_the_night(folders: Path, warning: signal.Signals) -> None:
    program = folders / "slow.py"
    program.write_text(SLOW)
    log, until = folders / "results" / "ecg.npy.log", monotonic() + SECONDS
    started = [sys.executable, "-c", FRESH, *command(folders)]
    with subprocess.Popen(started, env=environment(f"{sys.executable} {program}"), text=True,
                          stdout=subprocess.PIPE) as process:  # fmt: skip
        while not (log.exists() and "began" in log.read_text()):
            assert monotonic() < until
            sleep(0.05)
        process.send_signal(warning)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 75 and said == "ecg.npy: stopped; the same line continues\n"
    assert not list((folders / "results").glob("*.npz"))


def test_lines_for_batch_systems() -> None:
    """SLURM reads its lines before the first command; the cron line has the five fields of a time."""
    text = SCRIPT.read_text()
    head = text[: text.index("\nshopt")]
    assert re.findall(r"^#SBATCH --([\w-]+)", head, re.M) == ["job-name", "gres", "time", "signal", "requeue"]
    assert "#SBATCH" not in text[len(head) :]
    assert re.search(r"^#   30 22 \* \* 1-5  flock -n \S+ timeout -s USR1 \S+ night\.sh ", head, re.M)
    assert subprocess.run([str(SCRIPT)], capture_output=True).returncode == 2
