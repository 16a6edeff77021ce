"""Signals and the time limit end a run as an exception, which cleans up on its way: the first one, and only once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Timer, current_thread, main_thread
from typing import Any, TypeVar

from pipeline.process import supervisor
from pipeline.process.exit_status import LEAVE_SECONDS, STATUS
from pipeline.process.supervisor import handled_signals

TIME_LIMIT_STATUS = STATUS[signal.SIGUSR1]
Value = TypeVar("Value")

AGAIN_SECONDS = 0.05  # until what was lost is raised again


class Stopped(SystemExit):
    """A signal or the time limit ended the run; its notes say how to resume it, if it can be resumed.

    Not a `PipelineError`, since nothing failed; where nobody handles it, Python ends silently with its status.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status)
        self.status, self.reason = status, reason

    def __str__(self) -> str:
        return self.reason


class _State:
    """What has happened to this process so far."""

    held = 0  # sections that may not be interrupted
    sealed = False  # everything is verified
    hurry: Stopped | None = None  # a signal came after that
    waiting: Stopped | None = None  # raised when no section holds it
    raised: Stopped | None = None
    number = 0  # of its signal
    late: Timer | None = None  # ends this process if it does not leave, where there is no supervisor
    limit: str | None = None


def install() -> dict[signal.Signals, Any]:
    """Set handlers; returns those that were there before. Unblocks the signals: a supervisor has blocked them."""
    numbers = handled_signals()
    before = {number: signal.signal(number, _received) for number in numbers}
    sys.unraisablehook = _unraisable
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    return before


@contextmanager
def handled() -> Iterator[None]:
    """Handlers for the body of the `with` statement; none outside of the main thread, where Python allows none.

    In the command, which has set them for good, this does nothing.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) is _received:
        yield
        return
    hook, before = sys.unraisablehook, install()
    try:
        yield
    finally:
        if _State.limit is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
        if _State.late:
            _State.late.cancel()
        _State.held, _State.sealed = 0, False
        _State.raised = _State.waiting = _State.hurry = _State.late = _State.limit = None


def limit(seconds: float, text: str) -> None:
    """Stop the run after so many seconds, which `text` names."""
    _State.limit = text
    signal.signal(signal.SIGALRM, _received)
    if not supervisor.time_limit(seconds, text):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def seal() -> None:
    """From now on nothing stops the run but force: all is verified, and is written within seconds."""
    _State.sealed = signal.getsignal(signal.SIGTERM) is _received


def unseal() -> None:
    """Another run begins, which signals stop; one that came since `seal` does so now."""
    _State.sealed = False
    if _State.hurry:
        stopped, _State.hurry = _State.hurry, None
        _State.raised = stopped
        raise stopped


def ignore() -> None:
    """Ignore all signals from now on: Python would show a traceback of one that comes while it exits."""
    if current_thread() is main_thread():
        for number in (*STATUS, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)


def in_a_hurry() -> bool:
    """Whether a signal came when all was verified: results must be written before this process is killed."""
    return _State.hurry is not None


@contextmanager
def held() -> Iterator[None]:
    """A section that signals do not interrupt, for what takes moments and must not be left half done."""
    _State.held += 1
    try:
        yield
    finally:
        _State.held -= 1
        if not _State.held and _State.waiting:
            stopped, _State.waiting = _State.waiting, None
            raise stopped


@contextmanager
def uninterrupted(manager: AbstractContextManager[Value]) -> Iterator[Value]:
    """A context that Ctrl-C interrupts only in the body of the `with` statement, not while it begins or ends.

    In a program of somebody else's, which may go on after Ctrl-C: what is left half imported or half started spoils its
    next runs. It waits until that is done; a second one does not, since that may take long. The command has `held`.
    """
    handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(handler) or handler is _received:
        with manager as value:
            yield value
        return
    came = 0

    def wait(number: int, frame: Any) -> None:
        nonlocal came
        came += 1
        if came > 1:
            handler(number, frame)

    def wait_no_longer() -> None:
        nonlocal came
        signal.signal(signal.SIGINT, handler)
        late, came = came == 1, 0
        if late:
            handler(signal.SIGINT, None)

    try:
        signal.signal(signal.SIGINT, wait)
        with manager as value:
            try:
                wait_no_longer()
                yield value
            finally:
                signal.signal(signal.SIGINT, wait)
    finally:
        wait_no_longer()


def stopped_by() -> Stopped | None:
    """What stopped the run. What it interrupted may have failed in a way of its own, like a compiler that imports."""
    return _State.raised


def _unraisable(lost: Any) -> None:
    """Raise again what came in a finalizer or a callback, from which Python lets nothing out."""
    if _State.raised is None or lost.exc_value is not _State.raised:
        sys.__unraisablehook__(lost)
        return
    number, _State.raised = _State.number, None
    again = Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _received(number: int, frame: Any) -> None:
    if _State.raised:
        return
    if number == signal.SIGALRM:
        stopped = Stopped(TIME_LIMIT_STATUS, f"stopped by the time limit of {_State.limit}")
    elif number == signal.SIGINT:
        stopped = Stopped(STATUS[signal.SIGINT], "interrupted")
    else:
        name = signal.Signals(number)
        stopped = Stopped(STATUS[name], f"stopped by {name.name}")
    if _State.sealed:
        _State.hurry = stopped
        return
    _State.raised, _State.number = stopped, number
    if not (supervisor.present() or _State.late):
        _State.late = Timer(LEAVE_SECONDS + 1, os._exit, (stopped.status,))
        _State.late.daemon = True
        with suppress(RuntimeError):  # no memory for a thread
            _State.late.start()
    if _State.held:
        _State.waiting = stopped
    else:
        raise stopped
