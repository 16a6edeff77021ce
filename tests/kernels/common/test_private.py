"""Folders and files of the cache: whatever somebody else may have put there or may change is not used."""

from __future__ import annotations

import errno
import logging
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernels.common import cache, messages, private
from kernels.common.private import open_private_file, open_private_folder, write_private_file


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder of mode 0755, as home folders may have it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)
    return tmp_path / "home"


@pytest.fixture
def folder(base: Path) -> Iterator[int]:
    descriptor = open_private_folder(base / "cache" / "baru")
    yield descriptor
    os.close(descriptor)


def opens(path: Path) -> bool:
    before = set(os.listdir("/proc/self/fd"))
    try:
        os.close(open_private_folder(path))
        return True
    except OSError:
        return False
    finally:
        assert set(os.listdir("/proc/self/fd")) <= before  # what earlier tests left may be closed meanwhile


def test_folders_that_are_missing_are_made_private(base: Path) -> None:
    assert opens(base / "a" / "b") and opens(base / "a" / "b")
    assert [stat.S_IMODE((base / name).stat().st_mode) for name in ("a", "a/b")] == [0o700, 0o700]


def test_folder_that_hands_down_its_group(base: Path) -> None:
    """What is made below a set-group-ID folder is one, too."""
    base.chmod(0o2755)
    assert opens(base / "a" / "b") and opens(base / "a" / "b")
    assert stat.S_IMODE((base / "a" / "b").stat().st_mode) == 0o2700


@pytest.mark.parametrize(
    ("mode", "good"), [(0o700, True), (0o755, False), (0o750, False), (0o770, False), (0o777, False), (0o1777, False)]
)
def test_mode_of_the_folder(base: Path, mode: int, good: bool) -> None:
    (base / "baru").mkdir()
    (base / "baru").chmod(mode)
    assert opens(base / "baru") == good


@pytest.mark.parametrize(
    ("mode", "good"),
    [(0o755, True), (0o711, True), (0o757, False), (0o777, False), (0o1777, True), (0o770, False), (0o775, False)],
)
def test_mode_of_each_folder_on_the_way(base: Path, mode: int, good: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "_own_group", lambda number: False)
    (base / "shared" / "a" / "baru").mkdir(parents=True)
    (base / "shared" / "a" / "baru").chmod(0o700)
    (base / "shared").chmod(mode)
    assert opens(base / "shared" / "a" / "baru") == good
    assert opens(base / "shared" / "new") == good
    assert (base / "shared" / "new").exists() == good


@pytest.mark.parametrize(
    ("name", "members", "number", "own"),
    [("user", [], 7, True), ("user", ["user"], 7, True), ("staff", [], 7, False), ("user", ["user", "other"], 7, False),
     ("user", [], 8, False)],
)  # fmt: skip
def test_group_that_some_systems_make_for_each_user(
    name: str, members: list[str], number: int, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There ~/.cache has the mode 0775."""
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="user", pw_gid=7))
    monkeypatch.setattr("grp.getgrgid", lambda gid: SimpleNamespace(gr_name=name, gr_gid=gid, gr_mem=members))
    assert private._own_group(number) == own


def test_group_or_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert not private._own_group(7)


def test_folder_of_somebody_else(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Itself, or on the way to it."""
    assert opens(base / "baru")
    real = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: real + 1)
    with pytest.raises(PermissionError, match="belongs to others, or they may"):
        open_private_folder(base / "baru")
    if real == 0:
        os.chown(base / "baru", real + 1, -1)
        assert opens(base / "baru")
        os.chown(base, real + 2, -1)
        assert not opens(base / "baru")


