"""Stops a command by SIGTERM, SIGHUP, SIGUSR1 or SIGINT, at random instants from when it handles them; continues it.

The signal goes to the command, or to all its processes at once, as a terminal and some batch systems send it; the
command computes itself or in two processes. It must show:

- exit status 143, 129, 75 or 130, one line and, if there is something to continue, how; or 0 and a result, if it came
  when all was verified;
- the command is gone ten seconds after the signal, and leaves no process, scratch folder or semaphore, and no file but
  what it takes to continue;
- the same command with --resume gives the same SHA-256 as an undisturbed run, and leaves nothing at all.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from pipeline.process.exit_status import STATUS
from tests.chaos.tools.processes import JOBS, LEAVE_SECONDS, Sandbox

SHORT = 3
SAID = re.compile(r"(stopped by SIG[A-Z0-9]+|interrupted)(: nothing was written)?")  # without it, before the job began


def _handles_signals(process: subprocess.Popen[bytes]) -> bool:
    """Whether the command's first process waits for signals; before that Python itself is starting."""
    with suppress(OSError), open(f"/proc/{process.pid}/status") as file:
        blocked = next(line for line in file if line.startswith("SigBlk:")).split()[1]
        return bool(int(blocked, 16) >> (signal.SIGUSR1 - 1) & 1)
    return True


def _trial(sandbox: Sandbox, name: str, number: signal.Signals, whole: bool, random: Random) -> tuple[list[str], float]:
    """What went wrong, and seconds from the signal to the end; 0 if the command had ended before."""
    command, began = sandbox.start(name), time.monotonic()
    while command.poll() is None and not _handles_signals(command):
        time.sleep(0.001)
    rest = sandbox.seconds[name] - (time.monotonic() - began)
    time.sleep(random.uniform(0, 1.1 * max(rest, 0.5)))
    sent = time.monotonic()
    with suppress(ProcessLookupError):
        if command.poll() is None:
            (os.killpg if whole else os.kill)(command.pid, number)
        else:
            sent = 0.0
    status, out, err = sandbox.finish(command)
    took = time.monotonic() - sent if sent else 0.0
    wrong = []
    if took > LEAVE_SECONDS:
        wrong.append(f"gone after {took:.1f} s: {err}")
    if status == STATUS[number]:
        lines = err.splitlines()
        if not 1 <= len(lines) <= 2 or not SAID.fullmatch(lines[0]) or out:
            wrong.append(f"said {err!r}")
        wrong += [f"left {what}" for what in sandbox.left(command.pid, resumable=True)]
        command = sandbox.start(name, "--resume")
        status, out, err = sandbox.finish(command)
    if status != 0:
        wrong.append(f"status {status}: {err[-500:]}")
    elif sandbox.digest(name, out) != sandbox.expected[name]:
        wrong.append("another result")
    if status == 0:
        wrong += [f"left {what}" for what in sandbox.left(command.pid)]
    sandbox.forget()
    return wrong, took


def run(seed: int, trials: int) -> dict[str, Any]:
    """Figures of so many trials, each of a random job, signal and target."""
    random, failures, sent, seconds = Random(seed), [], Counter[str](), []
    with tempfile.TemporaryDirectory(prefix="signals-") as folder:
        sandboxes = {}
        for processes in (1, 2):
            (place := Path(folder) / str(processes)).mkdir()
            sandboxes[processes] = Sandbox(place, processes)
        for trial in range(trials):
            name, number, whole = random.choice(list(JOBS)), random.choice(list(STATUS)), random.random() < 0.4
            processes = random.choice((1, 2))
            wrong, took = _trial(sandboxes[processes], name, number, whole, random)
            if took:
                sent[number.name] += 1
                seconds.append(took)
            how = f"{name} in {processes} with {number.name}{' to all' * whole}"
            failures += [f"trial {trial}, {how}: {what}" for what in wrong]
    return {"failures": failures, **sent, "seconds until gone, most": round(max(seconds, default=0.0), 2)}
