"""The command's first process: it passes signals on, ends the other one whatever that does, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

# What hangs, holds the GIL and is not interrupted by signals: it waits for a lock that it has.
HANGS = "lock = ctypes.create_string_buffer(64); [ctypes.PyDLL(None).pthread_mutex_lock(lock) for _ in range(2)]"
PROGRAM = """
import ctypes, os, signal, subprocess, sys, threading, time
from pipeline.process import first_process, heartbeat, signals, supervisor
first_process.LEAVE_SECONDS = first_process.EXIT_SECONDS = 1
first_process.LOOK_SECONDS = 0.1
{before}
supervisor.supervise()
signals.install()
try:
    print(os.getpid(), flush=True)
    {body}
except signals.Stopped as stopped:
    print(stopped, file=sys.stderr)
    raise
"""


@contextmanager
def run(body: str, before: str = "") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A supervised program, and the number of the process that works."""
    program = PROGRAM.format(body=body, before=before)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit status and what it said on stderr."""
    _, said = process.communicate(timeout=30)
    return process.returncode, said


def outcome(body: str, before: str = "") -> tuple[int, str]:
    with run(body, before) as (process, _):
        return ended(process)


def gone(pid: int) -> bool:
    """Whether a process has ended within ten seconds."""
    until = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_status_is_passed_on() -> None:
    assert outcome("sys.exit(3)") == (3, "")
    assert outcome("pass") == (0, "")


@pytest.mark.parametrize(
    ("number", "status", "text"),
    [(signal.SIGTERM, 143, "stopped by SIGTERM"), (signal.SIGHUP, 129, "stopped by SIGHUP"),
     (signal.SIGINT, 130, "interrupted"), (signal.SIGUSR1, 75, "stopped by SIGUSR1")],
)  # fmt: skip
@pytest.mark.parametrize("whole_group", [False, True])
def test_signal_stops_it(number: signal.Signals, status: int, text: str, whole_group: bool) -> None:
    """A terminal, `timeout` and some batch systems signal both processes, which counts once."""
    with run("time.sleep(300)", "os.setsid()") as (process, _):
        (os.killpg if whole_group else os.kill)(process.pid, number)
        if whole_group:
            os.kill(process.pid, number)
        assert ended(process) == (status, f"{text}\n")


def test_what_hangs_is_killed() -> None:
    with run(HANGS) as (process, pid):
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        text = "error: stopped by SIGTERM, and killed because it did not leave within 1 s\n"
        assert ended(process) == (143, text)
        assert gone(pid)


def test_time_limit_stops_it_also_if_it_hangs() -> None:
    assert outcome("signals.limit(0.3, '0.3 s'); time.sleep(300)")[1].startswith("stopped by the time limit of 0.3 s")
    text = "error: stopped by the time limit of 0.3 s, and killed because it did not leave within 1 s\n"
    assert outcome(f"signals.limit(0.3, '0.3 s'); {HANGS}") == (75, text)


def test_second_signal_kills_at_once() -> None:
    with run(HANGS, "first_process.LEAVE_SECONDS = 60") as (process, pid):
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (130, "error: killed by a second signal, SIGTERM\n")
        assert gone(pid)


def test_signals_that_the_command_is_to_ignore_are_ignored() -> None:
    """As under `nohup`."""
    before = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    with run("time.sleep(2)", before) as (process, _):
        os.kill(process.pid, signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None
        assert ended(process) == (0, "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, 137), (signal.SIGSEGV, 139)])
def test_process_that_is_killed_is_told_and_leaves_nothing(number: signal.Signals, status: int, tmp_path: Path) -> None:
    """Nor do its own children, also in sessions of their own, whose parent is gone."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "file").touch()
    scratch = str(tmp_path / "scratch")
    body = (f"supervisor.remove_at_end({scratch!r}); supervisor.advise('resume with: this'); "
            "other = subprocess.Popen(['sh', '-c', 'setsid sleep 300 & echo $!; wait'], stdout=subprocess.PIPE); "
            "print(int(other.stdout.readline()), other.pid, flush=True); "
            f"os.kill(os.getpid(), {int(number)})")  # fmt: skip
    with run(body) as (process, _):
        assert process.stdout is not None
        children = list(map(int, process.stdout.readline().split()))
        code, said = ended(process)
        first, second = said.splitlines()
        assert (code, second) == (status, "resume with: this")
        assert first.startswith(f"error: the process that computes was ended by {number.name}; if nobody sent it, look")
        assert all(map(gone, children))
    assert list(tmp_path.iterdir()) == []


