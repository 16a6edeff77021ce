"""Counters of progress, as the process that has them writes them and as another one reads them."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.process import heartbeat
from pipeline.process.heartbeat import SLOTS, TEXT, Beat, Looker, Seen
from pipeline.timeline import Timeline


@contextmanager
def process(folder: Path, body: str, device: str = "GPU-0") -> Iterator[int]:
    """Another process with a file in the folder; it prints a line when it has one."""
    program = "import ctypes, os, sys, time\nfrom pipeline.process import heartbeat\n"
    program += f"own = heartbeat.start({str(folder)!r}, {device!r})\n{body}"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            yield other.pid
        finally:
            other.kill()


def seen(looker: Looker, pid: int) -> Seen:
    return looker.look()[pid]


IN_TASK = "with own.task('a task'):\n    print(flush=True)\n    "


@pytest.mark.parametrize("nbytes", [0, heartbeat.SIZE], ids=["empty", "not begun"])
def test_process_that_ended_while_it_made_its_file_is_seen(tmp_path: Path, nbytes: int) -> None:
    """Whoever replaces it waits for that; one that still makes it is not seen yet."""
    with subprocess.Popen(["true"]) as ended:
        pass
    for pid in (ended.pid, os.getpid()):
        (tmp_path / str(pid)).write_bytes(bytes(nbytes))
    looker = Looker(str(tmp_path))
    assert looker.look() == {ended.pid: Seen(False, 0, 0.0, "", (), "")}
    looker.forget(ended.pid)
    assert not (tmp_path / str(ended.pid)).exists()


def test_tasks_and_device_are_seen(tmp_path: Path) -> None:
    looker, own = Looker(str(tmp_path)), Beat(str(tmp_path), "GPU-1")
    assert seen(looker, os.getpid()) == Seen(True, 0, seen(looker, os.getpid()).idle, "GPU-1", (), "")
    with own.task("first"), own.task("second"):
        now = seen(looker, os.getpid())
        assert (now.active, sorted(now.tasks)) == (2, ["first", "second"])
    for failed in ("second", "first"):
        with own.task("first"), own.task("second"):
            own.fail("a reason", failed)
            now = seen(looker, os.getpid())
        assert (now.active, now.tasks[0], len(now.tasks), now.error) == (2, failed, 2, "a reason")
    now = seen(looker, os.getpid())
    assert (now.active, now.tasks, now.error) == (0, (), "a reason")


def test_long_names_lose_their_middle(tmp_path: Path) -> None:
    looker, own = Looker(str(tmp_path)), Beat(str(tmp_path), "cpu")
    for length in (TEXT - 2, TEXT - 1, TEXT, TEXT + 1, 3 * TEXT):
        name = "histogram: " + "x" * (length - 27) + " bytes 1000-1999"
        with own.task(name):
            (got,) = seen(looker, os.getpid()).tasks
        assert got == name if length < TEXT else got.endswith("x bytes 1000-1999") and len(got) == TEXT - 1, length
        assert got.startswith("histogram: x")


def test_more_tasks_than_names_fit(tmp_path: Path) -> None:
    looker, own = Looker(str(tmp_path)), Beat(str(tmp_path), "cpu")
    tasks = [own.task("ü" * 100 + str(number)) for number in range(SLOTS + 3)]
    for task in tasks:
        task.__enter__()
    now = seen(looker, os.getpid())
    assert (now.active, len(now.tasks)) == (SLOTS + 3, SLOTS)
    for task in tasks:
        task.__exit__(None, None, None)
    assert seen(looker, os.getpid()).active == 0


@pytest.mark.parametrize("library", ["CDLL", "PyDLL"], ids=["without the GIL", "with the GIL"])
def test_process_that_hangs_stands_still(tmp_path: Path, library: str) -> None:
    looker = Looker(str(tmp_path))
    with process(tmp_path, f"{IN_TASK}ctypes.{library}(None).sleep(300)") as pid:
        seen(looker, pid)
        time.sleep(1.2)
        now = seen(looker, pid)
        assert now.alive and now.idle > 1 and now.tasks == ("a task",)


@pytest.mark.parametrize(
    ("body", "device"),
    [(f"{IN_TASK}while True: heartbeat.step(); time.sleep(0.1)", "GPU-0"),
     (f"{IN_TASK}while True: pass", "cpu"),  # one call that computes for long
     ("print(flush=True)\ntime.sleep(300)", "cpu")],  # in no task
    ids=["steps", "computes", "idle"],
)  # fmt: skip
def test_process_that_gets_on_does_not(tmp_path: Path, body: str, device: str) -> None:
    looker = Looker(str(tmp_path))
    with process(tmp_path, body, device) as pid:
        for _ in range(8):
            now = seen(looker, pid)
            time.sleep(0.25)
        assert now.alive and now.idle < 1


def test_time_in_which_nobody_looks_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes may have been stopped, as by a batch system."""
    monkeypatch.setattr(heartbeat, "STOPPED_SECONDS", 0.5)
    looker = Looker(str(tmp_path))
    with process(tmp_path, f"{IN_TASK}time.sleep(300)") as pid:
        seen(looker, pid)
        time.sleep(1.2)
        assert seen(looker, pid).idle < 0.6


