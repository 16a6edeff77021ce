"""When a journal is committed: before anything that may hang, again once it can be, and never without its head."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.engine import journal as module
from pipeline.engine import journal_file, unfinished
from pipeline.engine.array_gpu import finish
from pipeline.engine.journal import Journal
from pipeline.engine.journal_file import JournalFile
from pipeline.engine.run_loop import Run
from pipeline.errors import PipelineError, UsageError
from tests.cases.files import opened_in
from tests.pipeline.engine.journaled import CHUNKS, PLAIN, SAMPLES, InterruptedError, Runner
from workflows.transpose import TRANSPOSE, TransposeOptions

pytestmark = pytest.mark.usefixtures("shared")


def committed() -> int:
    """Chunks or regions in the journal, if there is one."""
    keys = journal_file.journals()
    rows = [row for key in keys for row in journal_file.read(key) or []]
    regions = sum(len(row.header["regions"]) for row in rows if row.kind == "regions")
    return regions + sum(row.header["done"] or 0 for row in rows if row.kind == "pass")


def test_signal_while_inputs_are_hashed(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first commit: the one that follows says all the same whose journal it is."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "identities", _interrupt_once(module.identities))
        assert runner.aggregate(PLAIN, path, verify="off") is None
    assert committed() == len(runner.logged) == 1
    assert runner.aggregate(PLAIN, path, resume=True, verify="off") is not None


def _interrupt_once(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    calls = 0

    def interrupted(files: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise InterruptedError
        return function(files)

    return interrupted


@pytest.fixture
def at_closing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets how much is committed when workers are told that a run ends, or are closed."""
    seen: list[int] = []
    on_workers, opened = Run.on_workers, Run.open

    def observed(loop: Run, function: Any, *arguments: Any) -> None:
        if function is finish:
            seen.append(committed())
        on_workers(loop, function, *arguments)

    @contextmanager
    def closing(loop: Run, *arguments: Any, **options: Any) -> Iterator[Any]:
        with opened(loop, *arguments, **options) as workers:
            try:
                yield workers
            finally:
                seen.append(committed())

    monkeypatch.setattr(Run, "on_workers", observed)
    monkeypatch.setattr(Run, "open", closing)
    monkeypatch.setattr(module, "EVERY_SECONDS", 1e6)  # after the first commit
    return seen


def test_chunks_are_committed_before_workers_are_closed(runner: Runner, path: Path, at_closing: list[int]) -> None:
    assert runner.aggregate(PLAIN, path, 10, verify="off") is None
    assert at_closing == [committed()] == [10]


def test_regions_are_committed_before_workers_are_told(
    runner: Runner, path: Path, tmp_path: Path, at_closing: list[int]
) -> None:
    np.save(tmp_path / "m.npy", SAMPLES.reshape(200, -1))
    options, output = TransposeOptions(), tmp_path / "t.npy"
    assert runner.array(TRANSPOSE, options, tmp_path / "m.npy", output, 5, chunk_bytes=8000) is None
    assert at_closing == [committed()] * 2 and committed() >= 5


