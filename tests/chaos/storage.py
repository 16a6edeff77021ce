"""Makes every system call on an output, its lock, or standard output fail in turn, or kills the process there.

strace injects ENOSPC, EIO, EINTR, a write that is claimed but not done, or SIGKILL into one call of a command; its log
has to show that it did. The points are all calls on these files that an undisturbed run makes. It must show:

- no torn file: under the name of the output is the old content or the whole new one;
- no false success: with status 0 the output and what was printed are right, and with any other one there is one line;
- nothing lost: what was verified is in the output, printed, or where the message says;
- nothing left for ever: the next run succeeds, and removes what a killed one, or one that could not, has left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tests.chaos.tools.harness import MissingError

SHORT = 4
SECONDS = 120  # limit of a command, which takes about two
OLD = b"old content"
KILLED = -9  # or, of the process that computes, as the command's first one says:
KILLED_TEXT = "the process that computes was ended by SIGKILL"

# The command, with temporary names that are known beforehand, and a file that tells when all was computed.
COMMAND = """
import os, secrets, sys
secrets.token_hex = lambda nbytes: "0" * 2 * nbytes
import pipeline.__main__, pipeline.cli.jobs, pipeline.engine.array
def noting(function):
    def call(*arguments):
        result = function(*arguments)
        open(os.environ["COMPUTED"], "w").close()
        return result
    return call
