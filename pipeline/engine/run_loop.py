"""The run loop of every job: opens workers, warms them up, runs passes over the data, and states the outcome.

Jobs differ in their `Work`. What will serve all of them has one place each: retries in `submit.results`, which sees a
task fail while it holds its items; a journal in `Run.complete`, where items arrive verified and which need not submit
those of an earlier run; metrics in `outcome.Stages.add`, which gets the times of everything that was done.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from pipeline.cluster.placement import open_workers
from pipeline.cluster.workers import Workers
from pipeline.engine.outcome import Outcome, Stages, Verdict
from pipeline.engine.submit import results
from pipeline.settings import Settings

Item = TypeVar("Item")
Task = tuple[Any, ...]  # a function and its arguments
# Number and bytes of what is done; its result, with worker, device and timeline; those of its checks, with a timeline.
Done = tuple[int, int, Any, Sequence[Any]]

# As many tasks are in each of these at a time as compute; any thread verifies.
COMPUTING_STAGES = ("read", "read+copy", "to device", "kernel", "to host", "write")


@dataclass(frozen=True)
class Work(Generic[Item]):
    """One pass of a job over its items: chunks of the input, or regions of the output.

    Attributes
    ----------
    batches
        The items of each task.
    total
        Bytes of all items, for the progress; None if they are unknown.
    label
        (items) -> what to call their task in a message.
    compute
        (items) -> the task that computes them.
    check
        (items, future of what was computed) -> the tasks that check them; one that takes the future waits for it.
    finish
        (items, what was computed, what the checks returned) -> what is done; raises VerificationError.
    worker
        (items) -> the worker to prefer, where an earlier pass left their blocks. Another one gets them where that is
        gone or too busy, or where tasks are confined to some workers, so tasks must be able to read them again.
    """

    batches: Iterable[Sequence[Item]]
    total: int | None
    label: Callable[[Sequence[Item]], str]
    compute: Callable[[Sequence[Item]], Task]
    check: Callable[[Sequence[Item], Any], Iterable[Task]]
    finish: Callable[[Sequence[Item], Any, Sequence[Any]], Iterator[Done]]
    worker: Callable[[Sequence[Item]], str | None] = lambda items: None


@dataclass
class Run:
    """A run under way: how it is verified, how many tasks share a GPU (lanes), and where its time went so far."""

    settings: Settings
    mode: str
    lanes: int
    seed: int = field(default_factory=lambda: secrets.randbits(32))
    stages: Stages = field(default_factory=Stages)
    workers: Workers = field(init=False)
    _began: float = field(init=False)

    @property
    def computing(self) -> int:
        """Tasks that compute at a time."""
        return self.workers.computing * (self.lanes if self.workers.device == "gpu" else 1)

    @property
    def _addresses(self) -> list[str] | None:
        return None if self.workers.addresses is None else list(self.workers.addresses)

    @contextmanager
    def open(self, nbytes: int, compiled: Callable[[], bool] = bool) -> Iterator[Workers]:
        """The workers, as `open_workers` has them; time until `timed` begins is that of starting."""
        self._began = perf_counter()
        with open_workers(self.settings.placement, nbytes, compiled) as self.workers:
            self.settings.on_start(self.workers)
            self.stages.lanes = dict.fromkeys(COMPUTING_STAGES, self.computing) | {"verify": self.workers.threads}
            yield self.workers

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measures the run itself."""
        started = perf_counter()
        self.stages.start_up = started - self._began
        yield
        self.stages.wall = perf_counter() - started

    def on_gpus(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on all workers if they compute on GPUs, to warm them up; as `on_workers`."""
        if self.workers.device == "gpu":
            self.on_workers(function, *arguments)

    def on_workers(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on all workers, to warm them up or to clean up.

        Its errors are ignored: the first task that needs the same fails too, and its message names the items.
        """
        self.workers.client.run(function, *arguments, workers=self._addresses, on_error="ignore")

    def complete(self, work: Work[Item]) -> None:
        """Compute and check all items, a window of tasks at a time; count and report what is done."""
        done = 0
        for items, computed, *checks in results(work.batches, partial(self._submit, work), self.workers, work.label):
            for number, nbytes, result, references in work.finish(items, computed, checks):
                timelines = [result.timeline, *(reference.timeline for reference in references)]
                self.stages.add(number, result.worker, result.device, *timelines)
                done += nbytes
                self.settings.progress(done, work.total)

    def _submit(self, work: Work[Item], items: Sequence[Item]) -> Iterator[Any]:
        # Computing goes first; checks fill what threads are left. They ask for no resource: a worker starts none of the
        # tasks that do while the first of them waits for its own. What all tasks have in common is an argument and not
        # a task that they depend on: Dask would start them all where that one ran, and move them one by one.
        submit, anywhere = self.workers.client.submit, {"pure": False, "workers": self._addresses}
        there = dict(anywhere)
        if self.workers.addresses is None and (address := work.worker(items)):
            there |= {"workers": [address], "allow_other_workers": True}
        resources = {name: amount / self.lanes for name, amount in self.workers.resources.items()}
        yield (computed := submit(*work.compute(items), resources=resources, priority=1, **there))
        for task in work.check(items, computed):
            yield submit(*task, **anywhere)

    def outcome(
        self, job: tuple[Any, Any], source: Any, result: Any, samples: int, checked: int, items: int,
        escape: float | None = None, read_once: bool | None = None,
    ) -> Outcome:  # fmt: skip
        """What the run made of a workflow with its options; a wrong number would have ended it before."""
        verdict = Verdict(self.mode, samples, checked, items, self.seed, escape, read_once)
        return Outcome(*job, source, result, verdict, self.stages, self.workers.description)
