"""The command's first process: it passes signals on to the one that works, which it forked, and cleans up after it.

It has no threads and takes no locks, so it can end the other one whatever that is doing: a call that holds the GIL, a
library's clean-up that never ends. It adopts what the other one leaves behind, and kills it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from shutil import rmtree
from time import monotonic

from pipeline.process.exit_status import LEAVE_SECONDS, STATUS
from pipeline.process.heartbeat import Looker, standstill
from pipeline.process.log_lines import rendered

AGAIN_SECONDS = 0.5  # `timeout`, and some batch systems, send the same signal to a process and to its group
EXIT_SECONDS = 10  # from the last output to the end of the process
SWEEP_SECONDS = 2  # for processes that end on their own: multiprocessing's resource tracker removes semaphores
LOOK_SECONDS = 2  # between two looks at the progress of the process that works
GRACE_SECONDS = 3  # for the other process to end itself when it stands still
LEAST_SECONDS = 1e-3  # of a timer, for which 0 means never


class FirstProcess:
    """When and why to kill the other process, and what to do then."""

    def __init__(self, child: int, pipe: int, signals: set[signal.Signals]) -> None:
        self._child, self._pipe, self._signals = child, pipe, signals
        os.set_blocking(pipe, False)
        self._text = b""
        self._until: float | None = None  # when to kill
        self._why = ""
        self._status: int | None = None  # exit status if it is killed
        self._signalled: float | None = None
        self._time: tuple[float, str] | None = None  # when its time is up, and the time limit
        self._done = False
        self._advice = ""
        self._folders: list[str] = []
        self._watched: tuple[str, float] | None = None
        self._looker: Looker | None = None
        self._looked = 0.0

    def run(self) -> int:
        """Exit status of the command."""
        while True:
            # Not `sigtimedwait`: after SIGSTOP and SIGCONT, and its timeout meanwhile, it returns a random signal.
            signal.setitimer(signal.ITIMER_REAL, max(self._wait_seconds(), LEAST_SECONDS))
            received = signal.sigwaitinfo(self._signals)
            self._read()
            if received.si_signo not in (signal.SIGCHLD, signal.SIGALRM):
                self._pass_on(signal.Signals(received.si_signo))
            if self._time is not None and monotonic() >= self._time[0]:
                self._stop(signal.SIGALRM, STATUS[signal.SIGUSR1], f"the time limit of {self._time[1]}")
            self._look()
            if (ended := self._ended()) is not None:
                return self._finish(ended)
            if self._until is not None and monotonic() >= self._until:
                return self._kill()

    def _wait_seconds(self) -> float:
        left = 3600.0 if self._watched is None else LOOK_SECONDS
        times = [self._until, None if self._time is None else self._time[0]]
        return min([left, *(when - monotonic() for when in times if when is not None)])

    def _read(self) -> None:
        """Messages of the other process."""
        with suppress(BlockingIOError):
            while data := os.read(self._pipe, 2**16):
                self._text += data
        *messages, self._text = self._text.split(b"\n")
        for message in messages:
            kind, *fields = json.loads(message)
            getattr(self, f"_on_{kind}")(*fields)

    def _on_limit(self, seconds: float, text: str) -> None:
        if self._signalled is None:
            self._until = monotonic() + seconds if seconds else None
            self._why, self._status = text, 1

    def _on_scratch(self, folder: str) -> None:
        self._folders.append(folder)

    def _on_advice(self, text: str) -> None:
        self._advice = text

    def _on_watch(self, folder: str, seconds: float) -> None:
        self._watched, self._looker = (folder, seconds) if seconds else None, None

    def _on_time(self, seconds: float, text: str) -> None:
        if self._signalled is None:
            self._time = monotonic() + seconds, text

    def _on_done(self, status: int) -> None:
        self._watched = self._time = None
        self._done = True
        until = monotonic() + EXIT_SECONDS
        self._until = until if self._signalled is None or self._until is None else min(until, self._until)
        self._why, self._status = "", status

    def _pass_on(self, number: signal.Signals) -> None:
        """Pass a signal on; a second one, unless it is the same event, ends the other process at once."""
        now = monotonic()
        if self._done:  # nothing is left to be stopped
            self._until = now
        elif self._signalled is None:
            self._stop(number, STATUS[number], number.name)
        elif now - self._signalled > AGAIN_SECONDS:
            self._until, self._why = now, f"killed by a second signal, {number.name}"

    def _stop(self, number: signal.Signals, status: int, by: str) -> None:
        """Have the other process leave."""
        self._watched = self._time = None
        self._signalled = monotonic()
        self._until, self._status = self._signalled + LEAVE_SECONDS, status
        self._why = f"stopped by {by}, and killed because it did not leave within {LEAVE_SECONDS} s"
        with suppress(ProcessLookupError):
            os.kill(self._child, number)

    def _look(self) -> None:
        """Look whether the other process gets on."""
        if self._watched is None:
            return
        folder, seconds = self._watched
        if self._looker is None:
            self._looker = Looker(folder)
        seen = self._looker.look().get(self._child)
        before, self._looked = self._looked, monotonic()
        if self._looked - before > 2 * LOOK_SECONDS:  # both processes were suspended, or it is the first look
            self._looker = None
        elif seen and seen.idle > seconds + GRACE_SECONDS:
            self._until, self._status = monotonic(), 1
            self._why = standstill(seen.tasks, seconds)

    def _ended(self) -> int | None:
        """Wait status of the other process once it has ended; what else has ended is forgotten."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid == self._child:
                return status
            if not pid:
                return None

    def _kill(self) -> int:
        os.kill(self._child, signal.SIGKILL)
        self._clean_up()
        if self._why:
            self._say(f"error: {self._why}")
        return 1 if self._status is None else self._status

    def _finish(self, ended: int) -> int:
        self._clean_up()
        code = os.waitstatus_to_exitcode(ended)
        if self._done and self._status is not None:
            return self._status  # threads that still compute may break the interpreter's end
        if code >= 0:
            return code
        if self._signalled is not None and -code in STATUS:  # which Python handles no longer while it exits
            return STATUS[signal.Signals(-code)] if self._status is None else self._status
        name = signal.Signals(-code).name
        self._say(f"error: the process that computes was ended by {name}; if nobody sent it, look into the kernel's "
                  "log, which tells when memory ran out")  # fmt: skip
        return 128 - code

    def _say(self, line: str) -> None:
        lines = [line, self._advice] if self._advice else [line]
        with suppress(OSError):
            os.write(2, "".join(f"{rendered(line)}\n" for line in lines).encode(errors="surrogateescape"))

    def _clean_up(self) -> None:
        """End every process that was started, and remove the scratch folders."""
        began = monotonic()
        while True:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            left = list(_children())
            late = monotonic() - began
            if not left or late > 2 * SWEEP_SECONDS:
                break
            for pid, words in left:
                if b"resource_tracker" not in words or late > SWEEP_SECONDS:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD}, 0.02)
        for folder in filter(os.path.isdir, self._folders):
            rmtree(folder, ignore_errors=True)


def _children() -> Iterator[tuple[int, bytes]]:
    """Processes whose parent is this one, by number and command line."""
    own = str(os.getpid()).encode()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return  # no need to look through all processes
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
            if parent == own and state != b"Z":
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    yield int(name), file.read()
