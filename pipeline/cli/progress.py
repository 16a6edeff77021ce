"""Progress of a run: a bar on a terminal, a plain line every ten seconds in a log, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from pipeline.settings import Progress

LINE_SECONDS = 10.0


@contextmanager
def show_progress(name: str, quiet: bool) -> Iterator[Progress]:
    """Yield a callback that shows (bytes done, bytes in all) on stderr."""
    if quiet:
        yield lambda done, total: None
    elif sys.stderr.isatty():
        with _bar(name) as update:
            yield update
    else:
        yield _lines(name)


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(name: str) -> Progress:
    began = last = monotonic()
    before = (0, began)

    def update(done: int, total: int | None) -> None:
        nonlocal began, before, last
        now = monotonic()
        if done <= before[0]:  # a second pass over the data
            began = before[1]
        before = (done, now)
        if now - last >= LINE_SECONDS:
            last = now
            rate = done / (now - began)
            text = f"{name}: {done / 1e9:.1f} GB, {rate / 1e9:.2f} GB/s"
            if total is not None:
                text = (f"{name}: {100 * done / total:.0f} % of {total / 1e9:.1f} GB, {rate / 1e9:.2f} GB/s, "
                        f"{(total - done) / rate:.0f} s left")  # fmt: skip
            print(text, file=sys.stderr, flush=True)

    return update
