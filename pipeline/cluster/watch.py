"""Watches the processes of a cluster on this machine: kills what hangs, and says which task or GPU made a process fail.

Dask restarts a dead worker and reruns its tasks, but blames all of them alike, and misses a worker that hangs while its
event loop runs. Each process therefore shows which tasks it is in (`pipeline.process.heartbeat`), even after its end:
only these, and its GPU, are blamed.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic, time
from typing import Any

from pipeline.errors import PipelineError, PipelineWarning
from pipeline.process import heartbeat, supervisor
from pipeline.process.heartbeat import Looker, Seen, standstill, time_stopped
from pipeline.process.last_words import abandon

LOOK_SECONDS = 0.25
FAILURES_OF_TASK = 3  # processes that end in the same task until it is its fault
FAILURES_OF_DEVICE = 2  # errors or hangs of a GPU, not in a task that another GPU failed in too, until it is the GPU's
CLOSE_SECONDS = 10  # for a worker that is removed
CLOCK_SECONDS = 1  # that the clock may be set back without being mentioned
IDLE_SECONDS = 60  # without any process in a task, while results are waited for


class Watch:
    """Looks at the processes of a cluster each time it is called.

    Parameters
    ----------
    folder
        Where the processes show their progress.
    stall_seconds
        How long a process may take no step in a task.
    retire
        Removes a GPU from the cluster; returns how many are left.
    xids
        What the driver has reported of GPUs since the last call, by UUID.
    """

    def __init__(
        self, folder: str, stall_seconds: float, retire: Callable[[str], int],
        xids: Callable[[], Mapping[str, str]] = dict,
    ) -> None:  # fmt: skip
        self._stall_seconds, self._retire, self._xids = stall_seconds, retire, xids
        self._standstill = f"no progress within {stall_seconds:.0f} s"
        self._lost: dict[str, str] = {}  # GPUs of which the driver has reported an error, and which
        self._looker = Looker(folder)
        self._looked = self._busy = monotonic()
        self._clock = time() - self._looked
        self._killed: dict[int, float] = {}  # processes that hung, and when they were killed
        self._stalled: dict[str, float] = {}  # devices, and when a process that hung was last killed there
        self._of_task: dict[str, list[tuple[str, str]]] = {}  # devices, and what happened, by task
        self._of_device: dict[str, list[set[str]]] = {}  # tasks at each error or hang, by GPU

    def __call__(self, waited: float) -> None:
        """Look, at most four times a second.

        Parameters
        ----------
        waited
            Seconds since the last result.

        Raises
        ------
        PipelineError
            If a task has failed too often, no GPU is left, or this process hangs itself, or nothing happens at all.
        """
        now = monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._busy += time_stopped(now - self._looked)
        self._looked = now
        self._lost |= self._xids()
        for pid, seen in self._looker.look().items():
            if seen.active and seen.alive:
                self._busy = now
            if not seen.alive:
                self._looker.forget(pid)
                self._ended(pid, seen)
            elif seen.idle > self._stall_seconds or (seen.active and seen.device in self._lost):
                self._end(pid, seen)
        if min(waited, now - self._busy) > IDLE_SECONDS:
            advice = ("see nvidia-smi and the kernel's log for one that hangs, or raise the limits that keep it from "
                      "starting threads (ulimit -v, -u)")  # fmt: skip
            if (back := self._clock - (time() - now)) > CLOCK_SECONDS:  # Dask's messages wait until it has caught up
                advice = f"the system's clock was set back by {back:.0f} s; run again, and have it slewed, not set"
            raise PipelineError(f"expected a process to start a task within {IDLE_SECONDS} s, got none; {advice}")

    def _end(self, pid: int, seen: Seen) -> None:
        """Kill a process that hangs; in its own process, end the run."""
        text = standstill(seen.tasks, self._stall_seconds)
        if reason := self._lost.get(seen.device):
            text = f"{', '.join(seen.tasks)}: {reason}"
        if pid == os.getpid():
            abandon()  # CUDA would wait for an endless kernel
            raise PipelineError(text)
        first = pid not in self._killed
        when = self._killed.setdefault(pid, monotonic())
        if monotonic() - when > CLOSE_SECONDS:
            raise PipelineError(f"{text}; process {pid} cannot be killed; see the kernel's log for what it waits for")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if first and not reason:
            self._stalled[seen.device] = when
        if first:
            self._tell(seen, reason or self._standstill)  # now: the run may end before the next look

    def _ended(self, pid: int, seen: Seen) -> None:
        """Blame the GPU of a process, or the tasks that it ended in."""
        killed = self._killed.pop(pid, None) is not None
        error = seen.error or (self._lost.get(seen.device, "") if killed else "")
        reason = error or (self._standstill if killed else "its process ended")
        where = _where(seen)
        if not killed:
            self._tell(seen, reason)
        for task in seen.tasks:
            self._of_task.setdefault(task, []).append((seen.device, f"{where}{reason}"))
        hung = killed and not self._others_hang(seen.device)
        if where and (error or hung) and self._blame_device(seen, reason):  # nobody else ended the process
            return
        for task in seen.tasks:
            if len(self._of_task[task]) >= FAILURES_OF_TASK:
                raise self._error_of(task)

    @staticmethod
    def _tell(seen: Seen, reason: str) -> None:
        if seen.tasks:
            _warn(f"{', '.join(seen.tasks)}: {_where(seen)}{reason}; it is done again")

    def _others_hang(self, device: str) -> bool:
        """Whether another device hung lately, too: then it is the storage of both rather than the GPU."""
        lately = monotonic() - 2 * self._stall_seconds
        return any(when > lately for other, when in self._stalled.items() if other != device)

    def _blame_device(self, seen: Seen, reason: str) -> bool:
        """Whether the GPU is to blame; if so, it is no longer used."""
        failed = self._of_device.setdefault(seen.device, [])
        failed.append(set(seen.tasks))
        common = set.intersection(*failed)
        elsewhere = {device for task in common for device, _ in self._of_task[task]} - {seen.device}
        lost = seen.device in self._lost
        if not lost and (len(failed) < FAILURES_OF_DEVICE or elsewhere):
            return False
        left = self._retire(seen.device)
        if not left and common and not lost:
            raise self._error_of(next(task for task in seen.tasks if task in common))
        if not left:
            raise PipelineError(f"{seen.device}: {reason}; expected another GPU to go on with, got none; run with "
                                "--device cpu for the same result")  # fmt: skip
        why = "" if lost else f"failed {len(failed)} times and "
        _warn(f"{seen.device} {why}is not used any more; the run goes on with {left} GPU{'s'[: left > 1]}")
        failed.clear()
        return True

    def _error_of(self, task: str) -> PipelineError:
        failures = [text for _, text in self._of_task[task]]
        return PipelineError(f"{task}: expected a result, but {len(failures)} processes ended in this task: "
                             f"{'; '.join(failures)}; the kernel's log tells when memory ran out")  # fmt: skip


def _where(seen: Seen) -> str:
    return "" if seen.device == "cpu" else f"{seen.device}: "


def _warn(text: str) -> None:
    warnings.warn(text, PipelineWarning, stacklevel=3)


def retire(cluster: Any, device: str) -> int:
    """Remove the worker of a GPU from a cluster, so that it is not started again; return how many are left."""
    from distributed.core import Status

    workers = {name: worker for name, worker in cluster.workers.items() if worker.status != Status.closed}
    for name, worker in list(workers.items()):
        if worker.env.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] == device:
            cluster.worker_spec.pop(name, None)
            del workers[name]
            with suppress(Exception):  # what remains of it is killed with the cluster
                cluster.sync(worker.close, callback_timeout=CLOSE_SECONDS)
    return len(workers)


@contextmanager
def watching_itself(folder: str, stall_seconds: float) -> Iterator[None]:
    """Have the supervisor watch this process, which computes itself, and kill it even if it hangs holding the GIL."""
    supervisor.watch(folder, stall_seconds)
    try:
        yield
    finally:
        supervisor.watch(folder, 0)
        heartbeat.stop()
