"""Disturbs runs on real GPUs, on all that are visible and on one of them.

The kinds of disturbance take turns: a kernel that writes to an address that is not allocated (CUDA error 700), a kernel
that never ends, processes killed at random instants, and another process that takes the memory of a GPU: before the
run, during it, or during it for three seconds. The limit on progress is two seconds. It must show:

- on several GPUs the run succeeds with the same SHA-256 as undisturbed, whose result is compared with NumPy;
- on one GPU, where the command computes itself, it ends with status 1 and one line that says why, and `--resume` gives
  the same SHA-256; so may runs without memory, which else succeed, as they must where it is given back;
- on several GPUs at most one failed attempt for each error and thread; a GPU that has failed twice is not started
  again, and the user is told;
- a process that hangs has ended within the limit and ten seconds;
- ten seconds later nothing is left: no process, on a GPU or not, and no file but what it takes to continue.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

import psutil

from pipeline.gpu.devices import find_devices
from tests.chaos.kills import disturb
from tests.chaos.resume import KILLED
from tests.chaos.tools.gpus import MIB, WAITS, Hog, Users, endless_kernel, illegal_access
from tests.chaos.tools.harness import MissingError
from tests.chaos.tools.processes import JOBS, Sandbox, until_cut

SHORT = 4  # each kind once
SECONDS = 60  # limit of a command; a GPU without memory costs it up to 13 s, twice
SLOW = 0.1  # seconds that each chunk takes more
THREADS = 2  # of each process
STALL_SECONDS, PATIENCE = 2, 10
BACK_SECONDS = 3  # until memory is given back
START_SECONDS = 30  # until a command has its contexts
WHEN = ("before", "during", "for a while")


@dataclass
class Trial:
    """One disturbed run, and what was seen of it.

    Attributes
    ----------
    sandbox, gpus, name
        Where it runs; UUIDs of its GPUs; the job.
    random
    turn
        Number of trials of this kind before, on as many GPUs.
    wrong, seen, seconds, details
        What went wrong; counts; seconds until a process that hung had ended; what was drawn.
    """

    sandbox: Sandbox
    gpus: Sequence[str]
    name: str
    random: Random
    turn: int
    wrong: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    details: str = ""
    command: Popen[bytes] | None = None

    @property
    def several(self) -> bool:
        """Whether each GPU has a process."""
        return len(self.gpus) > 1

    def start(self, *words: str, **environment: str) -> Popen[bytes]:
        """Start the job."""
        self.command = self.sandbox.start(self.name, *words, **environment)
        return self.command

    def illegal_access(self) -> None:
        """A random GPU fails, once or always, from a random task on."""
        gpu, after, always = self.random.choice(self.gpus), self.random.choice((0, 0, 1, 3)), self.random.random() < 0.6
        self.details = f"{gpu} from task {after} on, {'always' if always else 'once'}"
        fault = illegal_access(gpu, after, always, 0.25 if always else 0.0)
        ended = self.sandbox.finish(self.start(FAULT=fault))
        marks = [path.name for path in self.sandbox.marks.iterdir()]
        failed = Counter(mark.split("-")[1] for mark in marks if mark.startswith("failed-"))
        if "survived" in marks:
            self.wrong.append("the error was none")
        attempts = max(failed.values(), default=0)  # the command's own process only ends once its error has arrived
        if self.several and (attempts > THREADS or len(failed) > 1 + always):
            self.wrong.append(f"{failed.total()} failed attempts in {len(failed)} processes")
        told = f"{gpu} failed 2 times and is not used any more" in ended[2]
        if told != (len(failed) == 2) and not ended[0]:
            self.wrong.append(f"{len(failed)} processes failed, and it said {ended[2][-500:]}")
        if not self.several and failed and ended[0] == 0:
            self.wrong.append("success on a GPU that had failed")
        self.seen |= Counter({"errors": len(failed), "failed attempts": failed.total(), "left out": int(told)})
        self._judge(*ended, "" if self.several else "an access to an illegal address (CUDA error 700)")

    def endless_kernel(self) -> None:
        """A random task launches a kernel that never ends, and waits for it."""
        number, holds_gil = self.random.randrange(8), self.random.random() < 0.5
        self.details = f"task {number}, {'with' if holds_gil else 'without'} the GIL"
        command = self.start("--stall-timeout", f"{STALL_SECONDS}s", FAULT=endless_kernel(number, holds_gil))
        took = until_cut(self.sandbox, command.pid, STALL_SECONDS + 1.5 * PATIENCE)
        if took is not None and took > STALL_SECONDS + PATIENCE:
            self.wrong.append(f"cut after {took:.1f} s, or not at all")
            self.stop()
        ended = self.sandbox.finish(command)
        if (self.sandbox.marks / "survived").exists():
            self.wrong.append("the kernel ended")
        if took is not None:
            self.seen["hangs"], self.seconds = 1, took
            if not self.several and ended[0] == 0:
                self.wrong.append("success in spite of a task that hung")
        self._judge(*ended, "" if self.several else f"expected progress within {STALL_SECONDS} s")

    def killed(self) -> None:
        """Processes of GPUs, or the command's own that computes, are killed at random instants."""
        if self.several:
            wrong, hit = disturb(self.sandbox, self.name, self.random)
            self.wrong += wrong
            self.details = f"{hit['worker']} of the GPUs' processes and {hit['fork server']} fork servers"
            self.seen |= Counter({"workers killed": hit["worker"], "fork servers killed": hit["fork server"]})
            return
        instant = self.random.uniform(0, self.sandbox.seconds[self.name])
        self.details = f"after {instant:.2f} s"
        command, until = self.start(), time.monotonic() + instant
        while command.poll() is None:
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(command.pid).children()
                if children and time.monotonic() >= until:
                    min(children, key=psutil.Process.create_time).kill()
                    break
            time.sleep(0.01)
        ended = self.sandbox.finish(command)
        self.seen["commands killed"] = int(ended[0] in KILLED)
        self._judge(*ended, "", KILLED)

    def out_of_memory(self) -> None:
        """Another process takes nearly all memory of a random GPU."""
        gpu, when = self.random.choice(self.gpus), WHEN[self.turn % len(WHEN)]
        leave = self.random.randrange(*{"before": (200, 600), "during": (0, 600), "for a while": (0, 64)}[when]) * MIB
        with Hog(gpu) as hog:
            if when == "before":
                free = hog.take(leave)
                command = self.start()
            else:
                command = self.start(FAULT=WAITS)
                until = time.monotonic() + START_SECONDS
                while not (self.sandbox.marks / "contexts").exists() and command.poll() is None:
                    if time.monotonic() > until:
                        raise RuntimeError(f"expected contexts within {START_SECONDS} s, got none")
                    time.sleep(0.01)
                free = hog.take(leave)
                (self.sandbox.marks / "taken").touch()
            self.details = f"{gpu} {when}, {free // MIB} MiB left"
            if when == "for a while":
                time.sleep(BACK_SECONDS)
                hog.give_back()
            ended = self.sandbox.finish(command)
        self.seen |= Counter({f"memory taken {when}, {'ended' if ended[0] else 'succeeded'}": 1})
        self._judge(*ended, "" if when == "for a while" else "memory")

    def _judge(self, status: int | None, out: bytes, err: str, reason: str, others: Sequence[int] = ()) -> None:
        """Compare the result, or continue a run that may end with an error for a reason, or with another status."""
        assert self.command
        if status == 0 and self.sandbox.digest(self.name, out) != self.sandbox.expected[self.name]:
            self.wrong.append("another result")
        lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
        one_line = 1 <= len(lines) <= 2 and lines[0].startswith("error: ")  # and how to continue
        said = status == 1 and bool(reason) and one_line and reason in lines[0]
        if status is None:
            self.wrong.append(f"hangs: {err[-500:]}")
        elif status and not said and status not in others:
            self.wrong.append(f"status {status}: {err[-500:]}")
        elif "Traceback" in err:
            self.wrong.append(f"a traceback: {err[-500:]}")
        self.wrong += [f"left {what}" for what in self.sandbox.left(self.command.pid, resumable=bool(status))]
        if status:
            status, out, err = self.sandbox.finish(self.start("--resume"))
            if status != 0:
                self.wrong.append(f"continued with status {status}: {err[-500:]}")
            elif self.sandbox.digest(self.name, out) != self.sandbox.expected[self.name]:
                self.wrong.append("another result when continued")
            if status == 0:
                self.seen["continued"] = 1
                self.wrong += [f"left {what} when continued" for what in self.sandbox.left(self.command.pid)]

    def stop(self) -> None:
        """Kill what runs, since it hangs or the harness itself has failed."""
        for member in self.sandbox.members(self.command.pid) if self.command else ():
            with suppress(psutil.NoSuchProcess):
                member.kill()


