"""What a command shows while its job runs: progress, the dashboard with our own page, and Dask's report afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from time import time
from typing import Any

from pipeline.cli.progress import every, show_progress
from pipeline.errors import PipelineError, UsageError, failure
from pipeline.process.last_words import say
from pipeline.progress import TOPIC, RunProgress
from pipeline.storage.atomic_file import Target, reserved

PUBLISH_SECONDS = 1.0
ANSWER_SECONDS = 5  # of a scheduler that has more important things to do
REPORT_SECONDS = 60


class Watched(RunProgress):
    """Progress of a command's run, which it shows.

    Parameters
    ----------
    verify
    quiet
    report
        The reserved file for Dask's performance report.
    """

    def __init__(self, verify: str, quiet: bool, report: Target | None) -> None:
        super().__init__(verify)
        self._quiet, self._report, self._html = quiet, report, b""
        self._problem: PipelineError | None = None

    @contextmanager
    def shown(self, job: str) -> Iterator[None]:
        """Show progress; warnings, which the command prints, are part of it."""
        self.job = job
        before = warnings.showwarning

        def both(message: Warning | str, *rest: Any) -> None:
            self.warn(str(message))
            before(message, *rest)

        warnings.showwarning = both  # type: ignore[assignment]
        try:
            with show_progress(self.snapshot, self._quiet):
                yield
        finally:
            warnings.showwarning = before

    @contextmanager
    def running(self, workers: Any) -> Iterator[None]:
        """Print where the dashboard is, keep its page up to date, and have Dask write its report."""
        _print_dashboard(workers)
        with (
            every(PUBLISH_SECONDS, lambda: self._publish(workers)) if workers.dashboard else nullcontext(),
            self._reported(workers) if self._report else nullcontext(),
        ):
            try:
                with super().running(workers):
                    yield
            except Exception:  # not a signal, which must be obeyed at once
                self._publish(workers)
                raise
            self._publish(workers)

    def _publish(self, workers: Any) -> None:
        """Hand the state to the scheduler, as an event of Dask's, if it serves pages."""
        if not workers.dashboard:
            return
        client = workers.client
        with suppress(Exception):  # a page that stands still is no reason to end a run
            client.sync(client.scheduler.log_event, topic=TOPIC, msg=self.snapshot(), callback_timeout=ANSWER_SECONDS)

    @contextmanager
    def _reported(self, workers: Any) -> Iterator[None]:
        client, start = workers.client, time()
        try:
            client.get_task_stream(start=0, stop=0)  # has the scheduler keep what its tasks do
        except Exception as error:
            self._problem = failure("the performance report", error)
        yield
        try:
            html = client.sync(client.scheduler.performance_report, start=start, last_count=0, code=self.job,
                               mode="inline", callback_timeout=REPORT_SECONDS)  # fmt: skip
            self._html = html.encode()
        except Exception as error:
            self._problem = failure("the performance report", error)

    def write_report(self) -> None:
        """Write Dask's report, once results are written; PipelineError if that fails."""
        if self._report is None:
            return
        if self._problem is not None:
            raise self._problem
        self._report.write(self._html)


@contextmanager
def watching(values: dict[str, Any]) -> Iterator[Watched]:
    """What the flags of a command ask for; the performance report is written when the body has succeeded."""
    path = values["performance_report"]
    if path is not None and find_spec("bokeh") is None:
        raise UsageError(f"--performance-report {path}: expected the package bokeh, found none; pip install bokeh")
    with ExitStack() as stack:
        watched = Watched(values["verify"], values["quiet"],
                          None if path is None else stack.enter_context(reserved(path)))  # fmt: skip
        yield watched
        watched.write_report()


def _print_dashboard(workers: Any) -> None:
    """Print the dashboard's address, with pages that Dask links only if the scheduler's own host has a GPU."""
    if workers.dashboard:
        say(f"dashboard: {workers.dashboard}", *([f"this run: {workers.page}"] if workers.page else []))
        if workers.device == "gpu":
            base = workers.dashboard.removesuffix("status")
            say(f"GPU pages: {base}individual-gpu-utilization {base}individual-gpu-memory")
