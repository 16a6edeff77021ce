"""What tells a file from another one, and from itself before a change: device, inode, size and times."""

from __future__ import annotations

import os
import stat
import time
from functools import cache
from typing import NamedTuple

from pipeline.errors import PipelineError

COARSE = 5  # CLOCK_REALTIME_COARSE, which file systems take their times from; Python has no name for it
SETTLING_SECONDS = 2.5
MOUNTS = "/proc/self/mountinfo"

# File systems that several hosts may share: the client's device number lasts as long as the mount, which may be mounted
# again by itself, and some keep locks on each host.
SHARED = (
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse",
    "gfs",
    "gpfs",
    "lustre",
    "nfs",
    "ocfs",
    "panfs",
    "smb3",
    "weka",
)

# File systems that make up inode numbers as they need them, or have no ctime of their own: the same file may show other
# ones after a while. Network file systems that keep those of their server are not among them.
UNSTABLE = ("fuse", "9p", "cifs", "exfat", "msdos", "smb3", "vfat")


class Identity(NamedTuple):
    """A file as it was planned; every process compares it with the descriptor that it reads from.

    Attributes
    ----------
    size
    mtime_ns
        None for a file that the run itself writes.
    ctime_ns, inode
        None on file systems whose numbers are not stable.
    device
        As `st_dev`, which means something on one machine only; None on network file systems.
    machine
        Which one that is.
    """

    size: int
    mtime_ns: int | None
    ctime_ns: int | None
    inode: int | None
    device: int | None
    machine: int

    def check(self, path: str, fd: int) -> None:
        """Compare an open file.

        Raises
        ------
        PipelineError
            If it is another file, or shows a change.
        """
        status = os.fstat(fd)
        if self.is_other(status):
            change = "was replaced by another file"
        elif status.st_size != self.size:
            change = "shrank" if status.st_size < self.size else "grew"
        elif self.mtime_ns not in (None, status.st_mtime_ns):
            change = "was written to"
        elif self.ctime_ns not in (None, status.st_ctime_ns):
            change = "was written to, or given another name, mode or owner," if status.st_nlink else "was removed"
        else:
            return
        sizes = f": expected {self.size} bytes, got {status.st_size}" if status.st_size != self.size else ""
        raise PipelineError(f"{path}: {change} while it was read{sizes}; run again when nothing writes to it")

    def is_other(self, status: os.stat_result) -> bool:
        """Whether a status is that of another file."""
        if self.inode is None or not stat.S_ISREG(status.st_mode):
            return not stat.S_ISREG(status.st_mode)
        elsewhere = self.device not in (None, status.st_dev) and self.machine == this_machine()
        return self.inode != status.st_ino or elsewhere


def identify(path: str, fd: int) -> Identity:
    """Identity of an open file, once the clock has passed its last change: any later one then has a later time.

    Raises
    ------
    PipelineError
        If something keeps changing it.
    """
    until = time.monotonic() + SETTLING_SECONDS
    while True:
        status = os.fstat(fd)
        stable = not file_system(status.st_dev).startswith(UNSTABLE)
        changed = status.st_ctime_ns if stable else status.st_mtime_ns
        grain = 1 if changed % 10**9 else 2 * 10**9  # whole seconds: a file system that counts one or two of them
        now = time.clock_gettime_ns(COARSE)
        if changed + grain <= now or changed > now + 10**9:  # later than now: by another clock
            break
        if time.monotonic() > until:
            raise PipelineError(f"{path}: expected a file that does not change, got one that is being written to; run "
                                "again when nothing writes to it")  # fmt: skip
        time.sleep(0.001)
    return _without_times(status)._replace(mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns if stable else None)


def identify_output(fd: int) -> Identity:
    """Identity of a file that is being written."""
    return _without_times(os.fstat(fd))


def _without_times(status: os.stat_result) -> Identity:
    kind = file_system(status.st_dev)
    inode = None if kind.startswith(UNSTABLE) else status.st_ino
    device = None if kind.startswith(SHARED) else status.st_dev
    return Identity(status.st_size, None, None, inode, device, this_machine())


def open_to_read(path: str) -> int:
    """Descriptor of a file; a FIFO that has taken its place is opened too, instead of waiting for somebody to write.

    Raises
    ------
    OSError
        If it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
    try:
        return os.open(path, flags | os.O_NONBLOCK)
    except BlockingIOError:  # somebody has a lease on it, which the system takes back within seconds
        return os.open(path, flags)


@cache
def this_machine() -> int:
    """A number that no other running system has; containers share that of their host."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return int(file.read().strip().replace("-", ""), 16) >> 64
    except (OSError, ValueError):
        return 0


@cache
def file_system(device: int) -> str:
    """Type of a file system, such as ext4 or nfs4; empty if it cannot be told."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if words[2] == number:
                    return words[words.index("-") + 1]
    except (OSError, ValueError, IndexError):
        pass
    return ""
