"""Files that appear whole or not at all: any failure leaves the old file."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import PipelineError
from pipeline.storage import atomic_file
from pipeline.storage.atomic_file import reserved, write_file
from pipeline.storage.leftovers import Resumable
from tests.pipeline.storage.whole_file import whole_file

STRANGE = ["-", "--help", "a b", "a\nb", "\x1b[31mred", "*", "[1]", "'", '"', "\udcff", "é", ".hidden", "x" * 255,
           "ü" * 127 + "x", "..a", "~"]  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_strange_names(tmp_path: Path, name: str) -> None:
    for content in (b"one", b"other"):
        write_file(tmp_path / name, content)
        assert (tmp_path / name).read_bytes() == content
        assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_mode_of_a_replaced_file_is_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    with whole_file(path, 3) as file:
        file.write(b"new")
        assert stat.S_IMODE(os.stat(file.name).st_mode) & 0o077 == 0  # before it is known who may read it
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", mode)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o027])
def test_mode_of_a_new_file_is_the_user_s(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_file(tmp_path / "file", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask


def test_it_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with whole_file(path, 3) as file:
        file.write(b"new")
        assert not path.exists() and os.path.dirname(file.name) == str(tmp_path)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


FAILURES = [KeyboardInterrupt(), SystemExit(143), MemoryError(), ValueError("broken"), TimeoutError("a worker's")]


@pytest.mark.parametrize("failure", FAILURES)
def test_failure_of_the_caller_is_left_alone(tmp_path: Path, failure: BaseException) -> None:
    """A TimeoutError, which is an OSError, need not be the file's."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(type(failure)) as caught, whole_file(path, 3) as file:
        file.write(b"new")
        assert len(list(tmp_path.iterdir())) == 3  # with the lock
        raise failure
    assert caught.value is failure
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"old"


def test_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=99)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    path = tmp_path / "file"
    expected = f"^{path}: expected 100 free bytes in {tmp_path}, got 99; "
    with pytest.raises(PipelineError, match=expected), whole_file(path, 100):
        pytest.fail("opened")
    assert list(tmp_path.iterdir()) == []
    write_file(path, bytes(99))


