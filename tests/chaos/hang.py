"""Makes a random task hang for ever, with the GIL or without, or makes all of them slow but never still.

The limit on progress is two seconds. It must show:

- in several processes the process that hangs is killed within the limit and ten seconds, and the run succeeds with the
  same SHA-256 as undisturbed; in one process the command ends with status 1 and one line, and nothing is left but what
  it takes to continue it;
- no process is killed whose tasks last longer than the limit, but take steps.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.tools.processes import CHUNKS, JOBS, Sandbox, until_cut

SHORT = 2
STALL_SECONDS, PATIENCE = 2, 10

# The given call of all hangs: it waits for a lock that it has, which no signal interrupts.
HANGS = """
def fault():
    number = 0
    while not mark(f"call-{{number}}"):
        number += 1
    if number == {number} and mark(f"hangs-{{os.getpid()}}"):
        lock = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.{library}(None).pthread_mutex_lock(lock)
"""
SLOW = """
def fault():
    from pipeline.process.heartbeat import step
    for _ in range(5):
        time.sleep(0.5)
        step()
"""


def run(seed: int, trials: int) -> dict[str, Any]:
    """Figures of so many trials: of four, two hang in several processes, one in the only process, one is slow."""
    random, failures, seen, seconds = Random(seed), [], Counter[str](), []
    names = [name for name in JOBS if name != "survey"]
    with tempfile.TemporaryDirectory(prefix="hang-") as folder:
        sandbox = Sandbox(Path(folder), 2, jobs=names)
        for trial in range(trials):
            name, kind = random.choice(names), ("several", "one", "several", "slow")[trial % 4]
            library = random.choice(("CDLL", "PyDLL"))
            fault = SLOW if kind == "slow" else HANGS.format(number=random.randrange(CHUNKS // 2), library=library)
            several = {"PROCESSES": "1"} if kind == "one" else {}
            command = sandbox.start(name, "--stall-timeout", f"{STALL_SECONDS}s", FAULT=fault, **several)
            took = None if kind == "slow" else until_cut(sandbox, command.pid, STALL_SECONDS + 3 * PATIENCE)
            status, out, err = sandbox.finish(command)
            wrong = []
            if took is not None:
                seen[f"hangs, {library}"] += 1
                seconds.append(took)
                if took > STALL_SECONDS + PATIENCE:
                    wrong.append(f"cut after {took:.1f} s")
            if kind == "one" and took is not None:
                if status != 1 or f"expected progress within {STALL_SECONDS} s" not in err or "Traceback" in err:
                    wrong.append(f"status {status}: {err[-500:]}")
            elif status or sandbox.digest(name, out) != sandbox.expected[name]:
                wrong.append(f"status {status}: {err[-500:]}" if status else "another result")
            if kind == "slow":
                seen["slow chunks"] += CHUNKS
                if "no progress" in err:
                    wrong.append(f"false alarm: {err[-500:]}")
            wrong += [f"left {what}" for what in sandbox.left(command.pid, resumable=bool(status))]
            failures += [f"trial {trial}, {name}, {kind}, {library}: {what}" for what in wrong]
            sandbox.forget()
    return {"failures": failures, **seen, "seconds until cut, most": round(max(seconds, default=0.0), 2)}
