"""Runs jobs that write an array: regions are computed, written and checked before the file gets its name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Self

from numpy.typing import NDArray

from pipeline.cluster.workers import Workers, known_workers
from pipeline.engine.array_check_ahead import ChecksAhead, PreparedChecks
from pipeline.engine.array_first_process import begin
from pipeline.engine.array_gpu import finish, warm_up
from pipeline.engine.array_journal import RegionsDone
from pipeline.engine.array_plan import ArrayPlan
from pipeline.engine.array_regions import checked_together, joined_regions, run_regions
from pipeline.engine.array_request import (
    accepted,
    cut_regions,
    load_of,
    plan_array,
    region_bytes,
)
from pipeline.engine.inputs import cluster_bytes, unchanged
from pipeline.engine.journal import Journal
from pipeline.engine.outcome import Outcome
from pipeline.engine.run_loop import Run
from pipeline.engine.task_memory import LANES, seats, streamed, within_limits
from pipeline.engine.verdict import Verdict
from pipeline.settings import Settings
from pipeline.storage.leftovers import Resumable
from pipeline.storage.mapped_output import begin_again
from pipeline.storage.output_file import output_file
from pipeline.storage.output_format import ZARR, map_output
from pipeline.storage.sources import Source
from workflows import WORKFLOWS
from workflows.array_job import ArrayJob
from workflows.regions import Bounds, Spec
from workflows.shown import Shown

# Multiplications that are worth a process for their checks: it takes 0.2 s to start, while a GPU's worker starts.
APART = 2**33


@dataclass(frozen=True)
class ArrayResult(Shown):
    """The array that a job wrote.

    Attributes
    ----------
    path
        Its file.
    spec
        Shape and dtype, with byte order.
    notes
        How it was computed, by name.
    verification
        What was checked, set by `pipeline.run`.

    Examples
    --------
    >>> import numpy, pipeline, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numpy.save(f"{folder}/a.npy", numpy.arange(6).reshape(2, 3))
    ...     result = pipeline.run("transpose", f"{folder}/a.npy", output=f"{folder}/t.npy")
    ...     result.array.tolist()
    [[0, 3], [1, 4], [2, 5]]
    """

    path: str
    spec: Spec
    notes: dict[str, str]
    verification: Verdict | None = field(default=None, compare=False, repr=False)

    @cached_property
    def array(self) -> NDArray[Any]:
        """The array, mapped from its file: nothing is read until it is accessed. Of Zarr in tiles, a copy in memory.

        It stays what the job wrote if the file is removed, or replaced by another run.
        """
        return map_output(self.path, self.spec)

    def mapped(self) -> Self:
        """Map the file while it is certainly the job's; a Zarr store, which nothing replaces, when it is asked for."""
        if not self.path.endswith(ZARR):
            with suppress(OSError):
                _ = self.array
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "array"}

    def to_json(self) -> dict[str, Any]:
        """Path, dtype, byte order, shape, bytes, and how it was computed."""
        spec, order = self.spec, "big" if self.spec.dtype.byteorder == ">" else "little"
        plain = {"path": self.path, "dtype": spec.dtype.name, "byteorder": order, "shape": list(spec.shape)}
        return plain | {"bytes": spec.nbytes, "notes": self.notes}

    def lines(self) -> list[tuple[str, str]]:
        """The file, its size, and how it was computed."""
        what = f"{self.spec}, big endian" if self.spec.dtype.byteorder == ">" else f"{self.spec}"
        return [("output", f"{self.path} ({what})"), ("bytes", f"{self.spec.nbytes:,}"), *self.notes.items()]


