"""Changes an input at a random moment of a run: truncates it, lets it grow, rewrites it in place, or replaces it.

The change takes back the time of modification where the system lets it. Samples before and after a change have other
values, so that a mixture shows; verification, which would find most of them, is off. It must show: every run is refused
in one line, or its result is that of one whole state of the file, the old or the new one; no process dies, of SIGBUS
for example. Changes through a mapping that move no time are outside of the guarantee, and not tried.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORT = 12
SECONDS = 60  # limit of a run, which takes about a tenth of one
SHAPE = (1500, 2000)

# Runs jobs one after another: a request and an answer are a line each.
DRIVER = """
import json, sys
import numpy as np
import pipeline
from pipeline.errors import PipelineError
for line in sys.stdin:
    job, files, output = json.loads(line)
    try:
        how = dict(device="cpu", chunk_bytes=2**20, verify="off")
        if job == "transpose":
            pipeline.run(job, *files, output=output, **how)
            values = []
        elif job == "histogram":
            values = pipeline.run(job, *files, dtype="int32", **how).counts.tolist()
        else:
            found = pipeline.run(job, *files, dtype="int32", op="sum,min,max,argmax", **how).values
            values = [int(found[name]) for name in ("sum", "min", "max", "argmax")]
        print(json.dumps(["ok", values]), flush=True)
    except PipelineError as error:
        print(json.dumps(["refused", error.exit_code, str(error)]), flush=True)
"""


class Driver:
    """A process that runs jobs; started again after it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self, job: str, files: list[Path], output: Path) -> None:
        """Begin a job."""
        if self._process is None:
            command = [sys.executable, "-c", DRIVER]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin
        self._process.stdin.write(json.dumps([job, list(map(str, files)), str(output)]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> list[Any]:
        """What came of it: ok and values, refused with status and message, or died with a status."""
        process = self._process
        assert process and process.stdout
        waiting = Thread(target=_kill_late, args=(process, time.monotonic() + SECONDS), daemon=True)
        waiting.start()
        line = process.stdout.readline()
        if line:
            process.answered = True  # type: ignore[attr-defined]
            waiting.join()
            answer: list[Any] = json.loads(line)
            return answer
        status = process.wait()
        self.close()
        return ["died", status]

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process and process.stdin and process.stdout:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait(SECONDS)
            process.stdout.close()


def _kill_late(process: Any, until: float) -> None:
    """Kill a process that has not answered in time."""
    process.answered = False
    while not process.answered and process.poll() is None:
        if time.monotonic() > until:
            process.kill()
        time.sleep(0.002)


def truncate(path: Path, random: Random) -> None:
    """To a multiple of the size of a sample, so that only its length tells."""
    os.truncate(path, random.randrange(0, path.stat().st_size // 4) * 4)


def grow(path: Path, random: Random) -> None:
    """By samples of other values."""
    with path.open("ab") as file:
        file.write(np.full(random.randrange(1, 10**6), 900, "<i4").tobytes())


def rewrite(path: Path, random: Random) -> None:
    """Some of it, in one or several steps, and the old time is set again after each."""
    times, size = path.stat(), path.stat().st_size
    with path.open("r+b", buffering=0) as file:
        for _ in range(random.choice([1, 1, 3, 10])):
            first = 128 + random.randrange(0, (size - 128) // 4) * 4
            count = min(random.randrange(1, 2 * 10**6), (size - first) // 4)
            os.pwrite(file.fileno(), np.full(count, 800, "<i4").tobytes(), first)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replace(path: Path, random: Random) -> None:
    """By a file of the same size and times: renamed over it, or made anew, maybe with the inode that became free."""
    times, content = path.stat(), bytearray(path.read_bytes())
    content[128:] = np.full((len(content) - 128) // 4, 700, "<i4").tobytes()
    other = path.with_suffix(".other")
    if random.random() < 0.5:
        path.unlink()
        other = path
    other.write_bytes(content)
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(other, path)


CHANGES: tuple[Callable[[Path, Random], None], ...] = (truncate, grow, rewrite, replace)


def _values(job: str, files: list[Path]) -> Any:
    """What a job computes from files as they are, by NumPy; None if it has to refuse them."""
    if job == "transpose":
        try:
            return np.load(files[0]).T.tobytes()
        except ValueError:
            return None
    samples: NDArray[Any] = np.concatenate([np.fromfile(path, "<i4") for path in files])
    if any(path.stat().st_size == 0 for path in files):
        return None
    if job == "histogram":
        return np.bincount(samples, minlength=1024).tolist()
    return [int(samples.sum()), int(samples.min()), int(samples.max()), int(samples.argmax())]


class Harness:
    """Inputs, a driver, and how long each job takes undisturbed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.driver = folder, Random(seed), Driver()
        self.samples = np.random.default_rng(seed).integers(0, 512, SHAPE[0] * SHAPE[1]).astype("<i4")
        self.seconds: dict[str, float] = {}
        for _ in range(2):  # the first one starts the process
            for job in ("histogram", "reduce", "transpose"):
                files, output = self.files(job), folder / "out.npy"
                began = time.monotonic()
                self.driver.start(job, files, output)
                answer = self.driver.answer()
                self.seconds[job] = time.monotonic() - began
                if answer[0] != "ok":
                    raise RuntimeError(f"expected an undisturbed run to succeed, got {answer}")

    def files(self, job: str) -> list[Path]:
        """New inputs of a job."""
        if job == "transpose":
            np.save(self.folder / "in.npy", self.samples.reshape(SHAPE))
            return [self.folder / "in.npy"]
        files = [self.folder / f"{number}.bin" for number in range(3)]
        for path, part in zip(files, np.array_split(self.samples, 3), strict=True):
            part.tofile(path)
        return files

    def trial(self) -> tuple[str, str, list[str]]:
        """One run with a change: what was changed, what came of it, and what is wrong."""
        job, change = self.random.choice(list(self.seconds)), self.random.choice(CHANGES)
        files, output = self.files(job), self.folder / "out.npy"
        output.write_bytes(b"old")
        before = _values(job, files)
        delay, path = self.random.uniform(0, 1.2 * self.seconds[job]), self.random.choice(files)
        self.driver.start(job, files, output)
        time.sleep(delay)
        change(path, self.random)
        answer = self.driver.answer()
        after = _values(job, files)
        case = f"{job}, {change.__name__} after {delay:.3f} s"
        if answer[0] == "ok":
            got = output.read_bytes()[128:] if job == "transpose" else answer[1]
            state = "old state" if got == before else "new state" if got == after else "mixture"
            return change.__name__, state, [f"{case}: a mixture"] if state == "mixture" else []
        wrong = [] if job != "transpose" or output.read_bytes() == b"old" else ["the output changed"]
        if answer[0] == "refused" and "\n" in answer[2]:
            wrong.append(f"expected one line, got {answer[2]!r}")
        if answer[0] == "died":
            wrong.append(f"the process died with status {answer[1]}")
        state = f"refused, status {answer[1]}" if answer[0] == "refused" else "died"
        return change.__name__, state, [f"{case}: {one}" for one in wrong]


def run(seed: int, trials: int) -> dict[str, Any]:
    """So many runs; the moments are random, so a seed repeats the changes, not what comes of them."""
    outcomes: dict[str, Counter[str]] = {change.__name__: Counter() for change in CHANGES}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        harness = Harness(Path(folder), seed)
        for _ in range(trials):
            name, state, wrong = harness.trial()
            outcomes[name][state] += 1
            failures += wrong
        harness.driver.close()
    return {"outcomes": {name: dict(sorted(counts.items())) for name, counts in outcomes.items()}, "failures": failures}
