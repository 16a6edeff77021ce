"""Checks regions in another process, because threads of the command's own process would wait for the GIL.

While a GPU's worker starts, the command's process imports modules and makes a CUDA context. Threads that prepared
checks there at the same time made the start take 1.5 times as long.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from subprocess import Popen
from threading import Lock, Thread
from time import perf_counter

from pipeline.cluster.helper_process import CHECKS, comes, start, take
from pipeline.engine.array_check_ahead import ChecksAhead, PreparedChecks, check_here
from pipeline.engine.array_plan import ArrayPlan, dump, load
from pipeline.storage.mapped_input import MappedFiles
from pipeline.storage.output_array import OutputFile
from pipeline.storage.planned_file import Opened, kept_open
from pipeline.threads import SWITCH_SECONDS
from pipeline.timeline import Timeline
from workflows.array_job import Checked
from workflows.regions import Bounds

NICE = 5  # so that what feeds a GPU does not wait for it


class ChecksApart(PreparedChecks):
    """Like `ChecksAhead`, in another process. If that fails, or does nothing for so long, a worker makes the checks."""

    def __init__(self, plan: ArrayPlan, seconds: float) -> None:
        super().__init__()
        self._plan, self._seconds = plan, seconds
        self._process: Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._asking, self._closing = Lock(), Lock()

    def begin(self, regions: Sequence[Bounds]) -> None:
        """Start to prepare the checks of these regions, unless that has begun."""
        if self._connection is None and regions:
            with suppress(Exception):  # the checks are made here
                self._start(regions)

    def _start(self, regions: Sequence[Bounds]) -> None:
        pickled = dump(self._plan, list(regions))
        self._process, self._connection, plan, _ = take(CHECKS) or start(CHECKS)
        with plan:
            plan.write(pickled)
            plan.seek(0)
            self._connection.send(None)

    def check(self, output: OutputFile, region: Bounds, opened: Opened, timeline: Timeline) -> Checked:
        """Check a region of the output."""
        with self._asking:
            if answer := self._answer(output, region):
                checked, began, seconds = answer
                timeline.add("verify", began, seconds)
                return checked
        return check_here(self._plan, output, region, opened)

    def _answer(self, output: OutputFile, region: Bounds) -> tuple[Checked, float, float] | None:
        """The verdict of the other process; it is ended if there is none."""
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            if self._process and self._connection and not self._connection.closed:
                self._connection.send((output, region))
                if comes(self._process, self._connection, self._seconds):
                    answer: tuple[Checked, float, float] | None = self._connection.recv()
                    return answer
        self.close()
        return None

    def stop(self) -> None:
        """Kill the other process, which unmaps its files while workers end, too."""
        if self._process and self._process.poll() is None:
            self._process.kill()

    def close(self) -> None:
        """End the other process."""
        with self._closing:  # whoever waits for an answer wakes up, and ends it too
            self.stop()
            if self._connection:
                self._connection.close()
            if self._process and self._process.poll() is None:
                # The run does not wait: unmapping 6 GiB takes 0.2 s, and a read that hangs cannot be killed.
                Thread(target=self._process.wait, name="ending", daemon=True).start()


def serve(connection: Connection) -> None:
    """What the helper process does: prepares checks, and makes those that it is asked for, until the command ends."""
    os.nice(NICE)
    sys.setswitchinterval(SWITCH_SECONDS)
    import numpy.ma  # noqa: F401, which np.unique would import during a check, for 30 ms

    connection.recv()  # the plan is there
    plan, regions = load(sys.stdin.buffer)
    ahead = ChecksAhead(plan, MappedFiles())
    ahead.begin(regions)
    ahead.hurry()  # it takes all cores, and gives way
    answers = ThreadPoolExecutor(1)

    def answer(output: OutputFile, region: Bounds) -> None:
        reply = None
        with suppress(Exception), kept_open() as opened:  # who asked makes the check again, and reports the error
            began, timeline = perf_counter(), Timeline()
            checked = ahead.check(output, region, opened, timeline)
            reply = checked, began - timeline.seconds.get("verify", 0.0), timeline.seconds.get("verify", 0.0)
        connection.send(reply)

    with suppress(EOFError, OSError):
        while True:
            answers.submit(answer, *connection.recv())
