"""A helper process that checks beside a GPU, or computes beside imports. It starts before its work is planned."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import ExitStack, suppress
from functools import cache
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from socket import socket
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import BinaryIO, NamedTuple

from pipeline.cluster.processes import ENVIRONMENT
from pipeline.process.heartbeat import step, work_of
from pipeline.process.scratch_folder import scratch_folder

PROJECT = str(Path(__file__).parents[2])
CHECKS, COMPUTES = (
    "pipeline.engine.array_check_process",
    "pipeline.engine.array_first_region",
)  # modules whose `serve` it runs
COMMAND = """import gc, importlib, os, sys
from multiprocessing.connection import Connection
gc.set_threshold(1_000_000)  # nothing that is imported is garbage
try:
    importlib.import_module(sys.argv[1]).serve(Connection(int(sys.argv[2])))
finally:  # at once: the work of its threads is no longer needed
    os._exit(0)"""

LOOK_SECONDS = 1.0  # between two looks at a helper that was asked
END_SECONDS = 1.0  # for a process that does nothing


class CheckProcess(NamedTuple):
    """A process that waits for a message, then reads its standard input, which is `plan`. It ends with this process."""

    process: Popen[bytes]
    connection: Connection
    plan: BinaryIO
    module: str = CHECKS


_early: list[CheckProcess] = []


def start_early(module: str = CHECKS) -> None:
    """Start a helper that will probably be needed. It imports its modules while this process imports its own."""
    with suppress(OSError):
        _early.append(start(module))
        atexit.register(_end_unneeded)


def _end_unneeded() -> None:
    """End a helper that was not taken: it would end with this process, but Python warns developers of open files."""
    while _early:
        process, connection, plan, _ = _early.pop()
        plan.close()
        end(process, connection)


def take(module: str) -> CheckProcess | None:
    """The helper that was started early for this module; None if there is none."""
    return _early.pop() if _early and _early[0].module == module else None


def start(module: str) -> CheckProcess:
    """Start one; OSError if that is impossible."""
    variables = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(_import_path()), "TMPDIR": _scratch_folder()}
    with ExitStack() as stack:
        ours, theirs = map(stack.enter_context, Pipe())
        plan = stack.enter_context(os.fdopen(os.memfd_create("plan"), "w+b"))  # of any size: nobody waits for a reader
        process = Popen(
            [sys.executable, "-c", COMMAND, module, str(theirs.fileno())], stdin=plan, stdout=DEVNULL, stderr=DEVNULL,
            pass_fds=[theirs.fileno()], env=os.environ | variables,
            process_group=0,  # gets no Ctrl-C; in a session of its own it might give way to nobody (sched(7))
        )  # fmt: skip
        stack.pop_all()
    theirs.close()
    return CheckProcess(process, ours, plan, module)


@cache
def _scratch_folder() -> str:
    """Where helpers compile, and keep what cannot be cached: they are killed, and remove nothing."""
    until_exit = ExitStack()
    folder = until_exit.enter_context(scratch_folder())
    atexit.register(until_exit.close)  # last, so that it runs before the folder's own finalizer
    return str(folder)


def comes(process: Popen[bytes], connection: Connection | socket, seconds: float) -> bool:
    """Wait for an answer; False if the process does nothing for so long, unless that is 0."""
    idle, before = 0, work_of(process.pid)
    while not wait([connection], LOOK_SECONDS):
        step()  # for the watch: this wait has a limit
        now = work_of(process.pid)
        idle, before = idle + 1 if now == before else 0, now
        if 0 < seconds <= idle * LOOK_SECONDS:
            return False
    return True


def end(process: Popen[bytes], connection: Connection) -> None:
    """Kill a helper, unless it has ended, so that it writes nothing more."""
    process.kill()
    connection.close()
    with suppress(TimeoutExpired):
        process.wait(END_SECONDS)


def _import_path() -> list[str]:
    """Where the helper finds the modules that this process has imported.

    Not in the current folder, where interactive sessions look first: a file beside the data that has the name of a
    module would be run, though this process imported that module before.
    """
    paths = [os.path.abspath(path) for path in sys.path if path]
    return paths if PROJECT in paths else [PROJECT, *paths]
