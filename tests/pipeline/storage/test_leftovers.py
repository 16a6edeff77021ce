"""What killed runs leave beside their outputs is removed by the next one, and nothing else is."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.storage import leftovers
from pipeline.storage.leftovers import FOLDER, Resumable, listed, remove_leftovers, remove_part
from pipeline.storage.output_lock import this_process
from pipeline.storage.state import JOURNAL_SUFFIX, JOURNALS, open_state
from tests.pipeline.storage.whole_file import whole_file

WRITE = """
import sys, time
from tests.pipeline.storage.whole_file import whole_file
with whole_file(sys.argv[1], 10**6) as file:
    file.write(bytes(10**6))
    print("written", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the lists."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(leftovers, "_listed", set())  # another test may have left a file that can be continued
    monkeypatch.setattr(leftovers, "_file", None)
    return tmp_path / "state" / "baru" / "runs"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def killed(path: Path) -> list[Path]:
    """Files that a process leaves that is killed while it writes one."""
    with subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "written\n"
        process.kill()
    return sorted(path.parent.iterdir())


def test_nothing_is_listed_after_a_run(runs: Path, data: Path) -> None:
    with whole_file(data / "out", 0):
        (listing,) = runs.iterdir()
        paths = [Path(json.loads(line)) for line in listing.read_text().splitlines()]
        assert sorted(paths) == sorted(data.iterdir())
        assert listing.stat().st_mode & 0o777 == 0o600
    assert list(runs.iterdir()) == []


def test_files_of_a_killed_run_are_removed(runs: Path, data: Path) -> None:
    left = killed(data / "out")
    assert len(left) == 2 and max(path.stat().st_size for path in left) == 10**6
    (data / "out").write_bytes(b"old")
    assert sorted(map(Path, remove_leftovers())) == left
    assert (list(data.iterdir()), list(runs.iterdir())) == ([data / "out"], [])


def test_files_of_a_run_that_lives_are_not(runs: Path, data: Path) -> None:
    with whole_file(data / "out", 3) as file:
        code = "from pipeline.storage.leftovers import remove_leftovers; print(remove_leftovers())"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
        assert len(list(data.iterdir())) == 2
        file.write(b"new")
    assert list(data.iterdir()) == [data / "out"]


def test_file_that_a_dead_run_has_listed_belongs_to_one_that_lives(runs: Path, data: Path) -> None:
    """It has the same name if the same request runs again."""
    with whole_file(data / "out", 3, later=Resumable("01234567", False, lambda: False)) as file:
        (runs / f"{socket.gethostname()}.1.x").write_text(json.dumps(file.name) + "\n")
        assert remove_leftovers() == []
        file.write(b"new")
    assert (data / "out").read_bytes() == b"new"


def test_file_of_an_unfinished_run_stays_listed(runs: Path, data: Path) -> None:
    """Until its journal is gone, however that happens."""
    part = data / ".out.01234567.part"
    part.touch()
    with open_state(FOLDER):
        (runs / f"{socket.gethostname()}.1.x").write_text(json.dumps(str(part)) + "\n")
    with open_state(JOURNALS):
        journal = runs.parent / JOURNALS / f"0123456789{JOURNAL_SUFFIX}"
        journal.touch()
    assert remove_leftovers() == [] and part.exists()
    journal.unlink()
    assert remove_leftovers() == [str(part)] and list(runs.iterdir()) == []


@pytest.mark.parametrize(("alive", "left"), [(True, [".out.lock"]), (False, [])])
def test_lock_whose_holder_lives(runs: Path, data: Path, alive: bool, left: list[str]) -> None:
    """Where the system's lock is one of another host, and cannot be seen."""
    holder = this_process()._replace(started=this_process().started if alive else "another time")
    (data / ".out.lock").write_text(json.dumps(holder))
    assert remove_part(str(data / ".out.lock")) != alive and os.listdir(data) == left


@pytest.mark.parametrize("name", ["out", "x" * 250, "[a]*\n"])
def test_next_run_of_the_same_output_needs_no_list(runs: Path, data: Path, name: str) -> None:
    """It gets the lock, so what looks like a temporary file of this output has no process."""
    assert len(killed(data / name)) == 2
    for listing in runs.iterdir():
        listing.unlink()
    others = [data / f".{name[:200]}.part", data / ".other.01234567.part", data / f"{name[:200]}.01234567.part"]
    for other in others:
        other.touch()
    with whole_file(data / name, 3) as file:
        file.write(b"new")
    assert sorted(data.iterdir()) == sorted([data / name, *others])


@pytest.mark.parametrize("name", ["out", ".bashrc", ".a.part/../out", "part", ".lock.x"])
def test_only_what_runs_leave_is_removed(runs: Path, data: Path, name: str) -> None:
    """Whatever a list says."""
    (data / ".a.part").mkdir()
    (data / os.path.basename(name)).write_bytes(b"mine")
    runs.mkdir(parents=True, mode=0o700)
    for folder in (runs, *list(runs.parents)[:2]):
        folder.chmod(0o700)
    (runs / f"{socket.gethostname()}.1.x").write_text(json.dumps(f"{data}/{name}") + "\n")
    assert remove_leftovers() == [] and list(runs.iterdir()) == []
    assert (data / os.path.basename(name)).read_bytes() == b"mine"


def test_lists_that_mean_nothing_here(runs: Path, data: Path) -> None:
    """Of another host; half written; with other values; and paths that are links, folders or gone."""
    runs.mkdir(parents=True, mode=0o700)
    for folder in (runs, *list(runs.parents)[:2]):
        folder.chmod(0o700)
    (data / ".mine.part").write_bytes(b"mine")
    (data / ".link.part").symlink_to(data / ".mine.part")
    (data / ".folder.part").mkdir()
    (data / ".fifo.part").touch()
    (data / ".fifo.part").unlink()
    os.mkfifo(data / ".fifo.part")
    (runs / "elsewhere.1.x").write_text(json.dumps(str(data / ".mine.part")))
    lines = [str(data / ".link.part"), str(data / ".folder.part"), str(data / ".fifo.part"), str(data / ".gone.part"),
             ".mine.part", 3, None, ["x"], "\0.part"]  # fmt: skip
    text = "\n".join(map(json.dumps, lines)) + "\n" + "[" * 9000 + "\n" + json.dumps(str(data / ".mine.part"))[:-3]
    (runs / f"{socket.gethostname()}.1.x").write_text(text)
    (runs / f"{socket.gethostname()}.2.x").symlink_to(data / ".mine.part")
    assert remove_leftovers() == []
    assert sorted(os.listdir(data)) == [".fifo.part", ".folder.part", ".link.part", ".mine.part"]
    assert sorted(os.listdir(runs)) == sorted(["elsewhere.1.x", f"{socket.gethostname()}.2.x"])


def test_without_a_state_folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written all the same."""
    (tmp_path / "state").write_bytes(b"")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with whole_file(data / "out", 3) as file:
        file.write(b"new")
    assert remove_leftovers() == [] and list(data.iterdir()) == [data / "out"]


def test_list_that_somebody_takes_before_it_is_locked(runs: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has just taken it for that of a dead one, and removed it: a new one is made."""
    real, taken = leftovers.fcntl.flock, []

    def flock(file: int, how: int) -> None:
        if not taken:
            taken.append([path.unlink() for path in runs.iterdir()])
        real(file, how)

    monkeypatch.setattr(leftovers.fcntl, "flock", flock)
    with listed(str(data / ".a.part")):
        (listing,) = runs.iterdir()
        assert json.loads(listing.read_text()) == str(data / ".a.part")


def test_file_that_cannot_be_removed_is_left_to_the_next_run(
    runs: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"""
import os
real = os.unlink
def unlink(path, **folder):
    if str(path).endswith(".part"):
        raise OSError(5, "Input/output error")
    real(path, **folder)
os.unlink = unlink
from tests.pipeline.storage.whole_file import whole_file
with whole_file({str(data / "out")!r}, 3) as file:
    raise SystemExit(3)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 3
    (part,) = data.iterdir()
    assert remove_leftovers() == [str(part)] and list(runs.iterdir()) == []
