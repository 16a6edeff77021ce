"""Commands that run in several processes on small files, slowly enough to be disturbed, and what they leave."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

LEAVE_SECONDS = 10  # until nothing may be left
SECONDS = 240  # limit of a command, which takes about three

# The command with as many processes as PROCESSES says, whatever the size of its files; or one for each of GPUS absent
# GPUs, whose tasks run on the CPU; or, with REAL_GPUS, one for each GPU that is visible. Each chunk takes SLOW seconds
# more, and what FAULT defines is done first. The command notes its semaphores; `mark` leaves a mark once.
COMMAND = """
import ctypes, os, sys, time
from contextlib import contextmanager
from dataclasses import replace
import pipeline.__main__
SLOW, GPUS, MARKS = float(os.environ["SLOW"]), int(os.environ.get("GPUS", "0")), os.environ["MARKS"]
def mark(name):
    try:
        os.close(os.open(os.path.join(MARKS, name), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
def fault():
    pass
exec(os.environ.get("FAULT", ""))
def slow(workflow):
    compute = workflow.compute
    def slowly(*arguments):
        fault()
        time.sleep(SLOW)
        return compute(*arguments)
    return replace(workflow, compute=slowly)
prepare = pipeline.__main__.prepare
def prepare_slowly():
    prepare()
    from multiprocessing import synchronize
    from pipeline import threads
    from pipeline.cluster import gpu_count, placement
    from pipeline.gpu import devices
    number = int(os.environ["PROCESSES"])
    placement.PROCESSES_FROM_BYTES = 0 if number > 1 else 2**62
    placement.cores, threads.cores = lambda: 2, lambda: 2
    placement.processes = threads.processes = lambda compiled: number
    make_name = synchronize.SemLock._make_name
    def noting():
        name = make_name()
        with open(os.environ["NOTES"], "a") as file:
            file.write(name + chr(10))
        return name
    synchronize.SemLock._make_name = staticmethod(noting)
    if GPUS:
        gpus = tuple(devices.Gpu(i, "absent", f"GPU-{i}", 2**37, 2**37) for i in range(GPUS))
        placement.find_devices = devices.find_devices = lambda: devices.Devices(gpus, "1", "1", None)
    if GPUS or "REAL_GPUS" in os.environ:
        placement.best_number = gpu_count.best_number = lambda load, usable, *_: usable
    import pipeline.cli.jobs, pipeline.cli.main
    from workflows import WORKFLOWS
    for name in ("histogram", "reduce", "transpose"):
        pipeline.cli.main.cli.commands[name] = pipeline.cli.jobs.job_command(slow(WORKFLOWS[name]))
    if GPUS:
        import pipeline.engine.run_loop
        opened = placement.open_workers
        @contextmanager
        def on_cpu(*arguments):
            with opened(*arguments) as workers:
                yield replace(workers, device="cpu")
        pipeline.engine.run_loop.open_workers = on_cpu
pipeline.__main__.prepare = prepare_slowly
pipeline.__main__.main()
"""


@dataclass(frozen=True)
class Job:
    """A command, and its output in the working folder, if any."""

    words: tuple[str, ...]
    output: str | None = None


CHUNKS = 32
SAMPLES = 2**16
JOBS = {
    "histogram": Job(("histogram", "a.bin", "-c", str(SAMPLES * 4 // CHUNKS), "--json", "-q")),
    "survey": Job(("histogram", "a.bin", "--range", "auto", "-c", str(SAMPLES * 8 // CHUNKS), "--json", "-q")),
    "reduce": Job(("reduce", "a.bin", "--op", "sum,std", "--verify", "full", "-c", str(SAMPLES * 4 // CHUNKS), "--json",
                   "-q")),
    "transpose": Job(("transpose", "m.npy", "-o", "t.npy", "-c", "32KiB", "--json", "-q"), "t.npy"),
}  # fmt: skip


class Sandbox:
    """A folder with inputs, temporary files and a state folder of its own.

    Parameters
    ----------
    folder
    processes
        Of a command on the CPU.
    slow
        Seconds that each chunk takes more.
    jobs
        Names of `JOBS`.
    gpus
        UUIDs of real GPUs: commands compute on these, in a process for each if there are several.
    limit
        Seconds of a command until it counts as one that hangs.

    Attributes
    ----------
    expected
        SHA-256 of the result of each undisturbed job; these have been compared with NumPy.
    seconds
        How long each of them took.
    """

    def __init__(
        self, folder: Path, processes: int, slow: float = 0.03, jobs: Sequence[str] = tuple(JOBS),
        gpus: Sequence[str] = (), limit: float = SECONDS,
    ) -> None:  # fmt: skip
        self.folder, self.notes, self.marks = folder, folder / "notes", folder / "marks"
        self._words, self._limit = ["--device", "gpu"] if gpus else [], limit
        self.marks.mkdir()
        random = np.random.default_rng(0)
        samples = random.integers(0, 1024, SAMPLES).astype("<i4")
        samples.tofile(folder / "a.bin")
        np.save(folder / "m.npy", random.integers(0, 2**40, (512, 128)))
        (folder / "tmp").mkdir()
        self.environment = os.environ | {"PROCESSES": str(processes), "SLOW": str(slow)}
        for name, place in {"XDG_STATE_HOME": "state", "TMPDIR": "tmp", "NOTES": "notes", "MARKS": "marks"}.items():
            self.environment[name] = str(folder / place)
        self.environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")))
        )
        if gpus:
            self.environment |= {"REAL_GPUS": "1", "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        self.expected, self.seconds = {}, {}
        for name in jobs:
            began = time.monotonic()
            status, out, err = self.finish(self.start(name))
            self.seconds[name] = time.monotonic() - began
            if (status, err) != (0, ""):
                raise RuntimeError(f"expected an undisturbed {name}, got status {status} and {err}")
            if name == "histogram":
                counts = json.loads(out)["result"]["histogram"]["storage"]["values"][1:-1]
                assert counts == np.bincount(samples, minlength=1024).tolist()
            if name == "transpose":
                np.testing.assert_array_equal(np.load(folder / "t.npy"), np.load(folder / "m.npy").T)
            self.expected[name] = self.digest(name, out)

    def start(self, name: str, *more: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a job, in a session of its own."""
        words = [sys.executable, "-c", COMMAND, *JOBS[name].words, *self._words, *more]
        pipe, environment = subprocess.PIPE, self.environment | environment
        return subprocess.Popen(words, cwd=self.folder, env=environment, stdout=pipe, stderr=pipe,
                                start_new_session=True)  # fmt: skip

    def finish(self, process: subprocess.Popen[bytes]) -> tuple[int | None, bytes, str]:
        """Status, None if it hangs, stdout, stderr."""
        try:
            out, err = process.communicate(timeout=self._limit)
        except subprocess.TimeoutExpired:
            for member in self.members(process.pid):
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            err = b""
            with suppress(subprocess.TimeoutExpired):  # a process that waits for a dead device cannot be killed
                _, err = process.communicate(timeout=LEAVE_SECONDS)
            return None, b"", err.decode(errors="replace")
        return process.returncode, out, err.decode(errors="replace")

    def digest(self, name: str, out: bytes) -> str:
        """SHA-256 of a result and of the output, which is removed."""
        sha = hashlib.sha256(json.dumps(json.loads(out)["result"]).encode())
        if output := JOBS[name].output:
            sha.update((self.folder / output).read_bytes())
            (self.folder / output).unlink()
        return sha.hexdigest()

    @staticmethod
    def members(session: int) -> list[psutil.Process]:
        """Processes of a session that have not ended."""
        alive = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return alive

    def left(self, session: int, resumable: bool = False) -> list[str]:
        """What is left ten seconds after a command has ended; a run that can be resumed may keep what that takes."""
        until = time.monotonic() + LEAVE_SECONDS
        while (found := self._left(session, resumable)) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def _left(self, session: int, resumable: bool) -> list[str]:
        found = [f"process {process.pid}" for process in self.members(session)]
        found += [f"folder {path.name}" for path in (self.folder / "tmp").iterdir()]
        names = self.notes.read_text().split() if self.notes.exists() else []
        found += [f"semaphore {name}" for name in names if Path(f"/dev/shm/sem.{name.lstrip('/')}").exists()]
        if not resumable:
            found += [f"file {path.name}" for path in self.folder.iterdir() if path.name.startswith(".")]
            found += [str(path) for path in (self.folder / "state").rglob("*") if path.is_file()]
        return found

    def forget(self) -> None:
        """Remove what the last command may have left for another one that continues it, its notes and its marks."""
        self.notes.unlink(missing_ok=True)
        for path in self.marks.iterdir():
            path.unlink()
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        for path in self.folder.glob(".*"):
            path.unlink()


def until_cut(sandbox: Sandbox, pid: int, most: float) -> float | None:
    """Seconds, at most so many, until the process that left a mark ``hangs-PID`` has ended; None if none did."""
    until = time.monotonic() + SECONDS
    while not (marks := list(sandbox.marks.glob("hangs-*"))):
        if not _runs(pid) or time.monotonic() > until:
            return None
        time.sleep(0.02)
    hung, began = int(marks[0].name.partition("-")[2]), marks[0].stat().st_mtime
    while _runs(hung) and time.time() - began < most:
        time.sleep(0.02)
    return time.time() - began


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def fork_servers(pid: int) -> Sequence[psutil.Process]:
    """The fork server among the descendants of a process, if it has started."""
    found = []
    for child in _descendants(pid):
        with suppress(psutil.NoSuchProcess):  # it may end while it is looked at
            if _is_server(child) and not _is_server(child.parent()):
                found.append(child)
    return found


def workers(pid: int) -> Sequence[psutil.Process]:
    """Processes that the fork server has forked."""
    return [child for server in fork_servers(pid) for child in _descendants(server.pid)]


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _is_server(process: Any) -> bool:
    try:
        return process is not None and "multiprocessing.forkserver" in " ".join(process.cmdline())
    except psutil.Error:
        return False
