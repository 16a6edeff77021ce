"""How many processes and open files this machine, its container or shell allows; read before anything starts."""

from __future__ import annotations

import errno
import math
import os
import resource

from pipeline.errors import PipelineError

PROCESS_BYTES = 2**28  # memory reserved per process: twice what one of several takes
# Open files: of a run in this process; with a GPU, whose driver opens its own; and for each process of a cluster, of
# which this one keeps connections, pipes and sockets. A half more than what was seen on a CPU; a GPU's are a guess.
FILES, FILES_OF_GPU, FILES_OF_PROCESS = 24, 64, 16
LEAST_SPACE = 2**30  # of addresses: with 400 MB processes failed for want of it, each in its own way
ENOUGH = 1024  # as most systems allow


def processes_within(number: int) -> int:
    """How many processes, up to `number`, fit into the memory and the open files of the machine or its container."""
    from distributed.system import MEMORY_LIMIT

    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if resource.RLIM_INFINITY != space < LEAST_SPACE:
        return 1
    files = (_left() - FILES) / FILES_OF_PROCESS  # infinite without a limit
    return int(min(number, MEMORY_LIMIT // PROCESS_BYTES, files))


def check_files(gpus: int, processes: int) -> None:
    """Refuse a limit of open files with which the run would fail, or wait for connections that are never accepted.

    Parameters
    ----------
    gpus, processes
        That take part; no processes: the GPU, if any, is that of this one.
    """
    needed = max(FILES + FILES_OF_PROCESS * processes, FILES_OF_GPU if gpus else 0)
    if (left := _left()) < needed:
        fewer = ", or choose fewer GPUs with --gpus" if processes > 1 else ""
        raise PipelineError(f"expected to open {needed} files, got a limit that leaves {left:.0f}; raise it: ulimit -n "
                            f"{ENOUGH}{fewer}")  # fmt: skip


def _left() -> float:
    """Number of files that this process can still open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return math.inf
    try:
        return limit - sum(int(name) < limit for name in os.listdir("/proc/self/fd"))
    except OSError as error:
        return 0 if error.errno == errno.EMFILE else math.inf  # where there is no /proc, nobody knows