def test_stopped_before_anything_has_begun(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to continue."""
    monkeypatch.setattr("pipeline.engine.aggregate.plan_pass", _stopped)
    with pytest.raises(KeyboardInterrupt):
        runner.aggregate(PLAIN, path)
    assert runner.journals() == []


def _stopped(*_: Any) -> None:
    raise KeyboardInterrupt


def test_write_that_fails_is_tried_again(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a disk is full for a minute; the user is told once."""
    write, left = JournalFile.write, 3

    def failing(self: JournalFile, *arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, *arguments)

    monkeypatch.setattr(JournalFile, "write", failing)
    monkeypatch.setattr(module, "MOST_SECONDS", 0)
    assert runner.aggregate(PLAIN, path, 10, verify="off") is None
    assert committed() == 10 and len(runner.said) == 1 and "No space left" in runner.said[0]
    continued = runner.aggregate(PLAIN, path, resume=True, verify="off")
    assert continued is not None and len(runner.logged) == CHUNKS - 10
    np.testing.assert_array_equal(continued.result.counts, np.histogram(SAMPLES, 1024, (0, 1024))[0])


def test_nothing_is_left_where_no_write_succeeds(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: JournalFile, *arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(JournalFile, "write", failing)
    assert runner.aggregate(PLAIN, path, verify="off") is not None and runner.journals() == []


@pytest.mark.parametrize(("seconds", "pause"), [(0.001, 0.5), (0.02, 2), (10, 60)])
def test_pause_between_commits(
    runner: Runner, path: Path, seconds: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It follows from how long a commit takes, without what only the first one has to do."""
    now, pauses = 0.0, []
    first, write, commit = module.identities, JournalFile.write, Journal.commit

    def slow(files: Any) -> Any:
        nonlocal now
        now += 1000
        return first(files)

    def measured(self: JournalFile, *arguments: Any) -> None:
        nonlocal now
        now += seconds
        write(self, *arguments)

    def observed(self: Journal) -> None:
        commit(self)
        pauses.append(self._next - now)

    monkeypatch.setattr(module, "monotonic", lambda: now)
    monkeypatch.setattr(module, "identities", slow)
    monkeypatch.setattr(JournalFile, "write", measured)
    monkeypatch.setattr(Journal, "commit", observed)
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.5)
    monkeypatch.setattr(module, "COMMIT_SHARE", 100)
    assert runner.aggregate(PLAIN, path, verify="off") is not None
    assert pauses == [pytest.approx(pause)]


def stale(runner: Runner, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def listdir(folder: Any) -> list[str]:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(journal_file.os, "listdir", listdir)


def wrong_mode(runner: Runner, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.folder.chmod(0o750)


def no_lock(runner: Runner, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (runner.folder / f"{key}.lock").write_bytes(b"mine")


UNUSABLE = {stale: "Stale file handle", wrong_mode: "they may enter it", no_lock: "to be a lock, got something else"}


@pytest.mark.parametrize("make", UNUSABLE)
def test_journal_that_cannot_be_opened(
    runner: Runner, path: Path, make: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is to be continued is not thrown away, and another one goes on without; both are told why."""
    runner.aggregate(PLAIN, path, 10, verify="off")
    (key,) = journal_file.journals()
    before = (runner.folder / f"{key}.sqlite").read_bytes()
    with monkeypatch.context() as patch:
        make(runner, key, patch)
        with pytest.raises(PipelineError, match=f"^--resume: expected a journal .*{UNUSABLE[make]}") as caught:
            runner.aggregate(PLAIN, path, resume=True, verify="off")
        assert not isinstance(caught.value, UsageError) and "another run" not in str(caught.value)
        assert runner.aggregate(PLAIN, path, verify="off") is not None
        assert UNUSABLE[make] in runner.said[0] and len(runner.said) == 1
        if make is not no_lock:
            with pytest.raises(PipelineError, match=UNUSABLE[make]):
                [unfinished.remove(one) for one in unfinished.unfinished()]
    assert (runner.folder / f"{key}.sqlite").read_bytes() == before
    assert opened_in(runner.folder) == []


@pytest.mark.parametrize("after", [0, 10])
def test_journal_of_an_input_that_changes_is_removed(
    runner: Runner, path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not be continued: a run that was told to would be refused. 0: the change is seen at the end."""
    log, left = Journal.log, after or CHUNKS

    def changing(journal: Journal, *arguments: Any) -> None:
        nonlocal left
        log(journal, *arguments)
        left -= 1
        if not left:
            os.utime(path)
            if after:
                raise PipelineError("planted")

    monkeypatch.setattr(Journal, "log", changing)
    with pytest.raises(PipelineError, match="planted" if after else "was written to"):
        runner.aggregate(PLAIN, path, verify="off")
    assert runner.journals() == []
