"""The run loop of every job: opens workers, warms them up, runs passes over the data, and returns the outcome.

Jobs differ in their `Work`. A feature for all jobs has one place: retries belong into `submit.results`, which sees a
task fail and still has its items; progress into `pipeline.progress`; times into `outcome.Stages.add`. The loop knows
nothing of journals (`pipeline.engine.journal`): a job's `Work` leaves out what an earlier run has finished.
"""

from __future__ import annotations

import gc
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar
from uuid import uuid4

from kernels.common.seconds import compiling
from pipeline.cluster.gpu_count import Load
from pipeline.cluster.shared import open_workers
from pipeline.cluster.worker import run_task
from pipeline.cluster.workers import Workers, known_workers
from pipeline.engine.outcome import Outcome, Stages
from pipeline.engine.pace import LEAST_SECONDS, not_counted
from pipeline.engine.pickle_once import InThisProcess
from pipeline.engine.submit import results
from pipeline.engine.verdict import Verdict
from pipeline.errors import PipelineError, failure
from pipeline.process.signals import seal
from pipeline.progress import Finished
from pipeline.settings import Settings
from pipeline.timeline import Timeline

Item = TypeVar("Item")
Task = tuple[Any, ...]  # a function and its arguments
# Number and bytes of finished items; their result; check results, with timelines.
Done = tuple[int, int, Finished, Sequence[Any]]

COLLECTED = 100_000  # objects that are made until garbage is collected, in a process of our own

# Each of these has as many tasks in flight as compute at a time; any thread verifies.
COMPUTING_STAGES = ("read", "read+copy", "to device", "kernel", "to host", "write")


@dataclass(frozen=True)
class Extra:
    """A check of finished items, done when nothing is left to compute or a thread is free.

    Attributes
    ----------
    task
    label
        Its name, for messages.
    finish
        (result of the task) -> number, worker and device of what was checked, and the time that took; raises
        VerificationError.
    apart_from
        If it computes items again: the worker that did so before, which should not do it if there is another one.
    """

    task: Task
    label: str
    finish: Callable[[Any], Iterator[tuple[int, str, str, Timeline]]]
    apart_from: str | None = None


@dataclass(frozen=True)
class Work(Generic[Item]):
    """One pass of a job over its items: chunks of the input, or regions of the output.

    Attributes
    ----------
    batches
        The items of each task.
    total
        Bytes of all items, for the progress display; None if unknown.
    label
        (items) -> name of their task, for messages.
    compute
        (items) -> the task that computes them.
    check
        (items, future of the result) -> the tasks that check them; one that takes the future waits for it.
    finish
        (items, result, results of the checks) -> the finished items; raises VerificationError.
    worker
        (items) -> preferred worker, where an earlier pass left their blocks. Another one gets them if it is gone or
        too busy, or if tasks are restricted to some workers, so tasks must be able to read the blocks again.
    extra
        (whether there is time) -> a check of finished items, None if there is none now. Without time only one that has
        to be done all the same.
    shared
        Whether all threads of a worker share an extra check, beside a GPU.
    """

    batches: Iterable[Sequence[Item]]
    total: int | None
    label: Callable[[Sequence[Item]], str]
    compute: Callable[[Sequence[Item]], Task]
    check: Callable[[Sequence[Item], Any], Iterable[Task]]
    finish: Callable[[Sequence[Item], Any, Sequence[Any]], Iterator[Done]]
    worker: Callable[[Sequence[Item]], str | None] = lambda items: None
    extra: Callable[[bool], Extra | None] = lambda in_time: None
    shared: bool = False


