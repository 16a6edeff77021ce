"""Jobs that write an array continue in their temporary file: the same bytes, nothing done twice that is still there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.engine import journal_file, unfinished
from pipeline.engine.journal import Journal
from pipeline.engine.journal_file import JournalFile
from pipeline.engine.outcome import Outcome
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.storage.leftovers import remove_leftovers
from tests.cases.format_case import package_of
from tests.pipeline.engine.journaled import Runner
from workflows.array_job import Checked
from workflows.transpose import TRANSPOSE, TransposeOptions

pytestmark = pytest.mark.usefixtures("shared")
MATRIX = np.random.default_rng(0).integers(0, 2**60, (300, 200))
BYTES = 150_000  # of a region with its input: some twenty, a task for each


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    np.save(tmp_path / "work" / "m.npy", MATRIX)
    return tmp_path / "work"


def transpose(
    runner: Runner, folder: Path, after: int = 0, resume: bool = False, verify: str = "auto"
) -> Outcome | None:
    options, output = TransposeOptions(), folder / "t.npy"
    return runner.array(TRANSPOSE, options, folder / "m.npy", output, after, resume, verify, BYTES)


def part(folder: Path) -> Path:
    """The temporary file, the only one beside the input."""
    (path,) = set(folder.iterdir()) - {folder / "m.npy"}
    return path


def committed() -> int:
    (key,) = journal_file.journals()
    return sum(len(row.header["regions"]) for row in journal_file.read(key) or [] if row.kind == "regions")


def check(runner: Runner, folder: Path) -> None:
    """The output is right, and nothing else is left."""
    np.testing.assert_array_equal(np.load(folder / "t.npy"), MATRIX.T)
    assert {path.name for path in folder.iterdir()} == {"m.npy", "t.npy"} and runner.journals() == []


@pytest.mark.parametrize("verify", ["auto", "full", "sample", "off"])
def test_bytes_are_those_of_an_undisturbed_run(runner: Runner, folder: Path, verify: str) -> None:
    whole = transpose(runner, folder, verify=verify)
    items = len(runner.logged)
    assert whole is not None and items > 5
    check(runner, folder)
    (folder / "t.npy").unlink()
    before = 0
    for after in (2, 3):
        assert transpose(runner, folder, after, resume=before > 0, verify=verify) is None
        assert before < committed()
        before = committed()
        remove_leftovers()  # as the next start of any run does
        assert part(folder).name.startswith(".t.npy.")
    continued = transpose(runner, folder, resume=True, verify=verify)
    assert continued is not None and len(runner.logged) == items - before
    assert continued.verdict.chunks == whole.verdict.chunks
    assert continued.verdict.checked == whole.verdict.checked
    check(runner, folder)


def test_regions_that_are_not_there_any_more_are_computed_again(runner: Runner, folder: Path) -> None:
    """One byte is flipped; then, after another interruption, the file is cut in half, as after a loss of power."""
    transpose(runner, folder)
    items = len(runner.logged)
    (folder / "t.npy").unlink()
    transpose(runner, folder, items - 2)
    before = committed()
    path = part(folder)
    content = bytearray(path.read_bytes())
    places = [place for place in range(128, len(content)) if content[place]]
    content[places[0]] ^= 1
    path.write_bytes(content)
    assert transpose(runner, folder, 2, resume=True) is None
    assert before - 1 <= committed()
    os.truncate(path, len(content) // 2)
    kept = committed()
    assert transpose(runner, folder, resume=True) is not None
    assert items - kept < len(runner.logged) < items
    check(runner, folder)


@pytest.mark.parametrize(("name", "chunks"), [("t.h5::/x", None), ("t.zarr", None), ("t.zarr", (70, 90))])
def test_other_formats(runner: Runner, folder: Path, name: str, chunks: tuple[int, ...] | None) -> None:
    """What lies around the elements is written again, what lies in tiles is recognized."""
    package_of("h5py" if "h5" in name else "zarr")
    for after in (3, 2, 0):
        outcome = runner.array(TRANSPOSE, TransposeOptions(), folder / "m.npy", folder / name, after, after < 3, "full",
                               BYTES, chunks)  # fmt: skip
        assert (outcome is None) == bool(after)
        assert after == 0 or part(folder).name.startswith(f".{name.partition('::')[0]}.")
    assert outcome is not None and 5 < len(runner.logged) < 20  # of 20
    np.testing.assert_array_equal(outcome.result.array, MATRIX.T)
    assert {path.name for path in folder.iterdir()} == {"m.npy", name.partition("::")[0]} and runner.journals() == []


def test_temporary_file_is_gone(runner: Runner, folder: Path) -> None:
    """All is computed again."""
    transpose(runner, folder, 3)
    part(folder).unlink()
    assert transpose(runner, folder, resume=True) is not None and len(runner.logged) > 5
    check(runner, folder)


def test_killed_when_the_output_has_its_name(runner: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal, of a run that has done everything, is still there."""
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "remove", lambda self: None)
        assert transpose(runner, folder) is not None
    assert committed() and (folder / "t.npy").exists()
    assert transpose(runner, folder, resume=True) is not None
    check(runner, folder)


