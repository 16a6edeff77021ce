"""A monitor that calls functions of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pipeline.progress import Finished, Monitor
from pipeline.timeline import Timeline


class Told(Monitor):
    """Calls `progress` with bytes done and bytes in all as chunks finish, and `on_start` once when workers are up."""

    def __init__(
        self, progress: Callable[[int, int | None], Any] = lambda done, total: None,
        on_start: Callable[[Any], Any] = lambda workers: None,
    ) -> None:  # fmt: skip
        self._progress, self._on_start = progress, on_start
        self._done, self._total = 0, None

    @contextmanager
    def running(self, workers: Any) -> Iterator[None]:
        self._on_start(workers)
        yield

    def begin(self, total: int | None, lanes: dict[str, int]) -> None:
        self._done, self._total = 0, total

    def finished(self, nbytes: int, result: Finished, checks: Sequence[Timeline]) -> None:
        self._done += nbytes
        self._progress(self._done, self._total)