def test_space_of_a_file_that_cannot_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is free again before it is looked for."""
    part = tmp_path / ".file.01234567.part"
    part.write_bytes(bytes(100))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=0 if part.exists() else 100))
    with whole_file(tmp_path / "file", 100, later=Resumable("01234567", False, lambda: False)) as file:
        file.write(bytes(100))


@pytest.mark.parametrize("written", [0, 2, 4])
def test_size_is_checked(tmp_path: Path, written: int) -> None:
    expected = f"expected to write 3 bytes, got a file of {written}; "
    with pytest.raises(PipelineError, match=expected), whole_file(tmp_path / "file", 3) as file:
        file.write(bytes(written))
    assert list(tmp_path.iterdir()) == []


def test_flushed_before_and_after_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash the name must not refer to a file whose content never reached the disk."""
    calls: list[str] = []
    rename = os.rename

    def fsync(file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        calls.append("folder" if path == str(tmp_path) else f"file of {os.fstat(file).st_size} bytes")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", lambda *names, **folders: (calls.append("rename"), rename(*names, **folders)))
    write_file(tmp_path / "file", b"new")
    assert calls == ["file of 3 bytes", "rename", "folder"]


@pytest.mark.parametrize(("code", "told"), [(errno.EIO, True), (errno.EINVAL, False), (errno.EOPNOTSUPP, False)])
def test_folder_that_cannot_be_flushed(tmp_path: Path, code: int, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    if told:
        with pytest.raises(PipelineError, match="but its folder could not be flushed to disk: Input/output"):
            write_file(tmp_path / "file", b"new")
    else:
        write_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def in_its_place(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (in_its_place(Path.mkdir), "something else in its place"),
        (in_its_place(os.mkfifo), "something else in its place"),
        (in_its_place(lambda path: path.symlink_to("nowhere")), "a symbolic link, through which nothing is written in"),
    ],
)
@pytest.mark.parametrize("keep", [False, True])
def test_what_takes_the_place_meanwhile_is_not_replaced(
    tmp_path: Path, change: Callable[[Path], None], reason: str, keep: bool
) -> None:
    """What was computed is kept if the caller cannot write it once more."""
    path = tmp_path / "file.npy"
    path.write_bytes(b"old")
    with pytest.raises(PipelineError) as caught, whole_file(path, 3, keep) as file:
        file.write(b"new")
        change(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: expected to write the file, got {reason}")
    kept = [one for one in tmp_path.iterdir() if one != path]
    assert [one.read_bytes() for one in kept] == [b"new"] * keep
    assert not path.is_file()
    if keep:
        assert message.endswith(f"what was written is kept as {kept[0]}") and kept[0].suffix == ".kept"
    else:
        assert message.endswith("; choose another place")


def test_complete_file_that_can_get_no_name_at_all_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(PipelineError) as caught, whole_file(tmp_path / "file", 3, keep=True) as file:
        file.write(b"new")
    (part,) = tmp_path.iterdir()
    assert str(caught.value).endswith(f"got Input/output error; what was written is kept as {part}")
    assert part.read_bytes() == b"new"


@pytest.mark.parametrize("resumable", [False, True])
def test_complete_file_that_is_removed_is_lost(tmp_path: Path, resumable: bool) -> None:
    """The message does not name a path that is not there."""
    later = Resumable("01234567", False, lambda: True) if resumable else None
    with pytest.raises(PipelineError) as caught, whole_file(tmp_path / "file", 3, True, later) as file:
        file.write(b"new")
        os.unlink(file.name)
    assert str(caught.value).endswith("; what was written is lost: something has removed it")


def test_file_that_a_later_run_may_continue_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "rename", broken)
    later = Resumable("01234567", False, lambda: True)
    with pytest.raises(PipelineError) as caught, whole_file(tmp_path / "file", 3, True, later) as file:
        file.write(b"new")
    assert str(caught.value).endswith(f"what was written is kept as {tmp_path}/.file.01234567.part")


@pytest.mark.parametrize("keep", [False, True])
def test_file_that_cannot_be_flushed(tmp_path: Path, keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    expected = pytest.raises(PipelineError, match="got No space left on device; ")
    with expected as caught, whole_file(tmp_path / "file", 3, keep) as file:
        file.write(b"new")
    kept = list(tmp_path.iterdir())
    assert len(kept) == keep and str(caught.value).endswith(str(kept[0]) if keep else "choose another place")


def test_file_whose_size_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is kept all the same."""
    real = os.fstat

    def fstat(file: int) -> os.stat_result:
        if os.readlink(f"/proc/self/fd/{file}").endswith(".part") and real(file).st_size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(file)

    monkeypatch.setattr(os, "fstat", fstat)
    expected = pytest.raises(PipelineError, match="got Input/output error; what was written is kept as ")
    with expected, whole_file(tmp_path / "file", 3, keep=True) as file:
        file.write(b"new")
    (kept,) = tmp_path.iterdir()
    assert kept.read_bytes() == b"new"


def test_folder_that_is_renamed_meanwhile_gets_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with whole_file(tmp_path / "a" / "file", 3) as file:
        file.write(b"new")
        (tmp_path / "a").rename(tmp_path / "b")
        (tmp_path / "a").mkdir()
    assert os.listdir(tmp_path / "a") == [] and (tmp_path / "b" / "file").read_bytes() == b"new"


CALLS = ("open", "write", "ftruncate", "pwrite", "rename", "unlink", "fsync", "fstat", "stat", "lstat", "close",
         "fchmod", "pread", "pathconf", "listdir", "statvfs", "mkdir")  # fmt: skip


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EINTR])
def test_every_call_fails_in_turn(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until none is left to fail: the file is the old or the new one, and it is the new one where nothing is told."""
    path = tmp_path / "file"
    for call in (*CALLS, "flock"):
        module = atomic_file.os if call != "flock" else __import__("fcntl")
        real = getattr(module, call)
        number = 0
        while True:
            path.write_bytes(b"old")
            path.chmod(0o600)
            left = number

            def failing(*arguments: Any, real: Any = real, **keywords: Any) -> Any:
                nonlocal left
                left -= 1
                if left == -1:
                    raise OSError(code, os.strerror(code))
                return real(*arguments, **keywords)

            told = True
            with monkeypatch.context() as patch:
                patch.setattr(module, call, failing)
                try:
                    write_file(path, b"new content")
                    told = False
                except PipelineError as error:
                    assert "\n" not in str(error) and str(error).startswith(f"{path}: "), (call, number)
            content = path.read_bytes()
            assert content == b"new content" if not told else content in (b"old", b"new content"), (call, number)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, (call, number)
            if left >= 0:
                break
            number += 1
            for one in tmp_path.iterdir():  # what cannot be removed, if removing fails
                if one != path:
                    assert call in ("unlink", "fstat", "stat", "pread", "flock"), (call, number, one)
                    one.unlink()


def test_two_at_a_time(tmp_path: Path) -> None:
    with (
        reserved(tmp_path / "file") as target,
        pytest.raises(PipelineError, match=f"file: another run is writing it, process {os.getpid()} on "),
    ):
        write_file(tmp_path / "file", b"other")
    write_file(tmp_path / "file", b"new")
    assert target.name == "file" and os.listdir(tmp_path) == ["file"]
