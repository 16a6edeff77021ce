"""Kills worker processes, and now and then their fork server, with SIGKILL at random instants of a run.

Instants are drawn from when the fork server starts to beyond the end of an undisturbed run, so that starting, merging
and closing are among them. It must show, for every job:

- the same SHA-256 of the result, and of the output, as of an undisturbed run, which is compared with NumPy;
- no hang: four minutes at most, of which a lost start may take one;
- nothing left ten seconds later: no process, no scratch folder, no semaphore, no temporary file.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil

from tests.chaos.tools.processes import JOBS, Sandbox, fork_servers, workers

SHORT = 2
SERVER_SHARE = 0.1  # of kills that hit the fork server


def disturb(sandbox: Sandbox, name: str, random: Random) -> tuple[list[str], Counter[str]]:
    """Run a job and kill some of its processes: what went wrong, and what was hit."""
    command, began, hit = sandbox.start(name), time.monotonic(), Counter[str]()
    while not fork_servers(command.pid) and command.poll() is None:
        time.sleep(0.01)
    rest = sandbox.seconds[name] - (time.monotonic() - began)
    instants = sorted(random.uniform(0, 1.1 * max(rest, 1.0)) for _ in range(random.choice((1, 2, 3))))
    started = time.monotonic()
    for instant in instants:
        time.sleep(max(0.0, started + instant - time.monotonic()))
        kind = "fork server" if random.random() < SERVER_SHARE else "worker"
        while command.poll() is None:
            if victims := fork_servers(command.pid) if kind == "fork server" else workers(command.pid):
                with suppress(psutil.NoSuchProcess):
                    random.choice(list(victims)).kill()
                    hit[kind] += 1
                break
            time.sleep(0.01)
    status, out, err = sandbox.finish(command)
    wrong = []
    if status is None:
        wrong.append(f"hangs: {err[-300:]}")
    elif status:
        wrong.append(f"status {status}: {err[-300:]}")
    elif sandbox.digest(name, out) != sandbox.expected[name]:
        wrong.append("another result")
    if any("Traceback" in line for line in err.splitlines()):
        wrong.append(f"a traceback: {err[:300]}")
    hit["seconds, most"] = round(time.monotonic() - began)
    wrong += [f"left {what}" for what in sandbox.left(command.pid, resumable=bool(status))]
    sandbox.forget()
    return wrong, hit


def run(seed: int, trials: int) -> dict[str, Any]:
    """Figures of so many trials, each of a random job in two processes."""
    random, failures, kills = Random(seed), [], Counter[str]()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        sandbox = Sandbox(Path(folder), 2)
        for number in range(trials):
            name = random.choice(list(JOBS))
            wrong, hit = disturb(sandbox, name, random)
            longest = max(kills["seconds, most"], hit["seconds, most"])
            kills += hit
            kills["seconds, most"] = longest
            kills["runs that were hit"] += bool(hit["worker"] + hit["fork server"])
            failures += [f"trial {number}, {name}: {what}" for what in wrong]
    return {"failures": failures, **kills}