def test_stopped_before_anything_has_begun(runner: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a signal while a slow cluster starts: nothing can be continued, so nothing stays."""
    from pipeline.engine import array

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(array, "cut_regions", stopped)
    with pytest.raises(KeyboardInterrupt):
        transpose(runner, folder)
    assert runner.journals() == [] and [path.name for path in folder.iterdir()] == ["m.npy"]


def test_folder_that_has_moved(runner: Runner, folder: Path) -> None:
    """A run that begins anew removes the file where the journal says it is."""
    transpose(runner, folder, 3)
    path = part(folder)
    path.rename(moved := folder.parent / path.name)
    (key,) = journal_file.journals()
    run = (journal_file.read(key) or [])[0]
    file = JournalFile(key, run.header["salt"])
    file.write([run._replace(header=run.header | {"part": str(moved)})], [])
    file.close()
    assert transpose(runner, folder) is not None and not moved.exists()
    check(runner, folder)


def test_smaller_memory_limit(runner: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions stay as they were cut, so a limit that they exceed is refused, and a larger one is not."""
    transpose(runner, folder, 3)
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.engine.array.within_limits", lambda *_: BYTES // 4)
        with pytest.raises(UsageError, match=r"got one that takes \d+; raise the limit or leave --resume out$"):
            transpose(runner, folder, resume=True)
    assert transpose(runner, folder, resume=True) is not None and "continues" in runner.said[0]
    check(runner, folder)


def test_rerun_without_resume_begins_anew(runner: Runner, folder: Path) -> None:
    transpose(runner, folder, 3)
    part(folder).write_bytes(b"something else")
    assert transpose(runner, folder) is not None and "starts over" in runner.said[0]
    check(runner, folder)


@pytest.mark.parametrize("error", [PipelineError("no workers"), KeyboardInterrupt()])
def test_rerun_that_is_refused_leaves_the_unfinished_run(
    runner: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """As by a cluster that cannot be opened; there is room for one file, not for two."""
    from pipeline.engine import array
    from pipeline.storage import atomic_file

    transpose(runner, folder)
    items = len(runner.logged)
    (folder / "t.npy").unlink()
    transpose(runner, folder, 3)
    before, left = committed(), part(folder)

    def refused(*_: Any) -> None:
        raise error

    free = atomic_file.shutil.disk_usage(folder)._replace(free=MATRIX.nbytes // 2)
    with monkeypatch.context() as patch:
        patch.setattr(atomic_file.shutil, "disk_usage", lambda _: free)
        patch.setattr(array, "cut_regions", refused)
        with pytest.raises(type(error)):
            transpose(runner, folder)
    assert part(folder) == left and runner.said == []
    remove_leftovers()
    assert transpose(runner, folder, resume=True) is not None and "continues" in runner.said[0]
    assert before and len(runner.logged) == items - before
    check(runner, folder)


def test_list_and_clean(runner: Runner, folder: Path) -> None:
    transpose(runner, folder, 3)
    (one,) = unfinished.unfinished()
    assert one.part == str(part(folder)) and one.nbytes >= MATRIX.nbytes and "% of it done" in one.state
    assert one.what == f"transpose of {folder / 'm.npy'}"
    assert unfinished.remove(one) and unfinished.unfinished() == runner.journals() == []
    assert [path.name for path in folder.iterdir()] == ["m.npy"]


def test_wrong_number_leaves_nothing(runner: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transpose(runner, folder, 3)
    monkeypatch.setattr("pipeline.engine.array_task._check", lambda *_: Checked(("element (0, 0): wrong",), 1))
    with pytest.raises(VerificationError):
        transpose(runner, folder, resume=True)
    assert runner.journals() == [] and [path.name for path in folder.iterdir()] == ["m.npy"]
