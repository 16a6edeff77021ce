"""Gives a run a GPU on which every task fails at once, from a random one on, with an error that ends its context.

The three GPUs are absent, and the tasks run on the CPU, in the processes that dask-cuda starts for GPUs. A process that
stayed alive would fail most tasks of the run, since it is always the first to be free. It must show:

- the run succeeds, with the same SHA-256 as undisturbed;
- at most one failed attempt for each error: a process ends with its first one, and with what its other thread is in;
- a GPU that has failed twice is not started again, and the user is told.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from pipeline.cluster.cuda_errors import STICKY_ERRORS
from tests.chaos.tools.processes import JOBS, Sandbox

SHORT = 1
GPUS = 3
THREADS = 2  # of each process

# Beside the poisoned GPU the others take their time, so that it is started again while there is work.
FAULT = """
class CudaError(Exception):
    status = {status}
calls = 0
def fault():
    global calls
    if os.environ["CUDA_VISIBLE_DEVICES"] != "{gpu}":
        time.sleep(0.3)
        return
    calls += 1
    if calls > {tasks}:
        mark(f"{{os.getpid()}}-{{time.monotonic_ns()}}")
        raise CudaError("planted")
"""


def run(seed: int, trials: int) -> dict[str, Any]:
    """Figures of so many trials, each with another GPU, error and job."""
    random, failures, seen = Random(seed), [], Counter[str]()
    names = [name for name in JOBS if name != "transpose"]
    with tempfile.TemporaryDirectory(prefix="poison-") as folder:
        sandbox = Sandbox(Path(folder), 1, jobs=names)
        sandbox.environment |= {"GPUS": str(GPUS), "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC": "1"}
        for trial in range(trials):
            gpu, name, status = f"GPU-{random.randrange(GPUS)}", random.choice(names), random.choice([*STICKY_ERRORS])
            fault = FAULT.format(gpu=gpu, status=status, tasks=random.choice((0, 0, 1, 3)))
            command = sandbox.start(name, "--device", "gpu", FAULT=fault)
            code, out, err = sandbox.finish(command)
            failed = Counter(path.name.split("-")[0] for path in sandbox.marks.iterdir())
            wrong = []
            if code:
                wrong.append(f"status {code}: {err[-500:]}")
            elif sandbox.digest(name, out) != sandbox.expected[name]:
                wrong.append("another result")
            if max(failed.values(), default=0) > THREADS or len(failed) > 2:
                wrong.append(f"{failed.total()} failed attempts in {len(failed)} processes")
            if (f"{gpu} failed 2 times and is not used any more" in err) != (len(failed) == 2) and not code:
                wrong.append(f"{len(failed)} processes failed, and it said {err}")
            wrong += [f"left {what}" for what in sandbox.left(command.pid, resumable=bool(code))]
            seen += Counter({"errors": len(failed), "failed attempts": failed.total(), "left out": len(failed) == 2})
            failures += [f"trial {trial}, {name}, {gpu}, error {status}: {what}" for what in wrong]
            sandbox.forget()
    return {"failures": failures, **seen}
