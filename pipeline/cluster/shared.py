"""One cluster at a time in a process: that of one run, or one that several runs share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Lock, local

from kernels.common.once import once_per_process
from pipeline.cluster import placement as placing
from pipeline.cluster.gpu_count import Load
from pipeline.cluster.placement import Placement
from pipeline.cluster.workers import Workers, aside
from pipeline.errors import PipelineError
from pipeline.process.signals import uninterrupted


class Shared:
    """A cluster that stays open from one run to the next that asks for the same place.

    Parameters
    ----------
    nbytes
        Of the inputs of all runs: it is chosen for these, since it is started once.
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._open = ExitStack()
        self._where: Placement | None = None
        self._workers: Workers | None = None

    def workers(
        self, placement: Placement, nbytes: int, compiled: Callable[[], bool], load: Callable[[], Load] | None,
        here: Callable[[str], object],
    ) -> Workers:  # fmt: skip
        """The workers of the open cluster, or, if it is elsewhere or there is none, of a new one in its place."""
        if self._workers is None or placement != self._where:
            self.close()
            total = max(nbytes, self._nbytes)

            def of_all() -> Load:
                return replace(load(), nbytes=total) if load else Load("read", total)

            opened = placing.open_workers(placement, total, compiled, of_all, here)
            self._workers, self._where = self._open.enter_context(opened), placement
        return self._workers

    def close(self) -> None:
        """Stop it: the next run starts another one."""
        self._workers = self._where = None
        self._open.close()


_shared: Shared | None = None
_thread = local()


@contextmanager
def one_cluster(nbytes: int) -> Iterator[Shared]:
    """Runs in the body share a cluster; `nbytes`: of the inputs of all of them."""
    global _shared
    _shared = Shared(nbytes)
    try:
        yield _shared
    finally:
        made, _shared = _shared, None
        made.close()


@contextmanager
def open_workers(
    placement: Placement, nbytes: int, compiled: Callable[[], bool] = bool, load: Callable[[], Load] | None = None,
    here: Callable[[str], object] = bool,
) -> Iterator[Workers]:  # fmt: skip
    """The workers of a run; as `pipeline.cluster.placement.open_workers`, unless runs share a cluster.

    A cluster on this machine waits for the end of another that runs of this process, in other threads, have started.
    All would take the same cores, GPUs and memory, and what is set for one, such as its scratch folder, is set for the
    process.

    Raises
    ------
    PipelineError
        If code of a job that is part of such a run calls it, which would wait for itself.
    """
    if _shared is not None:
        yield _shared.workers(placement, nbytes, compiled, load, here)
        return
    opened = placing.open_workers(placement, nbytes, compiled, load, here)
    with _turn(placement), opened if placement.existing else uninterrupted(opened) as workers:
        yield workers


@contextmanager
def _turn(placement: Placement) -> Iterator[None]:
    if placement.existing:
        with aside():
            yield
        return
    if within_run():
        raise PipelineError("expected no run over files inside another run, which would deadlock; pass arrays, or run "
                            "it first")  # fmt: skip
    with _lock():  # held no longer than a run, all of whose waits have limits
        _thread.runs = True
        try:
            yield
        finally:
            _thread.runs = False


def within_run() -> bool:
    """Whether this thread works for a run that has started a cluster in this process: for a task, or as its client."""
    return getattr(_thread, "runs", False) or _own_task()


@once_per_process
def _lock() -> Lock:
    return Lock()


def _own_task() -> bool:
    """Whether this thread is in a task of a cluster that a run has started in this process."""
    if (started := sys.modules.get("pipeline.cluster.in_process")) is None:  # nor is distributed needed to tell
        return False
    from distributed import get_worker

    try:
        return isinstance(get_worker(), started.PortlessWorker)
    except ValueError:
        return False
