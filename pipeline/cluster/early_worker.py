"""A process that creates a CUDA context, imports modules, reports that it is ready, and waits to become a worker.

python -m pipeline.cluster.early_worker PARENT FD MODULE…
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from pipeline.cluster.cuda_preload import make_context
from pipeline.process.supervisor import end_with_parent

MOST_FDS = 256


def main(parent: int, fd: int, modules: Sequence[str]) -> int:
    """Return the exit status of what came over a socket; modules that cannot be imported are skipped."""
    end_with_parent()
    if os.getppid() != parent:  # it has ended before
        return 0
    make_context()
    for module in modules:
        with suppress(Exception):  # raised again where it is needed
            import_module(module)
    from multiprocessing import forkserver, reduction, resource_tracker, spawn

    from pipeline.cluster import fork_preload

    fork_preload.in_worker()
    with socket.socket(fileno=fd) as connection:
        try:
            connection.sendall(b"r")
            reads, _held, tracker, *inherited = reduction.recvfds(connection, MOST_FDS)
        except (EOFError, OSError):  # it is not needed
            return 0
    # As a process that a fork server has forked.
    own_tracker: Any = resource_tracker._resource_tracker
    server: Any = forkserver._forkserver
    own_tracker._fd, server._inherited_fds = tracker, inherited
    try:
        return int(spawn._main(reads, os.dup(reads)))
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # none, or closed
                stream.flush()


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
