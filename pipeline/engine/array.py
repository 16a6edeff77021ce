"""Runs jobs that write an array: regions are computed, written and checked before the file gets its name."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster.workers import Workers, known_workers
from pipeline.engine.array_gpu import LANES, finish, warm_up
from pipeline.engine.array_plan import ArrayPlan, checked_part, nbytes_of, needs, pieces_of
from pipeline.engine.array_task import RegionsCheck, RegionsResult, check_regions, compute_regions
from pipeline.engine.inputs import cluster_bytes, unchanged
from pipeline.engine.outcome import Outcome
from pipeline.engine.run_loop import Done, Extra, Run, Task, Work
from pipeline.engine.submit import batches
from pipeline.errors import UsageError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.array_file import as_stored, join
from pipeline.storage.atomic_file import check_place
from pipeline.storage.output_array import OutputFile, output_file
from pipeline.storage.sources import Source
from pipeline.timeline import Timeline
from workflows.array_job import ArrayJob, Checked
from workflows.regions import Bounds, Spec, common, sizes

# Bytes per region, inputs and output together, by device and by whether the workflow streams. On a CPU large enough for
# the rows of a tile to be runs of several pages, yet small enough to reuse the memory of the last region; larger if
# every region reads parts of the inputs again. On a GPU large enough for one launch to fill it.
REGION_BYTES = {("cpu", False): 2**25, ("cpu", True): 2**26, ("gpu", False): 2**28, ("gpu", True): 2**28}

# A task takes several regions, up to this many bytes of the output: Dask holds the GIL for milliseconds per task.
TASK_BYTES = 2**29
# Fewest tasks per thread, so that all end at about the same time; few for a GPU, because it idles between them.
TASKS = {"cpu": 8, "gpu": 3}

# Bytes of a piece, inputs and output together, that is checked if there is time: a tenth of a second. Larger if there
# would be more than so many.
EXTRA_BYTES, EXTRAS = 2**24, 2**16

# Most memory that a task takes, copies included, as a multiple of its inputs and output.
COPIES = 4


@dataclass(frozen=True)
class ArrayResult:
    """The array that a job wrote.

    Attributes
    ----------
    path
        Its file.
    spec
        Shape and dtype, with byte order.
    notes
        How it was computed, by name.
    """

    path: str
    spec: Spec
    notes: dict[str, str]

    @property
    def array(self) -> NDArray[Any]:
        """The array, mapped from its file: nothing is read until it is accessed."""
        if self.path.endswith(".npy"):
            return np.asarray(np.load(self.path, mmap_mode="r" if self.spec.size else None, allow_pickle=False))
        if not self.spec.size:
            return np.empty(self.spec.shape, self.spec.dtype)
        return np.memmap(self.path, self.spec.dtype, "r", shape=self.spec.shape)

    @property
    def _big(self) -> bool:
        return self.spec.dtype.byteorder == ">"

    def to_json(self) -> dict[str, Any]:
        """Path, dtype, byte order, shape, bytes, and how it was computed."""
        spec, order = self.spec, "big" if self._big else "little"
        plain = {"path": self.path, "dtype": spec.dtype.name, "byteorder": order, "shape": list(spec.shape)}
        return plain | {"bytes": spec.nbytes, "notes": self.notes}

    def lines(self) -> list[tuple[str, str]]:
        """The file, its size, and how it was computed."""
        what = f"{self.spec}, big endian" if self._big else f"{self.spec}"
        return [("output", f"{self.path} ({what})"), ("bytes", f"{self.spec.nbytes:,}"), *self.notes.items()]


def run_array(
    workflow: ArrayJob[Any],
    options: Any,
    sources: Sequence[Source],
    path: str,
    settings: Settings = Settings(),
) -> Outcome:
    """Run one job over its inputs, write its output, and verify it.

    Parameters
    ----------
    workflow, options
        The job.
    sources
        One per input array.
    path
        The output: `.npy`, or raw under any other suffix. It appears whole, once everything is verified.

    Raises
    ------
    VerificationError
        If a check finds a wrong element; nothing is left under the name of the output.
    PipelineError
        If the run fails otherwise; UsageError if the request is impossible.
    """
    expected = workflow.operands(options) or 1
    if len(sources) != expected:
        raise UsageError(f"{workflow.name}: expected {expected} array{'s'[: expected > 1]}, got {len(sources)}")
    for source in sources:
        check_place(path, source)
    inputs = tuple(join(source) for source in sources)
    specs = [Spec(array.spec.shape, array.spec.dtype.newbyteorder("=")) for array in inputs]
    try:
        spec = workflow.outline(specs, options)
    except ValueError as error:
        raise UsageError(f"{workflow.name}: {error}") from None
    stored, moved = spec, inputs
    if workflow.verbatim:
        stored, moved = Spec(spec.shape, inputs[0].spec.dtype), tuple(map(as_stored, inputs))
    nbytes = sum(array.spec.nbytes for array in inputs) + spec.nbytes
    loop = Run(settings, LANES)
    loop.stages.nbytes = nbytes
    limit = settings.device_memory_limit
    with (
        output_file(path, stored) as ready,
        unchanged(sources),
        loop.open(cluster_bytes(sources, settings.placement) and nbytes) as workers,
    ):
        planned = OutputFile(path, 0, spec, mappable=False)
        plan = ArrayPlan(workflow, options, moved, planned, loop.mode, loop.seed, settings.traced, limit)
        region_bytes = settings.chunk_bytes or REGION_BYTES[workers.device, workflow.streams]
        regions = _regions(plan, region_bytes, _most_bytes(workers, settings))
        if regions:
            loop.on_gpus(warm_up, plan, regions[0])
        plan = replace(plan, output=ready())
        with loop.timed():
            try:
                checked, counts = _all_regions(loop, plan, regions)
            finally:  # the next job in these processes has a limit of its own, or none
                loop.on_workers(finish, plan.output.path, limit is not None)
    notes = workflow.notes(specs, options) if workflow.notes else {}
    result = ArrayResult(path, stored, notes | {name: f"{count:,} of {spec.size:,}" for name, count in counts.items()})
    return loop.outcome((workflow, options), inputs, result, spec.size, checked.elements, len(regions),
                        escape=checked.escape, undetected=checked.undetected)  # fmt: skip


def _most_bytes(workers: Workers, settings: Settings) -> float:
    """Bytes that a region's inputs and output may take within the memory limits."""
    shares = [math.inf]
    if settings.memory_limit is not None:
        processes = max(1, len(known_workers(workers.client, workers.description)))  # all may be restarting
        shares.append(settings.memory_limit / (-(-workers.threads // processes) * COPIES))
    if settings.device_memory_limit is not None and workers.device == "gpu":
        shares.append(settings.device_memory_limit / (LANES * COPIES))
    return min(shares)


def _regions(plan: ArrayPlan, nbytes: int, most: float) -> list[Bounds]:
    """Regions of the output of about so many bytes each, including their parts of the inputs."""
    spec, specs, workflow = plan.output.spec, plan.native(), plan.workflow
    if not spec.size:
        return []
    least = _taken(plan, next(iter(workflow.regions(specs, spec, plan.options, 1))))
    if least > most:  # known before millions of regions are listed
        raise _too_large(plan, least, most)
    nbytes = int(min(nbytes, most))
    elements = max(1, nbytes // (spec.dtype.itemsize + sum(array.dtype.itemsize for array in specs)))
    while True:
        regions = list(workflow.regions(specs, spec, plan.options, elements))
        taken = max(_taken(plan, region) for region in {regions[0], regions[len(regions) // 2], regions[-1]})
        if taken <= min(2 * nbytes, most) or (elements == 1 and most == math.inf):
            return regions
        if elements == 1:
            raise _too_large(plan, taken, most)
        elements = max(1, elements // 2)


def _too_large(plan: ArrayPlan, taken: int, most: float) -> UsageError:
    return UsageError(f"{plan.workflow.name}: expected tasks that take at most {int(most)} bytes each, as the limit of "
                      f"memory says, got one that takes {taken}; raise the limit")  # fmt: skip


def _taken(plan: ArrayPlan, region: Bounds) -> int:
    read = sum(nbytes_of(array.spec, bounds) for array, bounds in needs(plan, region))
    return nbytes_of(plan.output.spec, region) + read


def _all_regions(loop: Run, plan: ArrayPlan, regions: list[Bounds]) -> tuple[Checked, Mapping[str, int]]:
    """Compute and check every region.

    Returns
    -------
    What was checked; elements computed, by path.
    """
    name, spec, device = plan.workflow.name, plan.output.spec, loop.workers.device
    checked, counts, numbers = Checked((), 0), Counter[str](), count()
    waiting: list[tuple[Bounds, Bounds, RegionsResult]] = []  # piece; part of its region that was checked; by whom
    piece_bytes = max(EXTRA_BYTES, spec.nbytes // EXTRAS)
    random = Random(plan.seed)
    # A full check takes longer than a GPU computes: splitting it keeps all threads busy to the end.
    split = device == "gpu" and (plan.verify == "full" or plan.workflow.whole)

    def compute(items: Sequence[Bounds]) -> Task:
        return compute_regions, plan, items, device

    def check(items: Sequence[Bounds], computed: Any) -> list[Task]:
        parts = [] if plan.verify == "off" else [[region] for region in items] if split else [items]
        return [(check_regions, plan, part, computed) for part in parts]

    def note(found: Checked) -> None:
        nonlocal checked
        if found.details:
            raise VerificationError(f"{name}: a number is wrong in {found.details[0]}; nothing was kept")
        checked += found

    def finish(items: Sequence[Bounds], computed: RegionsResult, checks: Sequence[RegionsCheck]) -> Iterator[Done]:
        for check in checks:
            note(check.checked)
        if plan.verify == "auto":
            where = replace(computed, timeline=Timeline())
            for region in items:
                if (part := checked_part(plan, region)) != region:
                    waiting.extend((piece, part, where) for piece in pieces_of(plan, region, piece_bytes))
        counts.update(computed.counts)
        yield next(numbers), nbytes(items), computed, checks

    def extra(in_time: bool) -> Extra | None:
        """Check a random piece of the regions of which a part has been checked."""
        if not (waiting and in_time):
            return None
        place = random.randrange(len(waiting))
        waiting[place], waiting[-1] = waiting[-1], waiting[place]
        piece, part, computed = waiting.pop()

        def finish(check: RegionsCheck) -> Iterator[tuple[int, str, str, Timeline]]:
            nonlocal checked
            checked = replace(checked, elements=checked.elements - common(piece, part))
            note(check.checked)
            yield next(numbers), computed.worker, computed.device, check.timeline

        return Extra((check_regions, plan, [piece], computed, True), label([piece]), finish)

    def nbytes(items: Sequence[Bounds]) -> int:
        return sum(nbytes_of(spec, region) for region in items)

    def label(items: Sequence[Bounds]) -> str:
        return f"{name}: region {list(items[0])}" + (f" to {list(items[-1])}" if len(items) > 1 else "")

    most = TASK_BYTES // max(1, nbytes(regions[:1]))
    tasks = batches(regions, most, loop.computing, TASKS[device])
    loop.complete(Work(tasks, nbytes(regions), label, compute, check, finish, extra=extra))
    if (covered := sum(math.prod(sizes(region)) for region in regions)) != spec.size:
        raise VerificationError(f"{name}: the regions hold {covered} elements of {spec.size}")
    return checked, counts
