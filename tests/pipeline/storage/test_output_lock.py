"""The lock of an output: one run at a time, whoever was killed, on file systems with and without locks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import PipelineError
from pipeline.storage import output_lock
from pipeline.storage.identity import this_machine
from pipeline.storage.output_lock import Holder, locked, parse_holder, this_process

LOCK = ".out.lock"
HOLD = """
import os, sys, time
from pipeline.storage.output_lock import locked
with locked(os.open(sys.argv[1], os.O_RDONLY), ".out.lock", "out"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def refused(folder: int) -> str:
    with pytest.raises(PipelineError) as caught, locked(folder, LOCK, "out"):
        pytest.fail("taken")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def taken(folder: int, tmp_path: Path) -> bool:
    """Whether it could be taken; then it says so, and is gone afterwards."""
    try:
        with locked(folder, LOCK, "out"):
            assert parse_holder((tmp_path / LOCK).read_bytes()) == this_process()
    except PipelineError:
        return False
    assert not (tmp_path / LOCK).exists()
    return True


def no_locks(*_: Any) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_holder_is_named_and_death_ends_it(folder: int, tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    expected = (
        f"out: another run is writing it, process {holder.pid} on {socket.gethostname()}; wait for it, or choose "
    )
    assert refused(folder).startswith(expected)
    holder.kill()
    holder.wait()
    assert (tmp_path / LOCK).exists() and taken(folder, tmp_path)


def test_without_locks_of_the_system(
    folder: int, tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert f"process {holder.pid} on" in refused(folder)
    holder.kill()
    holder.wait()
    with locked(folder, LOCK, "out"):
        assert f"process {os.getpid()} on" in refused(folder)
    assert taken(folder, tmp_path)


HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("host", "same_boot", "started", "free"),
    [
        (HERE, True, "another time", True),  # the number is another process's by now
        (HERE, False, "1", True),  # before a restart of this machine
        ("elsewhere", False, "1", False),
    ],
)
@pytest.mark.parametrize("kind", ["nfs4", "without locks", "ext4"])
def test_what_a_lock_says(
    folder: int, tmp_path: Path, host: str, same_boot: bool, started: str, free: bool, kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It counts where several hosts may see it, since each may keep locks of its own; else the system's lock does."""
    said = Holder(host, this_machine() if same_boot else 1, os.getpid(), started)
    (tmp_path / LOCK).write_text(json.dumps(said))
    monkeypatch.setattr(output_lock, "file_system", lambda device: kind)
    if kind == "without locks":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    if free or kind == "ext4":
        assert taken(folder, tmp_path)
    else:
        assert f"process {os.getpid()} on elsewhere; wait for it, or, if that is gone, remove .out.lock" in refused(
            folder
        )
        assert json.loads((tmp_path / LOCK).read_text()) == list(said)


def test_lock_of_another_user(folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be read only. If nobody holds it, it is removed, where that is allowed."""
    (tmp_path / LOCK).write_text(json.dumps(Holder("elsewhere", 1, 1, "1")))
    before, real = (tmp_path / LOCK).stat().st_ino, os.open

    def denied(name: Any, flags: int, *rest: Any, **keywords: Any) -> int:
        there = name == LOCK and os.path.exists(tmp_path / LOCK) and (tmp_path / LOCK).stat().st_ino
        if there == before and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(name, flags, *rest, **keywords)

    monkeypatch.setattr(os, "open", denied)
    with open(tmp_path / LOCK, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another run is writing it, process 1 on elsewhere" in refused(folder)
    assert taken(folder, tmp_path)


def test_lock_that_has_taken_its_place_is_left_alone(folder: int, tmp_path: Path) -> None:
    """Somebody has removed the first one, as the message about a lock of another host says."""
    with locked(folder, LOCK, "out"):
        (tmp_path / LOCK).rename(tmp_path / "old")
        (tmp_path / LOCK).touch()
    assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize("content", [b"mine", b"{}", b"[1, 2, 3, 4]", b"[" * 5000, b"\xff", b'["a", 1, 2, "3"]' * 500])
def test_file_of_the_same_name_is_left_alone(folder: int, tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK).write_bytes(content)
    assert refused(folder) == "out: expected .out.lock beside it to be a lock, got something else; move it away"
    assert (tmp_path / LOCK).read_bytes() == content


def test_other_kinds_of_files(folder: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    assert "got something else" in refused(folder)
    (tmp_path / LOCK).unlink()
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / LOCK).symlink_to("other")
    assert "expected to lock it by .out.lock beside it, got 'Too many levels of symbolic links'" in refused(folder)
    assert (tmp_path / "other").read_bytes() == b""


WORK = """
import os, sys
from pipeline.errors import PipelineError
from pipeline.storage.output_lock import locked
folder, done = os.open(sys.argv[1], os.O_RDONLY), 0
print("ready", flush=True)
sys.stdin.readline()
while done < 60:
    try:
        with locked(folder, ".out.lock", "out"):
            os.close(os.open("inside", os.O_CREAT | os.O_EXCL, dir_fd=folder))
            os.unlink("inside", dir_fd=folder)
            done += 1
    except PipelineError as error:
        assert "another run" in str(error), error
"""


def test_only_one_at_a_time(tmp_path: Path) -> None:
    """Several processes that take and remove it as fast as they can."""
    command = [sys.executable, "-c", WORK, str(tmp_path)]
    several = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in several:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in several:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    try:
        assert [(process.communicate(timeout=60), process.returncode)[1] for process in several] == [0, 0, 0]
    finally:
        for process in several:
            process.kill()
    assert list(tmp_path.iterdir()) == []
