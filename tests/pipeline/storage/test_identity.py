"""What is compared of an input, and that every change which moves any of it is noticed and named."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.storage import identity
from pipeline.storage.identity import Identity, identify, open_to_read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "samples.bin"
    path.write_bytes(bytes(4096))
    return path


def taken(path: Path) -> Identity:
    fd = open_to_read(str(path))
    try:
        return identify(str(path), fd)
    finally:
        os.close(fd)


def checked(planned: Identity, path: Path) -> str:
    """What is said of the file that has the name now; nothing if it is the planned one."""
    fd = open_to_read(str(path))
    try:
        planned.check("FILE", fd)
        return ""
    except PipelineError as error:
        return str(error)
    finally:
        os.close(fd)


def back(path: Path, mtime_ns: int) -> None:
    os.utime(path, ns=(0, mtime_ns))


def rewrite(path: Path) -> None:
    """Two bytes, with the old time of modification."""
    mtime = path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.write(b"xy")
    back(path, mtime)


def replace(path: Path) -> None:
    """By a file of the same size and time of modification."""
    other = path.with_name("other")
    other.write_bytes(b"x" * path.stat().st_size)
    back(other, path.stat().st_mtime_ns)
    os.replace(other, path)


def retarget(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(other)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def through_mapping(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:2] = b"xy"


CHANGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: os.truncate(path, 4000), "shrank while it was read: expected 4096 bytes, got 4000"),
    (lambda path: os.truncate(path, 5000), "grew while it was read: expected 4096 bytes, got 5000"),
    (lambda path: path.write_bytes(bytes(4096)), "was written to while it was read"),
    (rewrite, "was written to, or given another name, mode or owner, while it was read"),
    (replace, "was replaced by another file while it was read"),
    (retarget, "was replaced by another file while it was read"),
    (fifo, "was replaced by another file while it was read: expected 4096 bytes, got 0"),
    (through_mapping, "was written to while it was read"),
    (lambda path: path.chmod(0o600), "was written to, or given another name, mode or owner, while it was read"),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_change_is_named(path: Path, change: Callable[[Path], object], expected: str) -> None:
    planned = taken(path)
    assert checked(planned, path) == ""
    change(path)
    assert checked(planned, path) == f"FILE: {expected}; run again when nothing writes to it"


def test_reading_it_changes_nothing(path: Path) -> None:
    planned = taken(path)
    path.read_bytes()
    assert (checked(planned, path), taken(path)) == ("", planned)


def test_write_right_after_it_was_planned_has_a_later_time(path: Path) -> None:
    """Times of files are those of the last tick of a clock: two writes within one cannot be told apart."""
    for number in range(30):
        path.write_bytes(bytes([number]) * 4096)
        planned = taken(path)
        with path.open("r+b") as file:
            file.write(b"xy")
        assert checked(planned, path), number


def test_file_that_never_settles(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "SETTLING_SECONDS", 0.05)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: path.stat().st_ctime_ns)  # as when it was last written
    with pytest.raises(PipelineError, match="expected a file that does not change, got one that is being written to"):
        taken(path)


@pytest.mark.parametrize("ahead", [10, 10**6])
def test_clock_of_another_machine_is_not_waited_for(path: Path, ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times are the file server's; its clock may be hours ahead."""
    now = time.clock_gettime_ns(identity.COARSE)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: now - ahead * 10**9)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    assert checked(taken(path), path) == ""


def test_device_counts_on_the_machine_that_planned(path: Path) -> None:
    """Other machines have other numbers for the same file system."""
    planned = taken(path)
    elsewhere = planned._replace(device=planned.device + 1)
    assert "was replaced by another file" in checked(elsewhere, path)
    assert checked(elsewhere._replace(machine=1), path) == ""
    assert planned.machine == identity.this_machine() > 1


@pytest.mark.parametrize(
    ("kind", "stable"), [("ext4", True), ("nfs4", True), ("fuse.sshfs", False), ("vfat", False), ("9p", False)]
)
def test_numbers_that_are_not_stable_are_not_compared(
    path: Path, kind: str, stable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = path.stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "22 1 0:99 / /proc rw - proc proc rw\n"
        f"36 35 {os.major(device)}:{os.minor(device)} /mnt1 /mnt2 rw,noatime master:1 - {kind} server:/x rw\n"
    )
    monkeypatch.setattr(identity, "MOUNTS", str(mounts))
    identity.file_system.cache_clear()
    try:
        planned = taken(path)
    finally:
        identity.file_system.cache_clear()
    status = path.stat()
    assert planned.device == (device if kind in ("ext4", "vfat") else None)  # a network drive may be mounted again
    assert checked(planned._replace(device=None), path) == ""
    assert (planned.inode, planned.ctime_ns) == ((status.st_ino, status.st_ctime_ns) if stable else (None, None))
    replace(path)
    assert bool(checked(planned, path)) == stable
    os.truncate(path, 100)
    assert "shrank" in checked(planned._replace(inode=None), path)


def test_file_system_that_cannot_be_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text in (None, "", "nonsense\n", "1 2 0:0\n"):
        if text is not None:
            (tmp_path / "mounts").write_text(text)
        monkeypatch.setattr(identity, "MOUNTS", str(tmp_path / "mounts"))
        identity.file_system.cache_clear()
        assert identity.file_system(0) == ""
    identity.file_system.cache_clear()
