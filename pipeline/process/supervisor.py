"""What the process that works tells the command's first process, which forked it, passes signals on, and outlives it.

Where no process can be forked, and in the Python API, there is no such process; then nothing here has any effect.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from pipeline.process.exit_status import STATUS
from pipeline.process.log_lines import rendered

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

_pipe: int | None = None  # of the process that works, to its supervisor


def handled_signals() -> list[signal.Signals]:
    """Signals to handle: all but those that the command was told to ignore, as `nohup` does."""
    ignorable = (signal.SIGHUP, signal.SIGINT)
    return [number for number in STATUS if number not in ignorable or signal.getsignal(number) is not signal.SIG_IGN]


def supervise() -> None:
    """Return in a new process; this one waits for it, and never returns.

    The signals of `STATUS` are blocked in the new process until it has handlers for them.
    """
    global _pipe
    _open_streams()
    signals = {*handled_signals(), signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    parent = os.getpid()
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        return
    if child:
        os.close(writing)
        _lead(child, reading, signals)
    os.close(reading)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    os.set_blocking(writing, False)
    _pipe = writing
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(STATUS[signal.SIGTERM])


def _lead(child: int, pipe: int, signals: set[signal.Signals]) -> NoReturn:
    """Be the first process, which has to end the other one also if it fails itself: nobody else would."""
    try:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        # Here, where it takes the other process no time; hours later the file might be gone.
        from pipeline.process.first_process import FirstProcess

        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # an ignored signal cannot be waited for
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        os._exit(FirstProcess(child, pipe, signals | {signal.SIGALRM}).run())
    except BaseException as error:
        text = rendered(f"error: the command's first process failed: {type(error).__name__}: {error}") + "\n"
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with suppress(OSError):
            os.write(2, text.encode(errors="backslashreplace"))
        os._exit(1)


def _open_streams() -> None:
    """Open what is closed of the standard streams: else the next file that is opened would become one."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def present() -> bool:
    """Whether this process has a supervisor, which ends it if it does not leave."""
    return _pipe is not None


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


@contextmanager
def limit(seconds: float, text: str) -> Iterator[None]:
    """Kill this process, with a message, if the body of the `with` statement takes longer, even if it holds the GIL."""
    _tell("limit", seconds, text)
    try:
        yield
    finally:
        _tell("limit", 0, "")


def remove_at_end(folder: str) -> None:
    """Remove a folder when this process has ended, if it still exists."""
    _tell("scratch", folder)


def watch(folder: str, seconds: float) -> None:
    """Kill this process if its counters (`pipeline.process.heartbeat`) in a folder stand still that long; 0: never."""
    _tell("watch", folder, seconds)


def advise(text: str) -> None:
    """Print another line, like how to resume, if this process does not end by itself; an empty one is none."""
    _tell("advice", text)


def time_limit(seconds: float, text: str) -> bool:
    """Stop this process after so many seconds, as by a signal, with SIGALRM; False if there is nobody who would."""
    _tell("time", seconds, text)
    return present()


def done(status: int) -> None:
    """All is written: whatever still goes on in this process ends soon, and does not change the exit status."""
    _tell("done", status)


def _tell(*fields: object) -> None:
    if _pipe is not None:
        with suppress(OSError):  # without a supervisor this process is about to end, too
            os.write(_pipe, json.dumps(fields).encode() + b"\n")
            os.kill(os.getppid(), signal.SIGCHLD)  # wakes it