def test_links_are_resolved_once(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder may be a link; one that appears afterwards is not followed."""
    (base / "disk").mkdir()
    (base / "link").symlink_to(base / "disk")
    assert opens(base / "link" / "baru") and (base / "disk" / "baru").is_dir()
    monkeypatch.setattr(os.path, "realpath", str)
    assert not opens(base / "link" / "baru")
    (base / "disk" / "last").symlink_to(base / "disk" / "baru")
    assert not opens(base / "disk" / "last") and opens(base / "disk" / "baru")


def test_file_in_the_way(base: Path) -> None:
    (base / "baru").write_bytes(b"")
    assert not opens(base / "baru") and not opens(base / "baru" / "more")


def test_file_is_written_whole_and_private(folder: int, base: Path) -> None:
    for content in (b"one", b"another"):
        write_private_file(folder, "file", content)
        with os.fdopen(open_private_file(folder, "file"), "rb") as file:
            assert file.read() == content
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert os.listdir(folder) == ["file"]


def test_file_that_cannot_be_written_leaves_nothing(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_private_file(folder, "file", b"old")
    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space"):
        write_private_file(folder, "file", b"new")
    assert os.listdir(folder) == ["file"]


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "group", "others", "owner", "missing"])
def test_files_that_may_be_somebody_else_s(folder: int, base: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = base / "cache" / "baru" / "file"
    write_private_file(folder, "real", b"content")
    if kind == "link":
        path.symlink_to("real")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "missing":
        write_private_file(folder, "file", b"content")
        path.chmod({"group": 0o620, "others": 0o602, "owner": 0o600}[kind])
    if kind == "owner":
        real = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: real + 1)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError):
        open_private_file(folder, "file")
    assert set(os.listdir("/proc/self/fd")) <= before


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cached(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(base / "cache"))
    with cache.open_cache() as folder:
        yield folder


@pytest.mark.parametrize("left", [0, 1, cache.SEAL, -cache.SEAL, -1])
def test_file_that_was_cut_short_counts_as_missing(cached: int, base: Path, left: int) -> None:
    assert cache.read_cached(cached, "file") is None
    cache.write_cached(cached, "file", bytes(1000))
    assert cache.read_cached(cached, "file") == bytes(1000)
    path = base / "cache" / "baru" / "file"
    path.write_bytes(path.read_bytes()[:left])
    assert cache.read_cached(cached, "file") is None


def test_what_killed_processes_left_is_removed(cached: int, base: Path) -> None:
    for name, age in (("old.part", 4000), ("new.part", 10), ("old.so", 4000)):
        path = base / "cache" / "baru" / name
        path.touch()
        os.utime(path, (path.stat().st_atime - age, path.stat().st_mtime - age))
    cache.write_cached(cached, "file", b"")
    assert sorted(os.listdir(cached)) == ["file", "new.part", "old.so"]


def test_folder_that_others_may_write_to_is_replaced(
    base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By one that stays open: nothing that takes its place is used. The user is told once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    monkeypatch.setattr(cache, "_own", [])
    monkeypatch.delenv(messages.GIVEN, raising=False)
    (base / "baru").mkdir()
    (base / "baru").chmod(0o777)
    (base / "baru" / "file").write_bytes(b"planted")
    with caplog.at_level(logging.WARNING), cache.open_cache() as folder:
        cache.write_cached(folder, "file", b"mine")
    own = cache.cache_folder()
    os.rename(own, base / "moved")
    own.mkdir()
    (own / "file").write_bytes(b"planted")
    with cache.open_cache() as folder:
        assert cache.read_cached(folder, "file") == b"mine"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"warning: compiled kernels are not kept after this run: {base / 'baru'} belongs to others")
    os.rename(own, base / "planted")
    os.rename(base / "moved", own)


# --- temporary folders ------------------------------------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


HOLD = """
import sys, time
from kernels.common.private import temporary_folder
with temporary_folder() as folder:
    (folder / "file").write_bytes(bytes(100))
    print(folder, flush=True)
    time.sleep(600)
"""


def test_folders_of_killed_processes_are_removed(temporary: Path) -> None:
    """Recognized by their lock, which ends with a process; neither new ones nor anything else."""
    environment = os.environ | {"TMPDIR": str(temporary)}
    holder = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    held = Path(holder.stdout.readline().strip())
    prefix = held.name.rpartition("-")[0]
    (temporary / f"{prefix}-new").mkdir(mode=0o700)
    (temporary / f"{prefix}-shared").mkdir()
    (temporary / f"{prefix}-shared").chmod(0o755)
    (temporary / "baru-elsewhere-x").mkdir(mode=0o700)
    (temporary / "target").mkdir(mode=0o700)
    (temporary / f"{prefix}-link").symlink_to(temporary / "target")
    others = sorted(path for path in temporary.iterdir() if path != held)
    for path in (held, *others):
        if not path.name.endswith("-new"):
            os.utime(path, (0, 0))
    try:
        for alive in (True, False):
            with private.temporary_folder() as folder:
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700
                assert (held / "file").exists() == alive
                assert sorted(path for path in temporary.iterdir() if path not in (held, folder)) == others
            holder.kill()
            holder.wait()
    finally:
        holder.kill()
        holder.stdout.close()
    assert not held.exists()


def test_file_system_without_locks(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with private.temporary_folder() as kept:
        os.utime(kept, (0, 0))
        with private.temporary_folder() as other:
            assert kept.exists() and other.exists()
    assert list(temporary.iterdir()) == []
