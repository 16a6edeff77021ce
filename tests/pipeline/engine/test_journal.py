"""Aggregations continue from their journals: the same bits, nothing done twice, and nothing else is continued."""

from __future__ import annotations

import dataclasses
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.engine import journal as module
from pipeline.engine import journal_file, journal_request, unfinished
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.journal_file import JournalFile
from pipeline.errors import PipelineError, UsageError, VerificationError
from tests.cases.aggregation_checks import unchecked
from tests.pipeline.engine.journaled import CHUNKS, DIGESTED, PLAIN, PROVEN, SAMPLES, SEVERAL, SURVEYED, Runner
from workflows.histogram import HISTOGRAM, HistogramOptions

pytestmark = pytest.mark.usefixtures("shared")


def committed(runner: Runner) -> int:
    """Chunks in the journal, of all passes."""
    (key,) = journal_file.journals()
    return sum(row.header["done"] for row in journal_file.read(key) or [] if row.kind == "pass")


@pytest.mark.parametrize("verify", ["auto", "full", "sample", "off"])
@pytest.mark.parametrize(("jobs", "items"), [(PLAIN, CHUNKS), (SURVEYED, 2 * CHUNKS), (SEVERAL, CHUNKS),
                                             (PROVEN, 3 * CHUNKS), (DIGESTED, CHUNKS)])  # fmt: skip
