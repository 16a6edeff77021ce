"""The pytest plugin that ends a test process where pytest-timeout cannot.

The limit of pytest-timeout is a signal handler in Python, which is called once. It is not called while C code holds the
GIL or while the signal is blocked, and what it raises in a destructor is ignored. Once a test has failed there is no
limit at all: pytest-timeout and pytest's own faulthandler have cancelled their timers, and a fixture may hang while it
is torn down. This limit is a thread in C (`faulthandler.dump_traceback_later`): it prints all stacks and ends the
process.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from typing import Any

import pytest

GRACE = 60.0  # seconds beyond the limit of a test, in which pytest-timeout can end it; also for the end of the process


class Watchdog:
    """Limits the time of each test, with its fixtures, and of the end of the process."""

    def __init__(self, config: pytest.Config) -> None:
        self.stderr = os.dup(2)  # before pytest captures it
        self.seconds = 0.0
        self.debugs = config.getoption("usepdb")
        self.is_worker = hasattr(config, "workerinput")  # of xdist: waits for the others, and is ended

    def _start(self, seconds: float) -> None:
        if not self.debugs:
            self.seconds = seconds
            faulthandler.dump_traceback_later(seconds, exit=True, file=self.stderr)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Between tests a process may have to wait for others."""
        try:
            return (yield)
        finally:
            self.seconds = 0.0
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self, settings: Any) -> None:
        """Begin with pytest-timeout, which knows the limit of the test."""
        self._start(settings.timeout + GRACE)

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        """Begin again after a failure, where others have cancelled the timer: fixtures are still to be torn down."""
        if self.seconds:
            self._start(self.seconds)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Threads that do not end would keep the process."""
        if not self.is_worker:
            self._start(GRACE)