def test_disk_without_room_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storing to a mapped page without room would end the process."""

    def full(fd: int, offset: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        Beat(str(tmp_path), "cpu")
    assert list(tmp_path.iterdir()) == []


def test_gpu_process_that_only_spins_stands_still(tmp_path: Path) -> None:
    """As it does while it waits for a kernel that never ends."""
    looker = Looker(str(tmp_path))
    with process(tmp_path, f"{IN_TASK}while True: pass") as pid:
        seen(looker, pid)
        time.sleep(1.2)
        assert seen(looker, pid).idle > 1


def test_bytes_of_a_long_write_are_progress(tmp_path: Path) -> None:
    """Whatever the process itself can tell: it holds the GIL all the time."""
    looker, target = Looker(str(tmp_path / "progress")), tmp_path / "file"
    (tmp_path / "progress").mkdir()
    body = f"data = ctypes.create_string_buffer(2**16)\nfd = os.open({str(target)!r}, os.O_WRONLY | os.O_CREAT)\n"
    body += f"{IN_TASK}write = ctypes.PyDLL(None).write\n    "
    body += "while True: write(fd, data, 2**16); os.fsync(fd)"
    with process(tmp_path / "progress", body) as pid:
        if not heartbeat._bytes_moved(pid):
            time.sleep(0.5)
            if not heartbeat._bytes_moved(pid):
                pytest.skip("this file system's bytes are not counted")
        for _ in range(6):
            now = seen(looker, pid)
            time.sleep(0.25)
        assert now.idle < 1


def test_dead_process_is_told_from_another_with_its_number(tmp_path: Path) -> None:
    looker = Looker(str(tmp_path))
    with process(tmp_path, f"{IN_TASK}time.sleep(300)") as pid:
        assert seen(looker, pid).alive
    assert seen(looker, pid).tasks == ("a task",)
    assert not seen(looker, pid).alive
    os.rename(tmp_path / str(pid), tmp_path / str(os.getpid()))  # as if the number had been given again
    assert not seen(looker, os.getpid()).alive
    looker.forget(os.getpid())
    assert looker.look() == {}


def test_every_stage_of_a_timeline_is_a_step(tmp_path: Path) -> None:
    own = heartbeat.start(str(tmp_path), "cpu")
    try:
        before = own._words[0]
        with Timeline().measure("read", 10):
            pass
        assert own._words[0] == before + 1
    finally:
        heartbeat.stop()
    Timeline().add("read", 0, 0)  # nothing is counted where nothing is watched
    assert ctypes.c_uint64.from_buffer_copy((tmp_path / str(os.getpid())).read_bytes()).value == before + 1


def test_task_that_outlasts_its_run_may_still_write(tmp_path: Path) -> None:
    """A run that fails stops counting; a task of it that begins later makes the file anew, while others use the old."""
    program = f"""
import sys, threading
from pipeline.process.heartbeat import Beat
sys.setswitchinterval(1e-6)
own, ended = Beat({str(tmp_path)!r}, "cpu"), threading.Event()
def work():
    while not ended.is_set():
        with own.task("a task"):
            own.step()
thread = threading.Thread(target=work)
thread.start()
for _ in range(2000):
    Beat({str(tmp_path)!r}, "cpu")
ended.set()
thread.join()
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
