"""The process that makes checks beside a GPU, started before this one has imported what it needs to plan them."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import BinaryIO, NamedTuple

from pipeline.cluster.processes import ENVIRONMENT

PROJECT = str(Path(__file__).parents[2])
COMMAND = "from pipeline.engine.array_apart import serve; import sys; serve(int(sys.argv[1]))"


END_SECONDS = 1.0  # for a process that does nothing


class CheckProcess(NamedTuple):
    """A process that waits for a message, then reads its standard input, which is `plan`; it ends with this one."""

    process: Popen[bytes]
    connection: Connection
    plan: BinaryIO


_early: list[CheckProcess] = []


def start_early() -> None:
    """Start one that will probably be needed. It imports its modules while this process imports its own."""
    with suppress(OSError):
        _early.append(start())
        atexit.register(_end_unneeded)


def _end_unneeded() -> None:
    """It would end with this process, too, but Python warns developers of what is left open."""
    while _early:
        process, connection, plan = _early.pop()
        process.kill()
        connection.close()
        plan.close()
        with suppress(TimeoutExpired):
            process.wait(END_SECONDS)


def take() -> CheckProcess:
    """The one that was started early, or a new one."""
    return _early.pop() if _early else start()


def start() -> CheckProcess:
    """Start one; OSError if that is impossible."""
    variables = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(_import_path())}
    with ExitStack() as stack:
        ours, theirs = map(stack.enter_context, Pipe())
        plan = stack.enter_context(os.fdopen(os.memfd_create("plan"), "w+b"))  # of any size: nobody waits for a reader
        process = Popen(
            [sys.executable, "-c", COMMAND, str(theirs.fileno())], stdin=plan, stdout=DEVNULL, stderr=DEVNULL,
            pass_fds=[theirs.fileno()], env=os.environ | variables,
            process_group=0,  # gets no Ctrl-C; in a session of its own it might give way to nobody (sched(7))
        )  # fmt: skip
        stack.pop_all()
    theirs.close()
    return CheckProcess(process, ours, plan)


def _import_path() -> list[str]:
    """Where the other process finds what this one has imported.

    Not in the current folder, where interactive sessions look first: a file beside the data that has the name of a
    module would be run, though this process imported that module before.
    """
    paths = [os.path.abspath(path) for path in sys.path if path]
    return paths if PROJECT in paths else [PROJECT, *paths]
