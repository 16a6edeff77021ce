"""What a run may take: time, and a folder of its own."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Hang(Exception):
    """A run took too long."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `Hang` in the main thread after so many seconds."""

    def alarm(*_: Any) -> None:
        raise Hang(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, alarm)
    others = signal.setitimer(signal.ITIMER_REAL, seconds)  # a timer of the tests
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *others)


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for inputs and outputs, in memory where there is one."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder)