@dataclass
class Run:
    """A run in progress: how it is verified, how many tasks share a GPU (lanes), and where its time went so far.

    So many more get ready beside them (`ahead`). So many tasks that compute were `submitted`; chunks, or tasks of
    regions, were computed again (`replayed`), of these on another device (`elsewhere`).
    """

    settings: Settings
    lanes: int
    seed: int = field(default_factory=lambda: secrets.randbits(32))
    ahead: int = 0
    stages: Stages = field(default_factory=Stages)
    replayed: int = 0
    elsewhere: int = 0
    submitted: int = 0
    workers: Workers = field(init=False)
    _began: float = field(init=False)

    @property
    def mode(self) -> str:
        """How it is verified."""
        return self.settings.verify

    @property
    def computing(self) -> int:
        """Number of tasks that compute at a time."""
        return self.workers.computing * (self.lanes if self.workers.device == "gpu" else 1)

    @property
    def _sharing(self) -> int:
        """Number of tasks that share a GPU; none more gets ready where it would take a thread that checks need."""
        most = self.lanes + self.ahead
        return most if self.workers.threads >= 2 * most * self.workers.computing else self.lanes

    def checking(self, shared: bool) -> int:
        """Number of extra checks at a time, whether or not all threads of a worker share one beside a GPU."""
        return self.workers.computing if shared and self.workers.device == "gpu" else self.workers.threads

    @property
    def _addresses(self) -> list[str] | None:
        return None if self.workers.addresses is None else list(self.workers.addresses)

    @contextmanager
    def open(
        self, nbytes: int, compiled: Callable[[], bool] = bool, load: Callable[[], Load] | None = None,
        here: Callable[[str], object] = bool,
    ) -> Iterator[Workers]:  # fmt: skip
        """The workers, from `open_workers`; the time until `timed` begins counts as start-up."""
        self._began, self._compiled = perf_counter(), compiling.total
        with open_workers(self.settings.placement, nbytes, compiled, load, here) as self.workers:
            self.stages.lanes = dict.fromkeys(COMPUTING_STAGES, self.computing) | {"verify": self.workers.threads}
            with self.settings.monitor.running(self.workers):
                yield self.workers

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the run without its start-up; what it has computed and verified, no signal throws away."""
        with _leaving_garbage() if self.settings.placement.own_process else nullcontext():
            started = perf_counter()
            self.stages.start_up, self.stages.compiling = started - self._began, compiling.total - self._compiled
            yield
            self.stages.wall = perf_counter() - started
            seal()

    def passed(self, items: Sequence[Item]) -> Sequence[Item]:
        """Items of a task, as they are passed to its worker."""
        return InThisProcess(items) if self.workers.client.scheduler.address.startswith("inproc://") else items

    def on_gpus(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on all workers if they compute on GPUs, to warm them up; as `on_workers`."""
        if self.workers.device == "gpu":
            self.on_workers(function, *arguments)

    def on_workers(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on all workers, to warm them up or to clean up.

        Errors are ignored: the first task that needs the same resource will also fail, and its message names the items.
        So are workers that do not answer within the limit of the client.
        """
        with suppress(OSError):  # TimeoutError is one
            self.workers.client.run(function, *arguments, workers=self._addresses, on_error="ignore")

    def complete(self, work: Work[Item]) -> None:
        """Compute and check all items, a window of tasks at a time; record and report progress.

        Extra checks begin as items finish; none that may be left out begins once time is up. They have as long as
        computing: on a GPU beside it, on a CPU, which they share, after it. Compiling
        them, in the first run on a machine, does not count.
        """
        began, until, monitor = perf_counter(), math.inf, self.settings.monitor
        checked = 0.0  # seconds, of all threads, beside computing
        before = not_counted.total
        monitor.begin(work.total, self.stages.lanes)
        beside = self.workers.device == "gpu"

        def extra(needed: int) -> Extra | None:
            nonlocal until
            now = perf_counter()
            if not needed and until == math.inf:
                computing = now - began - checked / self.workers.threads
                until = began + max(now - began if beside else 2 * computing, LEAST_SECONDS)
            in_time = now < until + not_counted.total - before
            return work.extra(in_time) if beside or needed < self.workers.threads else None

        name_of = partial(self._name_of, work)
        batches: Iterable[Sequence[Item] | Extra] = work.batches
        submit, most = partial(self._submit, work), 2 * self.checking(work.shared)
        for item, computed, *of_checks in results(batches, submit, self.workers, name_of, extra, most):
            if isinstance(item, Extra):
                for number, worker, device, timeline in item.finish(computed):
                    self.stages.add(number, worker, device, timeline)
                    monitor.checked(worker, timeline)
                continue
            try:
                for number, nbytes, result, references in work.finish(item, computed, of_checks):
                    checks = [reference.timeline for reference in references]
                    checked += sum(timeline.seconds.get("verify", 0.0) for timeline in checks)
                    self.stages.add(number, result.worker, result.device, result.timeline, *checks)
                    monitor.finished(nbytes, result, checks)
            except PipelineError:
                raise
            except Exception as error:  # what a worker sent is not what it should be
                raise failure(work.label(item), error) from error

    def _submit(self, work: Work[Item], items: Sequence[Item] | Extra) -> Iterator[Any]:
        # Computing has priority; checks use the remaining threads. They request no resource: a worker starts no task
        # that requests one while the first such task waits for its own. What all tasks share is an argument, not a
        # dependency: Dask would start all of them where the dependency ran, and move them one by one.
        submit = partial(self._submit_task, self._name_of(work, items))
        anywhere: dict[str, Any] = {"workers": self._addresses}
        resources = {name: amount / self._sharing for name, amount in self.workers.resources.items()}
        if isinstance(items, Extra):
            if items.apart_from:
                others = set(self._addresses or known_workers(self.workers.client, self.workers.description))
                others.discard(items.apart_from)
                anywhere = {"workers": list(others) or self._addresses, "allow_other_workers": bool(others),
                            "resources": resources}  # fmt: skip
            yield submit(items.task, priority=-1, **anywhere)
            return
        there = dict(anywhere)
        if self.workers.addresses is None and (address := work.worker(items)):
            there |= {"workers": [address], "allow_other_workers": True}
        # In their order: Dask would take tasks of one priority in any. Neighbours share what they read.
        self.submitted += 1
        priority = 1 + 1 / self.submitted
        yield (computed := submit(work.compute(items), resources=resources, priority=priority, **there))
        for task in work.check(items, computed):
            yield submit(task, **anywhere)

    def _submit_task(self, name: str, task: Task, **how: Any) -> Any:
        function = task[0]
        # Dask learns how long tasks take by the first part of their keys.
        key = f"{function.__name__}-{uuid4().hex}"
        return self.workers.client.submit(run_task, name, self.workers.device, *task, key=key, pure=False, **how)

    @staticmethod
    def _name_of(work: Work[Item], item: Sequence[Item] | Extra) -> str:
        return item.label if isinstance(item, Extra) else work.label(item)

    def outcome(
        self, job: tuple[Any, Any], source: Any, result: Any, samples: int, checked: int, items: int,
        escape: float | None = None, undetected: float = 0.0, read_once: bool | None = None, rounding: str = "",
    ) -> Outcome:  # fmt: skip
        """Outcome for a workflow with its options; a wrong number would have raised an error earlier."""
        verdict = Verdict(self.mode, samples, checked, items, self.seed, escape, undetected, read_once, self.replayed,
                          self.elsewhere, rounding or None)  # fmt: skip
        return Outcome(*job, source, result, verdict, self.stages, self.workers.description, self.workers.gpus)


@contextmanager
def _leaving_garbage() -> Iterator[None]:
    """Exclude existing objects from garbage collection, which would stop all threads for up to 0.1 s.

    For a process of our own: in another one, what its program has frozen would be collected again.
    """
    gc.freeze()
    gc.set_threshold(COLLECTED, 20, 20)
    try:
        yield
    finally:
        gc.unfreeze()
