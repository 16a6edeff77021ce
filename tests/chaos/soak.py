"""Kills a worker process every minute of a run that lasts as many minutes as there are trials.

The file is sparse, and as long as two processes count in that time. It must show the right counts, and nothing left ten
seconds later; in the long form also

- at least 90 % of the samples a second of as long a run undisturbed, which follows;
- as much memory and as many descriptors of the process that leads the others in the last third of the run as in the
  first: a tenth and 32 MiB more, and ten descriptors, at most.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import psutil

from tests.chaos.tools.processes import COMMAND, Sandbox, fork_servers, workers

SHORT = 1
INTERVAL = {True: 3, False: 60}  # seconds between kills, in the short form and otherwise
CHUNK_BYTES = 2**26
TRIED_BYTES = {True: 2**30, False: 2**33}  # likewise, to see how fast it is
MOST_BYTES = 2**43
GOODPUT = 0.9


def _start(sandbox: Sandbox, nbytes: int) -> subprocess.Popen[bytes]:
    with open(sandbox.folder / "sparse.bin", "wb") as file:
        file.truncate(nbytes)
    words = (
        "histogram",
        "sparse.bin",
        "--dtype",
        "uint8",
        "--verify",
        "sample",
        "-c",
        str(CHUNK_BYTES),
        "--json",
        "-q",
    )
    return subprocess.Popen([sys.executable, "-c", COMMAND, *words], cwd=sandbox.folder, env=sandbox.environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip


def _rate(sandbox: Sandbox, nbytes: int) -> float:
    """Bytes per second, undisturbed."""
    out, _ = _start(sandbox, nbytes).communicate()
    return float(nbytes / json.loads(out)["performance"]["seconds"])


def _leader(pid: int) -> psutil.Process:
    """The process that starts the others: the parent of the fork server."""
    while not (servers := fork_servers(pid)):
        time.sleep(0.05)
    return servers[0].parent()


def run(seed: int, trials: int) -> dict[str, Any]:
    """Figures of a run of so many minutes."""
    random, failures, short = Random(seed), [], trials <= SHORT
    interval, tried = INTERVAL[short], TRIED_BYTES[short]
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        sandbox = Sandbox(Path(folder), 2, slow=0.0, jobs=())
        rate = _rate(sandbox, tried)
        nbytes = min(int(rate * (trials + 0.5) * interval) // CHUNK_BYTES * CHUNK_BYTES, MOST_BYTES)
        command = _start(sandbox, nbytes)
        leader, began, kills = _leader(command.pid), time.monotonic(), 0
        memory, descriptors = [], []
        while command.poll() is None:
            with suppress(psutil.Error):
                memory.append(leader.memory_info().rss)
                descriptors.append(leader.num_fds())
                if time.monotonic() - began > (kills + 1) * interval and (victims := workers(command.pid)):
                    random.choice(list(victims)).kill()
                    kills += 1
            time.sleep(min(1.0, interval / 10))
        out, err = command.communicate()
        if command.returncode:
            return {"failures": [f"status {command.returncode}: {err.decode()[-500:]}"], "kills": kills}
        result = json.loads(out)
        counts = result["result"]["histogram"]["storage"]["values"][1:-1]
        if counts[0] != nbytes or any(counts[1:]):
            failures.append(f"{counts[0]} zeros of {nbytes}, {sum(counts[1:])} others")
        # As many bytes again: the first gigabytes into an empty page cache take longer than all others.
        undisturbed = rate if short else _rate(sandbox, nbytes)
        goodput = nbytes / result["performance"]["seconds"] / undisturbed
        third = max(1, len(memory) // 3)
        grown = median(memory[-third:]) - median(memory[:third])
        more = median(descriptors[-third:]) - median(descriptors[:third])
        if not short and goodput < GOODPUT:
            failures.append(f"goodput {goodput:.2f}")
        if not short and (grown > 0.1 * median(memory[:third]) + 2**25 or more > 10):
            failures.append(f"{grown} bytes of memory and {more} descriptors more")
        failures += [f"left {what}" for what in sandbox.left(command.pid)]
    seconds = result["performance"]["seconds"]
    return {"failures": failures, "kills": kills, "bytes": nbytes, "seconds of the run": seconds,
            "goodput": round(goodput, 3), "memory grew by": int(grown), "descriptors more": more}  # fmt: skip
