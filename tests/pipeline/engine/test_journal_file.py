"""Journals that are damaged, forged, or somebody else's are refused; the log in one says who computed what."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipeline.engine import journal_file, unfinished
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.journal_file import DamagedError, JournalFile, Row
from pipeline.errors import PipelineError, UsageError, VerificationError
from tests.pipeline.engine.journaled import CHUNKS, PLAIN, SAMPLES, Runner
from workflows.histogram import HISTOGRAM, HistogramOptions

pytestmark = pytest.mark.usefixtures("shared")


def test_flips_are_caught(runner: Runner, path: Path) -> None:
    """Of one bit, of several, of whole runs of bytes: the state is read as it was written, or refused."""
    runner.aggregate(PLAIN, path, 20, verify="full")
    (key,) = journal_file.journals()
    right, file = journal_file.read(key), runner.folder / f"{key}.sqlite"
    content, random, caught = file.read_bytes(), Random(1), 0
    for trial in range(400):
        wrong = bytearray(content)
        start = random.randrange(len(wrong))
        for place in range(start, min(start + (1, 4, 32, 512)[trial % 4], len(wrong))):
            wrong[place] ^= random.randrange(1, 256)
        file.write_bytes(wrong)
        try:
            assert journal_file.read(key) == right, f"trial {trial}, byte {start}"
        except DamagedError:
            caught += 1
    assert caught > 100
    file.write_bytes(content[:-1000])
    with pytest.raises(UsageError, match=r"--resume: .* its journal is damaged: "):
        runner.aggregate(PLAIN, path, resume=True, verify="full")
    assert unfinished.unfinished()[0].state.startswith("damaged")
    assert runner.aggregate(PLAIN, path, verify="full") is not None and len(runner.logged) == CHUNKS


FORGED: list[dict[str, Any]] = [
    {"done": 3}, {"items": 7}, {"items": 10**12}, {"items": -1}, {"partials": []}, {"partials": [["O", [1027]]]},
    {"partials": [["<i8", [2**62, 2**62]]]}, {"partials": [["<i8", [-1]]]}, {"cut": "ab"}, {"samples": None},
    {"samples": 1},
]  # fmt: skip


def test_text_that_is_none_is_not_quoted(runner: Runner, path: Path) -> None:
    """A header has thousands of bytes, and may have any after it has changed."""
    runner.aggregate(PLAIN, path, 20, verify="full")
    (key,) = journal_file.journals()
    file = runner.folder / f"{key}.sqlite"
    file.write_bytes(file.read_bytes().replace(b'"format"', b'"f\xff\nmat"'))
    with pytest.raises(UsageError, match=r"is damaged: Could not decode to UTF-8 column 'header'; leave --resume out"):
        runner.aggregate(PLAIN, path, resume=True, verify="full")


@pytest.mark.parametrize("change", FORGED)
def test_forged_state_is_refused(runner: Runner, path: Path, change: dict[str, Any]) -> None:
    """Rows with right digests that say what cannot be: one line, no crash, no wrong result."""
    runner.aggregate(PLAIN, path, 20, verify="full")
    (key,) = journal_file.journals()
    run, row = journal_file.read(key) or []
    file = JournalFile(key, run.header["salt"])
    file.write([Row(row.kind, row.number, row.header | change, row.content)], [])
    file.close()
    with pytest.raises((PipelineError, VerificationError), match=r"damaged|the sum of all chunks is wrong"):
        runner.aggregate(PLAIN, path, resume=True, verify="full")


def test_samples_are_counted_at_the_end(runner: Runner, path: Path) -> None:
    """Also where no invariant of a job does."""
    jobs = [Job(replace(HISTOGRAM, invariants=()), HistogramOptions())]
    runner.aggregate(jobs, path, 20, verify="full")
    (key,) = journal_file.journals()
    run, row = journal_file.read(key) or []
    file = JournalFile(key, run.header["salt"])
    file.write([Row(row.kind, row.number, row.header | {"samples": row.header["samples"] - 1}, row.content)], [])
    file.close()
    with pytest.raises(VerificationError, match=f"expected {len(SAMPLES)} samples, got {len(SAMPLES) - 1}; "):
        runner.aggregate(jobs, path, resume=True, verify="full")
    assert runner.journals() == []


def test_links_and_others_are_not_followed(runner: Runner, path: Path, tmp_path: Path) -> None:
    runner.aggregate(PLAIN, path, 20, verify="full")
    (key,) = journal_file.journals()
    file = runner.folder / f"{key}.sqlite"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError):
        journal_file.read(key)
    file.unlink()
    (tmp_path / "elsewhere").rename(file)
    file.chmod(0o666)
    with pytest.raises(DamagedError, match="belongs to others, or they may write to it"):
        journal_file.read(key)
    assert runner.folder.stat().st_mode & 0o777 == 0o700


def test_log_says_who_computed_what(runner: Runner, path: Path) -> None:
    runner.aggregate(PLAIN, path, 10, verify="full")
    runner.aggregate(PLAIN, path, 10, resume=True, verify="full")
    (key,) = journal_file.journals()
    with closing(sqlite3.connect(runner.folder / f"{key}.sqlite")) as database:
        lines = database.execute("SELECT pass, worker, device, kernel, attempt FROM log").fetchall()
    assert {line[0] for line in lines} == {"histogram"} and {line[2] for line in lines} == {"cpu"}
    assert all("://" in line[1] for line in lines) and {line[3] for line in lines} <= {"compiled", "NumPy"}
    assert [line[4] for line in lines] == [1] * 10 + [2] * 10