KINDS = {
    "illegal access": Trial.illegal_access, "endless kernel": Trial.endless_kernel, "killed": Trial.killed,
    "out of memory": Trial.out_of_memory,
}  # fmt: skip


def _say(text: str) -> None:
    """On stderr, so that something is known of a harness that is stopped."""
    print(text, file=sys.stderr, flush=True)


def run(seed: int, trials: int) -> dict[str, Any]:
    """Figures of so many trials: each kind in turn, first on all GPUs, then on one of them if there are several."""
    devices = find_devices()
    if not devices.usable:
        raise MissingError(f"needs a GPU, but {devices.missing}")
    uuids = [gpu.uuid for gpu in devices.gpus]
    random, failures, seen, seconds = Random(seed), [], Counter[str](), []
    with tempfile.TemporaryDirectory(prefix="gpus-") as folder:
        users, sandboxes = Users(uuids), {}
        for number in (0, *sorted({1, len(uuids)}, reverse=True)):  # the first one compiles the kernels
            (place := Path(folder) / str(number)).mkdir()
            sandboxes[number] = Sandbox(place, 1, SLOW, gpus=uuids[: number or 1], limit=SECONDS)
            took = {name: round(seconds, 1) for name, seconds in sandboxes[number].seconds.items()}
            _say(f"undisturbed on {number or 1}: {took}")
            if sandboxes[number].expected != sandboxes[0].expected:
                failures.append(f"undisturbed: on {number} GPUs another result than on one")
        del sandboxes[0]
        turns = [(number, kind) for number in sandboxes for kind in KINDS]
        for index in range(trials):
            number, kind = turns[index % len(turns)]
            sandbox, gpus = sandboxes[number], [random.choice(uuids)] if number == 1 else uuids
            sandbox.environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
            trial = Trial(sandbox, gpus, random.choice(list(JOBS)), random, index // len(turns))
            began = time.monotonic()
            try:
                KINDS[kind](trial)
            except Exception as error:  # what has been seen so far is worth keeping
                trial.wrong.append(f"{type(error).__name__}: {error}")
                trial.stop()
            trial.wrong += [f"left {what}" for what in users.left()]
            sandbox.forget()
            what = f"trial {index}, {kind}, {trial.name} on {number} GPU{'s'[: number > 1]}, {trial.details}"
            took, cut = time.monotonic() - began, f", cut after {trial.seconds:.1f} s" if trial.seconds else ""
            _say(f"{what}: {took:.1f} s{cut}, {'; '.join(trial.wrong) or 'ok'}")
            failures += [f"{what}: {each}" for each in trial.wrong]
            seen += trial.seen + Counter({f"{kind}, {number} GPU{'s'[: number > 1]}": 1})
            seconds += [trial.seconds] if trial.seconds else []
    return {
        "failures": failures, **seen, "seconds until cut, most": round(max(seconds, default=0.0), 2),
        "left on GPUs, by": "processes" if users.listed else "memory",
    }  # fmt: skip
