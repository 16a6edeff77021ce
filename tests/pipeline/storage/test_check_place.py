"""What is known of an output beforehand is told then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.errors import UsageError
from pipeline.storage.atomic_file import write_file
from pipeline.storage.check_place import check_place
from tests.pipeline.storage.whole_file import whole_file


def refused(path: str | Path) -> str:
    with pytest.raises(UsageError) as caught:
        check_place(str(path))
    message = str(caught.value)
    assert "\n" not in message and "expected" in message
    return message


def test_name_that_cannot_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path, got in (("", "an empty one"), (".", "a directory"), ("..", "a directory"), ("new/", "'new/'"),
                      ("a\0b", "a null byte in it"), ("a\0/b", "a null byte in it"), ("/", "a directory"),
                      ("-", "a dash")):  # fmt: skip
        assert f"expected a file name for the output, got {got}" in refused(path)
    assert "expected a name of at most 255 bytes, got 256; shorten it" in refused("ü" * 128)
    check_place("ü" * 127)
    check_place("./-")
    assert f"found none at {tmp_path}/missing; create it" in refused("missing/a")
    assert "expected an existing folder" in refused("x" * 300 + "/a")
    assert os.listdir() == []


def test_kind_of_what_is_there(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    for name, make, got in (
        ("fifo", os.mkfifo, "something else"), ("link", lambda path: os.symlink(target, path), "a symbolic link"),
        ("dangling", lambda path: os.symlink("nowhere", path), "a symbolic link"),
        ("loop", lambda path: os.symlink(path, path), "a symbolic link"),
    ):  # fmt: skip
        make(tmp_path / name)
        assert f"{name}: expected a regular file to replace or none, got {got}" in refused(tmp_path / name)
        with pytest.raises(UsageError), whole_file(tmp_path / name, 0):
            pytest.fail("opened")
    assert target.read_bytes() == b"old"


def test_file_of_another_user_in_a_sticky_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    check_place(str(tmp_path / "file"))
    tmp_path.chmod(0o1777)
    assert "expected a file that may be replaced, got one of another user" in refused(tmp_path / "file")
    check_place(str(tmp_path / "other"))


def test_parent_of_a_link_is_the_system_s(tmp_path: Path) -> None:
    """`link/..` is the folder above the link's target."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    write_file(f"{tmp_path}/link/../file", b"new")
    assert (tmp_path / "a" / "file").read_bytes() == b"new" and not (tmp_path / "file").exists()