def run_array(
    workflow: ArrayJob[Any],
    options: Any,
    sources: Sequence[Source],
    path: str,
    settings: Settings = Settings(),
    journal: Journal | None = None,
    chunks: tuple[int, ...] | None = None,
) -> Outcome:
    """Run one job over its inputs, write its output, and verify it.

    Parameters
    ----------
    workflow, options
        The job.
    sources
        One per input array.
    path
        The output: `.npy`, HDF5, Zarr, or raw with a suffix of no other format. It appears whole, once everything
        is verified.
    settings
    journal
        What an earlier run has finished, and gets what this one does.
    chunks
        Shape of the chunks of a Zarr store.

    Raises
    ------
    VerificationError
        If a check finds a wrong element; nothing is left under the name of the output.
    PipelineError
        If the run fails otherwise; UsageError if the request is impossible.
    """
    asked = accepted(workflow, options, sources, path, settings)
    inputs, specs, spec, nbytes = asked.inputs, asked.specs, asked.spec, asked.nbytes
    journal = Journal() if journal is None else journal
    later = Resumable(journal.token, journal.continued, lambda: journal.saved) if journal.possible else None
    loop = Run(settings, LANES, journal.seed)
    loop.stages.nbytes = nbytes
    limit, stall = settings.device_memory_limit, settings.placement.stall_seconds
    plan = plan_array(workflow, options, asked, path, settings, loop.seed)
    placed = cluster_bytes(sources, settings.placement) and nbytes
    done = RegionsDone(journal)

    @cache
    def cut(device: str, most: float) -> tuple[int, list[Bounds]]:
        return cut_regions(plan, region_bytes(workflow, device, most, settings), most, done.elements)

    def prepare(device: str) -> None:
        """Begin what needs no worker while that of this process starts: the first region, in another process, or what
        the checks need the inputs for."""
        together = workflow.prepare and checked_together(plan, settings)
        if together:
            ahead.append(files.enter_context(closing(_prepared_checks(plan, device, stall))))
        # An earlier run may have finished some; or its file goes once this one, which may be refused, writes.
        if not together or done.elements is not None or journal.replaces:
            return
        _, regions = cut(device, within_limits(1, device, settings))
        if device == "cpu" and regions and (first := begin(plan, regions[0], ready, stall)):
            files.enter_context(closing(first))
        else:
            ahead[0].begin([group.bounds for group in joined_regions(plan, regions, device, 1)])

    ahead: list[PreparedChecks] = []
    with (
        output_file(path, asked.stored, later, chunks) as ready,
        unchanged(sources, journal),
        ExitStack() as files,
        loop.open(placed, load=lambda: load_of(plan, placed, settings), here=prepare) as workers,
    ):
        place = _threads_of_one(workers, settings), workers.device, settings
        most = within_limits(*place)
        elements, regions = cut(workers.device, most)
        if regions:
            loop.on_gpus(warm_up, plan, regions[0])
        held = min(plan.nbytes, streamed(most, workers.device))
        plan = replace(plan, output=ready(), seats=seats(*place), nbytes=held)
        journal.part = plan.output.path
        if later:  # its name may be that of an earlier run's file
            loop.on_workers(begin_again, plan.output.path)
        batches = done.begin(elements, regions)
        with loop.timed():
            try:
                with journal.kept():  # commits before anything else that a signal must not wait for
                    checked, counts = run_regions(loop, plan, regions, journal, done, batches, *ahead)
            finally:
                for checks in ahead:
                    checks.stop()
                # The next job in these processes has a limit of its own, or none.
                loop.on_workers(finish, plan.output.path, limit is not None)
    notes = workflow.notes(specs, options) if workflow.notes else {}
    result = ArrayResult(
        path, asked.stored, notes | {name: f"{count:,} of {spec.size:,}" for name, count in counts.items()}
    )
    return loop.outcome((workflow, options), inputs, result, spec.size, checked.elements, len(regions),
                        escape=checked.escape, undetected=checked.undetected, rounding=asked.rounding)  # fmt: skip


def _prepared_checks(plan: ArrayPlan, device: str, stall: float) -> PreparedChecks:
    """Checks that are prepared by a thread or, beside a GPU and if there is much to check, by another process.

    That gets the workflow by its name, so it makes only the jobs' own checks: workflows have functions that only Dask
    could pickle, which need not be imported yet.
    """
    workflow = plan.workflow
    own = workflow.prepare is getattr(WORKFLOWS.get(workflow.name), "prepare", None)
    if device == "gpu" and own and workflow.operations and workflow.operations(plan.native(), plan.options) >= APART:
        from pipeline.engine.array_check_process import ChecksApart

        return ChecksApart(plan, stall)
    return ChecksAhead(plan)


def _threads_of_one(workers: Workers, settings: Settings) -> int:
    """Threads of a process, if they share memory that is limited."""
    if settings.memory_limit is None:
        return workers.threads
    processes = max(1, len(known_workers(workers.client, workers.description)))  # all may be restarting
    return -(-workers.threads // processes)