pipeline.cli.jobs.run_all = noting(pipeline.cli.jobs.run_all)
pipeline.engine.array.run_regions = noting(pipeline.engine.array.run_regions)
pipeline.__main__.main()
"""


class Point(NamedTuple):
    """A system call: its name, and how many calls of this name on these files a thread makes up to it."""

    call: str
    number: int


@dataclass(frozen=True)
class Job:
    """A command, its output in the folder `out`, if any, and whether that is an array."""

    words: tuple[str, ...]
    output: str | None
    array: bool = False


JOBS = {
    "result": Job(("histogram", "a.npy", "-o", "out/a.json", "--json"), "a.json"),
    "trace": Job(("histogram", "a.npy", "--trace", "out/t.json", "--json"), "t.json"),
    "array": Job(("transpose", "m.npy", "-o", "out/m.npy", "--json"), "m.npy", array=True),
    "report": Job(("histogram", "a.npy", "--json"), None),
}
FAULTS = {
    "ENOSPC": "error=ENOSPC",
    "EIO": "error=EIO",
    "EINTR": "error=EINTR",
    "lost": "retval=7",
    "kill": "signal=KILL",
}


class Sandbox:
    """A folder with inputs, outputs, a state folder and temporary files of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.state = folder, folder / "out", folder / "state" / "baru"
        for name in ("out", "tmp"):
            (folder / name).mkdir()
        random = np.random.default_rng(0)
        np.save(folder / "a.npy", random.integers(0, 1024, 5000).astype("<i4"))
        np.save(folder / "m.npy", random.integers(0, 1024, (70, 50)))
        places = {"XDG_STATE_HOME": "state", "TMPDIR": "tmp", "COMPUTED": "computed"}
        self.environment = os.environ | {name: str(folder / place) for name, place in places.items()}
        self.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        self.parts: dict[str, str] = {}  # names of temporary files, by output

    def reset(self, job: Job) -> None:
        """The state before a command: an old output, nothing else."""
        for name in ("out", "tmp", "state"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in ("out", "tmp"):
            (self.folder / name).mkdir()
        (self.folder / "computed").unlink(missing_ok=True)
        if job.output:
            (self.out / job.output).write_bytes(OLD)
            (self.out / job.output).chmod(0o600)

    def run(self, job: Job, point: Point | None = None, fault: str = "") -> tuple[int, str, list[str]]:
        """Run a command under strace, with a fault if a point is given: status, stderr, lines of strace's log."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        part = self.parts.get(job.output or "", "unknown")
        names = [job.output, f".{job.output}.lock", part] if job.output else []
        paths = [str(self.out), *(str(self.out / name) for name in (*names, "stdout"))]
        traced = [word for path in paths for word in ("-P", path)]
        what = []
        if point:
            what = [f"--trace={point.call}", f"--inject={point.call}:{fault}:when={point.number}"]
            what += ["--seccomp-bpf"] if "signal" not in fault else []  # faster, but then no signal is sent
        strace = ["strace", "-f", "-y", *traced, "-o", str(log), *what]
        command = [*strace, sys.executable, "-c", COMMAND, *job.words]
        with (self.out / "stdout").open("wb") as stdout:
            done = subprocess.run(command, cwd=self.folder, env=self.environment, stdout=stdout, stderr=subprocess.PIPE,
                                  timeout=SECONDS)  # fmt: skip
        lines = _joined(log.read_text(errors="replace").splitlines())
        if job.output and point is None and (match := re.search(rf'"(\.{job.output}\.\w+\.part)"', "\n".join(lines))):
            self.parts[job.output] = match[1]  # a call on the folder names it
        return done.returncode, done.stderr.decode(errors="replace"), lines


def _joined(lines: list[str]) -> list[str]:
    """A log in which each call is one line, with its file and its outcome.

    If threads take turns, strace writes `1 write(2</f>, "…" <unfinished ...>`, and later `1 <... write resumed>) = 3`.
    """
    joined, begun = list[str](), dict[str, str]()
    for line in lines:
        process = line.partition(" ")[0]
        if line.endswith(" <unfinished ...>"):
            begun[process] = line.removesuffix(" <unfinished ...>")
        elif match := re.match(r"\d+ +<\.\.\. \w+ resumed>", line):
            joined.append(begun.pop(process) + line[match.end() :])
        else:
            joined.append(line)
    return joined + list(begun.values())  # those of which a process died


def _points(lines: list[str]) -> list[Point]:
    """The calls in a log, which has those on the files only."""
    counts: dict[tuple[str, str], int] = Counter()
    points = set()
    for line in lines:
        if match := re.match(r"(\d+) +(\w+)\(", line):
            counts[match[1], match[2]] += 1
            points.add(Point(match[2], counts[match[1], match[2]]))
    return sorted(points)


class Expected:
    """What a command computes: its own undisturbed results, compared with NumPy."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.points: dict[str, list[Point]] = {}
        self._results: dict[str, Any] = {}
        self._files: dict[str, bytes] = {}
        for name, job in JOBS.items():
            for _ in range(2):  # the first one tells the name of the temporary file
                sandbox.reset(job)
                status, told, lines = sandbox.run(job)
                if status:
                    raise RuntimeError(f"{name}: expected an undisturbed run to succeed, got {told}")
            self.points[name] = _points(lines)
            self._results[name] = json.loads((sandbox.out / "stdout").read_bytes())["result"]
            if job.output:
                self._files[name] = (sandbox.out / job.output).read_bytes()
        counts = np.bincount(np.load(sandbox.folder / "a.npy"), minlength=1024).tolist()
        assert self._results["report"]["histogram"]["storage"]["values"][1:-1] == counts
        np.testing.assert_array_equal(np.load(sandbox.out.parent / "m.npy").T, self.array(self._files["array"]))

    @staticmethod
    def array(content: bytes) -> Any:
        """The array of the `.npy` file that the command writes."""
        return np.frombuffer(content[-70 * 50 * 8 :], np.int64).reshape(50, 70)

    def right(self, name: str, content: bytes) -> bool:
        """Whether an output is the right one; traces have times, so only that they are complete; so have records."""
        if name == "array":
            return content == self._files[name]
        try:
            document = json.loads(content)
            return bool(
                document["traceEvents"]
                if name == "trace"
                else _numbers(document).items() <= self._results[name].items()
            )
        except (ValueError, KeyError):
            return False

    def printed(self, name: str, content: bytes) -> bool:
        """Whether the right result was printed."""
        try:
            return bool(json.loads(content)["result"] == self._results[name])
        except ValueError:
            return False


def _numbers(document: Any) -> Any:
    """The histogram of a result file, whole but for its record, as the command prints it."""
    info = {"baru": {key: value for key, value in document["histogram"]["writer_info"]["baru"].items() if key != "run"}}
    nan = document["nan"]["storage"]["values"]
    return {"histogram": {**document["histogram"], "writer_info": info}, "nan": nan}


def _judge(sandbox: Sandbox, expected: Expected, name: str, status: int, told: str) -> list[str]:
    """What is wrong after a command."""
    job, wrong = JOBS[name], []
    content = (sandbox.out / job.output).read_bytes() if job.output and (sandbox.out / job.output).exists() else None
    right = content is not None and expected.right(name, content)
    printed = expected.printed(name, (sandbox.out / "stdout").read_bytes())
    if job.output and not right and content != OLD:
        wrong.append("torn file" if content else "no file")
    if status == 0 and not (printed and (right or not job.output)):
        wrong.append("false success")
    errors = [line for line in told.splitlines() if line.startswith("error: ")]
    refused_by_python = told.startswith("Fatal Python error: init_sys_streams")
    if status not in (0, KILLED) and not refused_by_python and (len(errors) != 1 or "Traceback" in told):
        wrong.append(f"expected one line, got {told[:300]!r}")
    if status not in (0, KILLED) and (sandbox.folder / "computed").exists() and not (
        printed or (right and name in ("result", "array")) or _kept(expected, name, told)
    ):  # fmt: skip
        wrong.append(f"lost result: {told[:300]!r}")
    return wrong


def _kept(expected: Expected, name: str, told: str) -> bool:
    """Whether the result is where the message says."""
    for place in re.findall(r" kept as (\S+?)(?:;|$)", told, re.MULTILINE):
        content = Path(place).read_bytes()
        if name == "array":
            return expected.right(name, content)
        return expected.printed(name, content) or (name == "result" and expected.right(name, content))
    return False


def _leftovers(sandbox: Sandbox) -> list[str]:
    left = [path.name for path in sandbox.out.iterdir() if path.suffix in (".part", ".lock")]
    left += [path.name for path in (sandbox.folder / "tmp").iterdir() if path.name.startswith("baru-")]
    return left + [path.name for path in (sandbox.state / "runs").glob("*")]


def _next_run(sandbox: Sandbox, expected: Expected, name: str) -> list[str]:
    """What is wrong after the run that follows one that left something."""
    for path in (sandbox.folder / "tmp").iterdir():
        os.utime(path, (0, 0))  # younger ones may belong to a process that has only begun
    status, told, _ = sandbox.run(JOBS[name])
    wrong = _judge(sandbox, expected, name, status, told) + [told[:300]] * bool(status)
    return [f"next run: {one}" for one in (*wrong, *_leftovers(sandbox))]


def run(seed: int, trials: int) -> dict[str, Any]:
    """Draw so many points and faults, without repetition as long as there are others."""
    if not shutil.which("strace"):
        raise MissingError("needs strace")
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        sandbox = Sandbox(Path(folder))
        expected = Expected(sandbox)
        cases = [(name, point, fault) for name in JOBS for point in expected.points[name] for fault in FAULTS
                 if fault != "lost" or (point.call == "write" and name != "report")]  # fmt: skip
        Random(seed).shuffle(cases)
        outcomes: Counter[str] = Counter()
        cleaned, unfired = 0, list[str]()
        failures: list[str] = []
        for number in range(trials):
            name, point, fault = cases[number % len(cases)]
            case = f"{name}: {fault} in {point.call} {point.number}"
            sandbox.reset(JOBS[name])
            status, told, lines = sandbox.run(JOBS[name], point, FAULTS[fault])
            status = KILLED if fault == "kill" and KILLED_TEXT in told else status
            hit = [line for line in lines if "(INJECTED)" in line or "killed by SIGKILL" in line]
            if not hit:
                unfired.append(case)
                continue
            if fault == "lost" and "/stdout>" in hit[0]:  # nobody can see that
                continue
            outcomes[f"{fault}, {'killed' if status == KILLED else 'refused' if status else 'succeeded'}"] += 1
            wrong = _judge(sandbox, expected, name, status, told)
            if "standard output" in told and "/stdout>" not in hit[0]:
                wrong.append(f"another file is blamed: {told[:300]!r}")
            if _leftovers(sandbox):
                cleaned += 1
                wrong += _next_run(sandbox, expected, name)
            failures += [f"{case}: {one}" for one in wrong]
    points = {name: len(found) for name, found in expected.points.items()}
    return {"points": points, "cases": len(cases), "fired": sum(outcomes.values()), "not fired": unfired,
            "cleaned by the next run": cleaned, "outcomes": dict(sorted(outcomes.items())),
            "failures": failures}  # fmt: skip
