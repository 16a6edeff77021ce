"""Runs that are interrupted when a number of items have finished, and continued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cluster.placement import Placement
from pipeline.engine import journal as module
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.array import run_array
from pipeline.engine.journal import Journal
from pipeline.engine.journal_request import Request
from pipeline.engine.outcome import Outcome
from pipeline.engine.resume import open_journal
from pipeline.progress import RunProgress
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.digest import DIGEST, DigestOptions
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.quantile import QUANTILE, QuantileOptions
from workflows.reduce import REDUCE, ReduceOptions

CHUNKS = 24
SAMPLES = np.random.default_rng(0).integers(-500, 1500, CHUNKS * 1000).astype("<i4")
PLAIN = [Job(HISTOGRAM, HistogramOptions())]
SURVEYED = [Job(HISTOGRAM, HistogramOptions(range="auto"))]
PROVEN = [Job(QUANTILE, QuantileOptions("0.1,0.5"))]
DIGESTED = [Job(DIGEST, DigestOptions())]
SEVERAL = [*PLAIN, Job(REDUCE, ReduceOptions("sum,std,argmax"))]


class InterruptedError(BaseException):
    """As a signal would."""


class Runner:
    """Runs jobs with journals that are written from the beginning, and keeps what the user is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
        self.said: list[str] = []
        self.logged: list[str] = []  # items that the last run has finished
        self.folder = state / "baru" / "journals"
        self.left = 0
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        for name in ("AFTER_SECONDS", "EVERY_SECONDS", "COMMIT_SHARE"):
            monkeypatch.setattr(module, name, 0)
        log = Journal.log

        def counted(journal: Journal, pass_: str, items: str, *rest: Any) -> None:
            self.logged.append(f"{pass_} {items}")
            log(journal, pass_, items, *rest)
            self.left -= 1
            if not self.left:
                raise InterruptedError

        monkeypatch.setattr(Journal, "log", counted)

    def journals(self) -> list[Path]:
        """Files in the folder of journals."""
        return sorted(self.folder.iterdir()) if self.folder.exists() else []

    def _run(
        self, request: Request, run: Callable[[Journal], Outcome], after: int, resume: bool,
        ask: Callable[[str], bool] | None,
    ) -> Outcome | None:  # fmt: skip
        self.left, self.logged, self.said = after, [], []
        try:
            with open_journal(request, resume, ask, self.said.append) as journal:
                outcome = run(journal)
                journal.remove()
                return outcome
        except InterruptedError:
            return None

    def aggregate(
        self, jobs: Sequence[Job], path: Path, after: int = 0, resume: bool = False, verify: str = "auto",
        chunk_bytes: int = 4000, ask: Callable[[str], bool] | None = None,
    ) -> Outcome | None:  # fmt: skip
        """The outcome of the first job; None if it was interrupted after so many chunks."""
        source = open_source([str(path)])
        request = Request(
            tuple((job.workflow.name, job.options) for job in jobs), (source,), (), verify, chunk_bytes
        )  # fmt: skip
        settings = Settings(Placement("cpu"), verify, chunk_bytes=chunk_bytes, monitor=RunProgress(verify))
        return self._run(request, lambda one: run_all(jobs, source, settings, one)[0], after, resume, ask)

    def array(
        self, workflow: Any, options: Any, path: Path, output: Path, after: int = 0, resume: bool = False,
        verify: str = "auto", chunk_bytes: int = 4000, chunks: tuple[int, ...] | None = None,
    ) -> Outcome | None:  # fmt: skip
        """The outcome of a job that writes an array; None if it was interrupted after so many tasks."""
        source = open_source([str(path)], samples=False)
        request = Request(((workflow.name, options),), (source,), (str(output),), verify, chunk_bytes)
        settings = Settings(Placement("cpu"), verify, chunk_bytes=chunk_bytes, monitor=RunProgress(verify))

        def run(journal: Journal) -> Outcome:
            return run_array(workflow, options, [source], str(output), settings, journal, chunks)

        return self._run(request, run, after, resume, None)
