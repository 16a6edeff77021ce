"""Kills a run with SIGKILL when a random chunk or region finishes, or up to 0.2 s later, and continues it.

It must show:

- the same result and the same bytes of the output as of an undisturbed run, which is compared with NumPy;
- nothing that was committed is done again, and everything that had finished was committed, but for what was in flight;
- nothing is left: no journal, no lock, no temporary file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from pipeline.engine import journal_file

SHORT = 3
SECONDS = 180  # limit of a command, which takes about three
KILLED = (-9, 137)  # of a command without and with a supervisor, which outlives it
LATER_SECONDS = 0.2
# Chunks or regions that may be computed but not committed at a time: four tasks for each of two threads, each of up to
# four chunks, and as many that are being checked.
IN_FLIGHT = 2 * 4 * 4 * 2

# The command, with a journal from the beginning that is committed whenever something finishes, on two threads. It notes
# each item that finishes, and ends by SIGKILL some time after the given one has.
COMMAND = """
import os, signal, sys, threading
import pipeline.__main__
from pipeline.engine import journal
journal.AFTER_SECONDS = journal.EVERY_SECONDS = journal.COMMIT_SHARE = 0
log, place, left = journal.Journal.log, os.environ["NOTES"], int(os.environ["KILL_AFTER"])
def noting(self, *arguments):
    global left
    with open(place, "a") as file:
        file.write(arguments[0] + " " + arguments[1] + chr(10))
    left -= 1
    if not left:
        threading.Timer(float(os.environ["DELAY"]), os.kill, (os.getpid(), signal.SIGKILL)).start()
    log(self, *arguments)
journal.Journal.log = noting
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
pipeline.__main__.main()
"""


@dataclass(frozen=True)
class Job:
    """A command, its items in all passes, and its output in the working folder, if any."""

    words: tuple[str, ...]
    items: int
    output: str | None = None


SAMPLES = 2**18
CHUNK = SAMPLES * 4 // 64
JOBS = {
    "histogram": Job(("histogram", "a.bin", "-c", str(CHUNK), "--json"), 64),
    "survey": Job(("histogram", "a.bin", "--range", "auto", "-c", str(CHUNK), "--json"), 128),
    "full": Job(("reduce", "a.bin", "--op", "sum,std,argmax", "--verify", "full", "-c", str(CHUNK), "--json"), 64),
    "array": Job(
        ("transpose", "m.npy", "-o", "m.t.npy", "-c", "256KiB", "--json"), 12, "m.t.npy"
    ),  # a task for each region
}


class Sandbox:
    """A folder with inputs, a state folder, and the results of undisturbed runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "notes"
        random = np.random.default_rng(0)
        samples = random.integers(0, 1024, SAMPLES).astype("<i4")
        samples.tofile(folder / "a.bin")
        np.save(folder / "m.npy", random.integers(0, 2**40, (768, 256)))
        places = {"XDG_STATE_HOME": "state", "TMPDIR": ".", "NOTES": "notes"}
        self.environment = os.environ | {name: str(folder / place) for name, place in places.items()}
        self.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        self.expected = {name: self._undisturbed(job) for name, job in JOBS.items()}
        counts = self.expected["histogram"][0]["histogram"]["storage"]["values"][1:-1]
        assert counts == np.bincount(samples, minlength=1024).tolist()
        np.testing.assert_array_equal(self._array(self.expected["array"][1]), np.load(folder / "m.npy").T)

    def _undisturbed(self, job: Job) -> tuple[Any, bytes]:
        status, out, err = self.run(job, 0, 0.0)
        if status or len(self.noted()) != job.items:
            raise RuntimeError(f"expected {job.items} items of an undisturbed run, got {len(self.noted())} and {err}")
        return self.result(job, out)

    @staticmethod
    def _array(content: bytes) -> Any:
        return np.frombuffer(content[-768 * 256 * 8 :], np.int64).reshape(256, 768)

    def run(self, job: Job, kill_after: int, delay: float, *words: str) -> tuple[int, bytes, str]:
        """Run a command: status, stdout, stderr; 0 for one that is not killed."""
        self.notes.unlink(missing_ok=True)
        command = [sys.executable, "-c", COMMAND, *job.words, *words]
        environment = self.environment | {"KILL_AFTER": str(kill_after), "DELAY": str(delay)}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, timeout=SECONDS)
        return done.returncode, done.stdout, done.stderr.decode(errors="replace")

    def noted(self) -> list[str]:
        """Items that the last command has finished."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def has_result(self, job: Job, out: bytes) -> bool:
        """Whether a command has printed its result, or written its output."""
        return (self.folder / job.output).exists() if job.output else bool(out)

    def result(self, job: Job, out: bytes) -> tuple[Any, bytes]:
        """What a command has printed, and its output, which is removed."""
        content = b""
        if job.output:
            content = (self.folder / job.output).read_bytes()
            (self.folder / job.output).unlink()
        return json.loads(out)["result"], content

    def committed(self) -> int:
        """Items in the journal."""
        before = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = str(self.folder / "state")
        try:
            rows = [row for key in journal_file.journals() for row in journal_file.read(key) or []]
        finally:
            os.environ.pop("XDG_STATE_HOME")
            os.environ.update({} if before is None else {"XDG_STATE_HOME": before})
        chunks = sum(row.header["done"] or 0 for row in rows if row.kind == "pass")
        return chunks + sum(len(row.header["regions"]) for row in rows if row.kind == "regions")

    def left(self) -> list[str]:
        """Files that should not be there any more."""
        state = [str(path) for path in (self.folder / "state").rglob("*") if path.is_file()]
        return state + [path.name for path in self.folder.iterdir() if path.name.startswith(".")]


def _trial(sandbox: Sandbox, name: str, random: Random) -> tuple[list[str], int | None]:
    """What went wrong, and the share of the items that were committed; None if the run had ended before."""
    job, wrong = JOBS[name], []
    words: list[str] = []
    before = 0
    for _ in range(random.choice((1, 1, 2))):
        kill_after, delay = random.randint(1, job.items - before or 1), random.uniform(0, LATER_SECONDS)
        status, out, err = sandbox.run(job, kill_after, delay, *words)
        if status not in KILLED:  # it had ended before
            break
        finished, committed = before + len(sandbox.noted()), sandbox.committed()
        complete = finished == job.items and sandbox.has_result(job, out)  # nothing was left to continue
        if finished - committed > IN_FLIGHT and not complete:
            wrong.append(f"{finished} items had finished, {committed} were committed")
        before, words = committed, ["--resume"]
    if status in KILLED:
        status, out, err = sandbox.run(job, 0, 0.0, "--resume")
        if (again := len(sandbox.noted())) != job.items - before and before:
            wrong.append(f"{before} of {job.items} items were committed, and {again} done")
    if status:
        return [*wrong, f"status {status}: {err}"], None
    if sandbox.result(job, out) != sandbox.expected[name]:
        wrong.append("another result")
    return wrong + [f"left {path}" for path in sandbox.left()], 100 * before // job.items if words else None


def run(seed: int, trials: int) -> dict[str, Any]:
    """Figures of so many trials, each of a random job."""
    random, failures, shares = Random(seed), [], []
    with tempfile.TemporaryDirectory(prefix="resume-") as folder:
        sandbox = Sandbox(Path(folder))
        for number in range(trials):
            name = random.choice(list(JOBS))
            wrong, share = _trial(sandbox, name, random)
            shares += [] if share is None else [share]
            failures += [f"trial {number}, {name}: {what}" for what in wrong]
    return {"failures": failures, "killed and continued": len(shares), "committed, %": sorted(shares)}
