"""Counters that show from outside whether a process gets on: what hangs may hold the GIL, and can tell nobody.

Each process that computes has a file of its own, mapped into its memory: the number of steps it has taken (a block
read, a kernel finished, a copy done), the tasks that it is in, and what it failed with. Whoever watches reads it, and
what the kernel knows: bytes read from and written to storage, which count as steps while a long call is under way.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from time import monotonic

TEXT = 512  # bytes of a name
SLOTS = 24  # tasks of a process at a time, at most; further ones are not named
STEPS, ACTIVE, BORN, DEVICE, ERROR, FAILED, TASKS = 0, 8, 16, TEXT, 2 * TEXT, 7 * TEXT, 8 * TEXT  # offsets
SIZE = TASKS + SLOTS * TEXT

# A process on a CPU that keeps this share of a core busy computes, however long its call takes. On a GPU it may be
# waiting for a kernel that never ends.
CPU_SHARE = 0.25

# Longer than any read of a block, copy or kernel takes, on storage that still works: at 250 kB/s a block of a GPU takes
# as long.
STALL_SECONDS = 600.0

STOPPED_SECONDS = 10  # between two looks: whoever looks has itself been stopped, as by SIGSTOP or a batch system
TICKS = os.sysconf("SC_CLK_TCK")


class Beat:
    """The file of this process, in a folder."""

    def __init__(self, folder: str, device: str) -> None:
        self.folder = folder
        path = f"{folder}/{os.getpid()}"
        # A new file: a task of a run that failed may still write to the mapping of an old one; if cut off, it kills it.
        with suppress(FileNotFoundError):
            os.unlink(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, SIZE)  # where a page has no room, storing to it ends the process
            self._file = mmap.mmap(fd, SIZE)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        self._words = memoryview(self._file)[:DEVICE].cast("Q")
        self._free = list(range(SLOTS))
        self._lock = Lock()
        self._words[BORN // 8] = _stat(os.getpid())[1]
        self._write(DEVICE, device, TEXT)

    def step(self) -> None:
        """Count a step. Two at the same time may count as one."""
        self._words[STEPS // 8] += 1

    def fail(self, reason: str, task: str) -> None:
        """Leave the reason why this process is about to end, and the task that met with it."""
        self._write(FAILED, task, TEXT)
        self._write(ERROR, reason, FAILED - ERROR)

    @contextmanager
    def task(self, name: str) -> Iterator[None]:
        """Note that this process is in a task."""
        with self._lock:
            slot = self._free.pop() if self._free else None
            self._words[ACTIVE // 8] += 1
        if slot is not None:
            self._write(TASKS + slot * TEXT, name, TEXT)
        self.step()
        try:
            yield
        finally:
            if slot is not None:
                self._write(TASKS + slot * TEXT, "", TEXT)
            with self._lock:
                self._words[ACTIVE // 8] -= 1
                if slot is not None:
                    self._free.append(slot)
            self.step()

    def _write(self, offset: int, text: str, most: int) -> None:
        data = text.encode(errors="surrogateescape")
        if len(data) >= most:  # a long path; what follows it matters
            data = data[: most // 2] + b"..." + data[len(data) + 4 - most // 2 :]
        self._file[offset : offset + most] = data.ljust(most, b"\0")


_own: Beat | None = None
_starting = Lock()


def start(folder: str, device: str) -> Beat:
    """The file of this process in a folder, created at the first call."""
    global _own
    with _starting:
        if _own is None or _own.folder != folder:
            _own = Beat(folder, device)
        return _own


def stop() -> None:
    """Count no longer: the folder is about to be removed."""
    global _own
    _own = None


def step() -> None:
    """Count a step of this process, if it is watched."""
    if _own is not None:
        _own.step()


def fail(reason: str, task: str) -> None:
    """Leave the reason why this process is about to end, and the task that met with it, if it is watched."""
    if _own is not None:
        _own.fail(reason, task)


@dataclass(frozen=True)
class Seen:
    """A process as its file shows it.

    Attributes
    ----------
    alive
        Whether it still runs.
    active
        Number of tasks that it is in.
    idle
        Seconds since it last took a step, if it is in a task.
    device
        What it computes on: the UUID of its GPU, or "cpu".
    tasks
        Names of the tasks that it is in; the one that met with the error comes first.
    error
        What it failed with, if it said so.
    """

    alive: bool
    active: int
    idle: float
    device: str
    tasks: tuple[str, ...]
    error: str


@dataclass
class _Last:
    """What was seen of a process before: steps and bytes, since when these are the same; CPU time, and when."""

    moved: tuple[int, int]
    since: float
    ticks: int
    at: float


class Looker:
    """Reads the files of a folder again and again, and notes when each last changed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._last: dict[int, _Last] = {}

    def look(self) -> dict[int, Seen]:
        """What every process in the folder is doing, by its number."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return {}
        return {int(name): seen for name in names if (seen := self._look_at(int(name)))}

    def forget(self, pid: int) -> None:
        """Remove the file of a process that has ended."""
        self._last.pop(pid, None)
        with suppress(OSError):
            os.unlink(f"{self._folder}/{pid}")

    def _look_at(self, pid: int) -> Seen | None:
        try:
            with open(f"{self._folder}/{pid}", "rb") as file:
                data = file.read(SIZE)
        except OSError:
            return None
        state, born, ticks = _stat(pid)
        alive = state not in ("", "Z")
        if len(data) == SIZE and (shown := _word(data, BORN)):
            alive = alive and born == shown
        elif alive:
            return None  # it is just starting
        active, now = _word(data, ACTIVE), monotonic()
        moved = (_word(data, STEPS), _bytes_moved(pid) if alive else 0)
        device, last = _text(data, DEVICE, TEXT), self._last.get(pid)
        computes = last and device == "cpu" and ticks - last.ticks >= CPU_SHARE * TICKS * max(now - last.at, 0.1)
        since = now
        if last and active and moved == last.moved and not computes:
            since = last.since + time_stopped(now - last.at)
        self._last[pid] = _Last(moved, since, ticks, now)
        failed = _text(data, FAILED, TEXT)
        names = filter(None, (_text(data, TASKS + slot * TEXT, TEXT) for slot in range(SLOTS)))
        tasks = tuple(sorted(names, key=lambda name: name != failed))
        return Seen(alive, active, now - since, device, tasks, _text(data, ERROR, FAILED - ERROR))


def time_stopped(seconds: float) -> float:
    """How much of the time between two looks counts for nobody, since all processes may have been stopped."""
    return max(0.0, seconds - STOPPED_SECONDS)


def standstill(tasks: tuple[str, ...], seconds: float) -> str:
    """What to say of a process that takes no steps."""
    where = ", ".join(tasks) or "a task"
    return (f"{where}: expected progress within {seconds:.0f} s, got none: no bytes arrived, no kernel or copy ended; "
            "check the disk and the GPU, or allow more with --stall-timeout")  # fmt: skip


def work_of(pid: int) -> tuple[int, int]:
    """CPU time of a process in ticks, and bytes that it has read from and written to storage."""
    return _stat(pid)[2], _bytes_moved(pid)


def _word(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _text(data: bytes, offset: int, most: int) -> str:
    return data[offset : offset + most].partition(b"\0")[0].decode(errors="surrogateescape")


def _stat(pid: int) -> tuple[str, int, int]:
    """State of a process, when it was born and its CPU time, in ticks; zeros if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return "", 0, 0
    return fields[0].decode(), int(fields[19]), int(fields[11]) + int(fields[12])


def _bytes_moved(pid: int) -> int:
    """Bytes that a process has read from and written to storage, as the kernel counts them."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            lines = dict(line.split(b": ") for line in file.read().splitlines())
    except OSError:  # the kernel does not count
        return 0
    return int(lines[b"read_bytes"]) + int(lines[b"write_bytes"])