def test_result_is_that_of_an_undisturbed_run(
    runner: Runner, path: Path, jobs: list[Job], items: int, verify: str
) -> None:
    """Interrupted three times, in the second pass at last; NumPy counts as well."""
    whole = runner.aggregate(jobs, path, verify=verify)
    assert whole is not None and len(runner.logged) == items and runner.journals() == []
    before = 0
    for after in (3, items // 2, items // 2 - 6):
        assert runner.aggregate(jobs, path, after, resume=True, verify=verify) is None
        assert len(runner.logged) == after and before <= committed(runner) <= before + after
        before = committed(runner)
    assert before
    continued = runner.aggregate(jobs, path, resume=True, verify=verify)
    assert continued is not None and len(runner.logged) == items - before
    assert runner.said == [f"continues an unfinished run ({runner.said[0].split('(')[1]}"]
    assert continued.result.to_json() == whole.result.to_json()
    assert continued.verdict.samples == len(SAMPLES) and continued.verdict.chunks == CHUNKS
    if verify != "auto":  # which checks as much as there is time for
        assert continued.verdict.checked == whole.verdict.checked
    if jobs is PLAIN:
        np.testing.assert_array_equal(continued.result.counts, np.histogram(SAMPLES, 1024, (0, 1024))[0])
    assert runner.journals() == []


def test_what_waits_for_its_check_is_not_committed(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a journal in time, checks follow computing: only what they cover is kept, however the run ends."""
    monkeypatch.setattr(module.Journal, "wanted", lambda *_: False)
    later = [Job(dataclasses.replace(job.workflow, check=unchecked), job.options) for job in PLAIN]
    assert runner.aggregate(later, path, CHUNKS) is None
    assert committed(runner) < CHUNKS
    continued = runner.aggregate(later, path, resume=True)
    assert continued is not None
    np.testing.assert_array_equal(continued.result.counts, np.histogram(SAMPLES, 1024, (0, 1024))[0])


def test_signal_while_partials_are_added_up(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the sum of what is committed is interrupted, the sum and the set of its chunks agree."""
    from pipeline.engine.aggregate_totals import Totals

    plus, left = Totals.plus, 0

    def interrupted(self: Totals, chunks: Any) -> Totals:
        nonlocal left
        left -= bool(chunks)
        if left == 0:
            raise KeyboardInterrupt
        return plus(self, chunks)

    monkeypatch.setattr(Totals, "plus", interrupted)
    for number in (1, 2, 5):
        left = number
        with pytest.raises(KeyboardInterrupt):
            runner.aggregate(PLAIN, path, resume=True)
    continued = runner.aggregate(PLAIN, path, resume=True)
    assert continued is not None and len(runner.logged) < CHUNKS
    np.testing.assert_array_equal(continued.result.counts, np.histogram(SAMPLES, 1024, (0, 1024))[0])


def test_short_run_writes_nothing(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER_SECONDS", 1e6)
    assert runner.aggregate(PLAIN, path) is not None
    assert runner.aggregate(PLAIN, path, 5) is None
    assert not runner.folder.exists()


def rewrite(path: Path) -> None:
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(path: Path) -> None:
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "had 96000 bytes, and has 95996": lambda path: os.truncate(path, 95996),
    "has been written to": lambda path: os.utime(path),
    "has been written to, or given another name, mode or owner": rewrite,
    "is another file": replace,
}


@pytest.mark.parametrize("told", CHANGES)
def test_changed_input_is_refused(runner: Runner, path: Path, told: str) -> None:
    runner.aggregate(PLAIN, path, 10)
    CHANGES[told](path)
    with pytest.raises(UsageError, match=f"but {path} {told}; leave --resume out"):
        runner.aggregate(PLAIN, path, resume=True)
    outcome = runner.aggregate(PLAIN, path)
    assert outcome is not None and f"({path} {told}); it starts over" in runner.said[0]


def test_content_that_shows_no_change_is_sampled(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file system has neither a ctime nor stable inodes."""
    monkeypatch.setattr("pipeline.storage.identity.UNSTABLE", ("",))
    runner.aggregate(PLAIN, path, 10)
    rewrite(path)
    with pytest.raises(UsageError, match=f"but {path} has other content"):
        runner.aggregate(PLAIN, path, resume=True)


def test_other_parameters_are_refused(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.aggregate(PLAIN, path, 10)
    with pytest.raises(UsageError, match="but --verify was auto, and is full"):
        runner.aggregate(PLAIN, path, resume=True, verify="full")
    with pytest.raises(UsageError, match="but --chunk-size was 4000, and is 8000"):
        runner.aggregate(PLAIN, path, resume=True, chunk_bytes=8000)
    with monkeypatch.context() as patch:
        patch.setattr(journal_request, "code_version", lambda: "0.2.0")
        with pytest.raises(UsageError, match=r"but the code of baru was \w+, and is 0\.2\.0"):
            runner.aggregate(PLAIN, path, resume=True)
    assert runner.aggregate(PLAIN, path, resume=True) is not None and len(runner.logged) <= CHUNKS - 1


def test_other_request_is_another_run(runner: Runner, path: Path) -> None:
    runner.aggregate(PLAIN, path, 10)
    assert runner.aggregate([Job(HISTOGRAM, HistogramOptions(bins=7))], path, resume=True) is not None
    assert runner.said == ["--resume: there is no unfinished run of exactly this request; it starts over"]
    assert len(runner.logged) == CHUNKS and len(journal_file.journals()) == 1


@pytest.mark.parametrize("answer", [True, False, None])
def test_plain_rerun_asks_or_begins_anew(runner: Runner, path: Path, answer: bool | None) -> None:
    """None: there is nobody to ask."""
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return bool(answer)

    runner.aggregate(PLAIN, path, 20, verify="full")
    before = committed(runner)
    outcome = runner.aggregate(PLAIN, path, ask=None if answer is None else ask, verify="full")
    assert outcome is not None and len(runner.logged) == CHUNKS - (before if answer else 0)
    if answer is None:
        assert "; this one starts over, --resume would have continued it" in runner.said[0]
    else:
        (question,) = asked
        share = 100 * before // CHUNKS
        assert re.fullmatch(
            rf"An unfinished run of this exists \({share} % of it done, begun \d+ s ago\). Continue it\?", question
        )


def test_second_run_at_the_same_time(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused if it is to continue; otherwise it leaves the journal alone."""
    runner.aggregate(PLAIN, path, 10)
    content = [one.read_bytes() for one in runner.journals()]
    with journal_file.open_state(journal_file.JOURNALS) as folder:
        (key,) = journal_file.journals()
        with module.locked(folder, key + module.LOCK, "the first"):
            with pytest.raises(
                PipelineError,
                match=r"--resume: expected a journal that no other run uses, got: .*another run.* "
                "process",
            ):
                runner.aggregate(PLAIN, path, resume=True)
            assert runner.aggregate(PLAIN, path) is not None and "another run is writing it" in runner.said[0]
            (one,) = unfinished.unfinished()
            assert one.state.startswith(f"in progress, process {os.getpid()}") and not unfinished.remove(one)
    assert [one.read_bytes() for one in runner.journals()] == content


def test_wrong_number_is_never_continued(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.aggregate(PLAIN, path, 10)
    monkeypatch.setattr("pipeline.engine.aggregate.check_total", _wrong)
    with pytest.raises(VerificationError):
        runner.aggregate(PLAIN, path, resume=True)
    assert runner.journals() == []


class _Mismatch:
    error = VerificationError("wrong")


def _wrong(*_: Any) -> _Mismatch:
    return _Mismatch()


def test_wrong_sum_is_never_committed(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.engine.aggregate_totals import Totals

    plus = Totals.plus

    def flipped(self: Totals, chunks: Any) -> Totals:
        sums = plus(self, chunks)
        if chunks:
            forwards = sums._sums[0][0]
            counts = forwards[0] = forwards[0].copy()
            counts[[counts.argmax(), 5]] += (-1, 1)
        return sums

    monkeypatch.setattr(Totals, "plus", flipped)
    with pytest.raises(VerificationError, match="differs between two orders"):
        runner.aggregate(PLAIN, path)
    assert runner.journals() == []


@pytest.mark.parametrize("error", [sqlite3.OperationalError("database or disk is full"), OSError(5, "I/O error")])
def test_journal_that_cannot_be_written(
    runner: Runner, path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on, and can be continued from what was written before."""
    write, left = JournalFile.write, 4

    def failing(self: JournalFile, *arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise error
        write(self, *arguments)

    monkeypatch.setattr(JournalFile, "write", failing)
    assert runner.aggregate(PLAIN, path, 20, verify="full") is None and left <= 0
    reason = "I/O error" if isinstance(error, OSError) else str(error)
    assert runner.said == [f"the journal cannot be written ({reason}): if this run is interrupted, it can be continued "
                           "as far as it was saved before"]  # fmt: skip
    left = 1000
    kept = committed(runner)
    assert kept and runner.aggregate(PLAIN, path, resume=True, verify="full") is not None
    assert len(runner.logged) == CHUNKS - kept
    left = 0
    outcome = runner.aggregate(PLAIN, path)
    assert outcome is not None and runner.said[0].endswith("from the beginning")
    np.testing.assert_array_equal(outcome.result.counts, np.histogram(SAMPLES, 1024, (0, 1024))[0])


def test_no_state_folder(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    assert runner.aggregate(PLAIN, path) is not None and "from the beginning" in runner.said[0]
    assert runner.aggregate(PLAIN, path, resume=True) is not None