def test_scratch_folder_of_any_name_is_removed(tmp_path: Path) -> None:
    names = ["line\nbreak", "\x1e\x1f", "\udcff", "“”"]
    for name in names:
        (tmp_path / name).mkdir()
    body = f"[supervisor.remove_at_end({str(tmp_path)!r} + '/' + name) for name in {names!a}]"
    assert outcome(body) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_supervisor_that_is_killed_ends_the_other_process() -> None:
    with run("time.sleep(300)") as (process, pid):
        process.kill()
        assert gone(pid)


def test_first_process_that_fails_ends_the_other_one() -> None:
    with run(HANGS, "first_process.FirstProcess._look = None") as (process, pid):
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (1, "error: the command's first process failed: TypeError: 'NoneType' object is not "
                                     "callable\n")  # fmt: skip
        assert gone(pid)


def test_limit_ends_what_hangs() -> None:
    code, said = outcome(f"exec('with supervisor.limit(1, \"a limit\"):\\n    {HANGS}')")
    assert (code, said) == (1, "error: a limit\n")


def test_limit_that_is_kept_has_no_effect() -> None:
    assert outcome("exec('with supervisor.limit(1, \"a limit\"):\\n    pass'); time.sleep(1.5)") == (0, "")


def test_end_that_hangs_does_not_change_the_status() -> None:
    """All was printed and written: a thread that never ends, or a crash of the interpreter, come too late."""
    assert outcome("threading.Thread(target=time.sleep, args=(300,)).start(); supervisor.done(0)") == (0, "")
    assert outcome("supervisor.done(3); os.kill(os.getpid(), signal.SIGSEGV)") == (3, "")
    with run(f"supervisor.done(0); print(flush=True); {HANGS}", "first_process.EXIT_SECONDS = 60") as (process, _):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "")


def test_process_without_progress_is_killed(tmp_path: Path) -> None:
    """Although it holds the GIL; one that waits for others is left alone."""
    watched = f"supervisor.watch({str(tmp_path)!r}, 1); own = heartbeat.start({str(tmp_path)!r}, 'cpu'); "
    code, said = outcome(f"{watched} exec('with own.task(\"histogram: chunk 5\"):\\n    {HANGS}')")
    assert (code, said[:72]) == (1, "error: histogram: chunk 5: expected progress within 1 s, got none: no by")
    assert outcome(f"{watched} time.sleep(2)") == (0, "")


def suspend(process: subprocess.Popen[str], seconds: float) -> None:
    """As Ctrl-Z and `fg`, or a batch system."""
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGCONT)


def test_suspended_process_goes_on(tmp_path: Path) -> None:
    """A timeout that passes meanwhile is no signal, and no sign that the other process does not get on."""
    before = "os.setsid(); signal.signal(signal.SIGALRM, signal.SIG_IGN)"
    body = (f"supervisor.watch({str(tmp_path)!r}, 1.2); task = heartbeat.start({str(tmp_path)!r}, 'gpu').task(''); "
            "task.__enter__(); time.sleep(0.3); print(flush=True); [time.sleep(0.1) for _ in range(8)]")  # fmt: skip
    with run(body, before) as (process, _):
        assert process.stdout is not None
        process.stdout.readline()
        suspend(process, 1.5)
        assert ended(process) == (0, "")


def test_closed_streams_are_opened() -> None:
    """Otherwise the next file that is opened would be standard output."""
    body = "os._exit(os.open('/dev/null', os.O_RDONLY) < 3)"
    program = PROGRAM.format(body=body, before="").replace("print(os.getpid(), flush=True)", "")
    with subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]) as process:
        assert process.wait(30) == 0
