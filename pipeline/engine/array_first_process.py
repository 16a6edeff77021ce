"""Another process computes the first region on a CPU while the command's process imports Dask and starts its threads.

A thread of the command's process would be slow: whenever the process unmaps memory, the operating system interrupts its
threads and waits for them. The other process maps the input files and copies nothing. If a file shrinks, that process
dies, and the task of the region computes it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from typing import cast

from pipeline.cluster.helper_process import COMPUTES, CheckProcess, comes, end, take
from pipeline.engine.array_plan import ArrayPlan, dump
from pipeline.storage.output_array import OutputFile
from pipeline.timeline import Timeline
from workflows import WORKFLOWS
from workflows.regions import Bounds

_of_runs: dict[str, Begun] = {}


class Begun:
    """A region that another process computes and writes, for the task that gets it later.

    Parameters
    ----------
    plan
    region
    process
        Started for it.
    ready
        Waits for the output file.
    seconds
        How long the process may do nothing.
    """

    def __init__(
        self, plan: ArrayPlan, region: Bounds, process: CheckProcess, ready: Callable[[], OutputFile], seconds: float
    ) -> None:  # fmt: skip
        self.region, self._run, self._process, self._seconds = region, plan.run, process, seconds
        self._sent = Thread(target=self._send, args=(plan, ready), name="begun", daemon=True)
        self._sent.start()
        _of_runs[plan.run] = self

    def _send(self, plan: ArrayPlan, ready: Callable[[], OutputFile]) -> None:
        with suppress(Exception):  # the task of the region computes it
            pickled = dump(replace(plan, output=ready()), self.region)
            with self._process.plan as file:
                file.write(pickled)
                file.seek(0)
                self._process.connection.send(None)

    def counts(self, timeline: Timeline) -> Mapping[str, int] | None:
        """Elements by path, once it is done; None if it failed, or does nothing."""
        self._sent.join()
        process, connection, *_ = self._process
        with suppress(OSError, EOFError, ValueError, pickle.UnpicklingError):
            if comes(process, connection, self._seconds):
                counts, times = connection.recv()
                timeline.join(times)
                return cast("Mapping[str, int]", counts)
        self.close()
        return None

    def close(self) -> None:
        """End the other process."""
        _of_runs.pop(self._run, None)
        end(*self._process[:2])


def begin(plan: ArrayPlan, region: Bounds, ready: Callable[[], OutputFile], seconds: float) -> Begun | None:
    """Begin a region, if a process was started for that; another one would start too late."""
    own = plan.workflow.compute is getattr(WORKFLOWS.get(plan.workflow.name), "compute", None)
    process = take(COMPUTES) if own else None
    return Begun(plan, region, process, ready, seconds) if process else None


def begun(plan: ArrayPlan, region: Bounds, timeline: Timeline) -> Mapping[str, int] | None:
    """Elements by path of a region that was begun, for the first task that asks; None if it has to compute them."""
    one = _of_runs.get(plan.run)
    if one is None or one.region != region or _of_runs.pop(plan.run, None) is None:
        return None
    return one.counts(timeline)
