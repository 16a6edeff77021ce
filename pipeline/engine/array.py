"""The run loop of a job that writes an array: outline, regions, cluster, compute, check, and only then its name."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster.placement import Workers, open_workers
from pipeline.engine.array_gpu import LANES, finish, warm_up
from pipeline.engine.array_plan import ArrayPlan, nbytes_of, needs
from pipeline.engine.array_task import check_regions, compute_regions
from pipeline.engine.outcome import Outcome, Stages, Verdict
from pipeline.engine.submit import batches, results
from pipeline.errors import UsageError, VerificationError
from pipeline.report.result_file import check_place
from pipeline.settings import Progress, Settings
from pipeline.storage.array_file import join
from pipeline.storage.output_array import OutputFile, output_file
from pipeline.storage.sources import Source
from workflows.array_job import ArrayJob, Checked
from workflows.regions import Bounds, Spec

# What a task holds at a time, its inputs and its output together: large enough on a CPU for the rows of a tile to be
# read and written in runs of several pages, and so small that the memory of the last one is used again; where parts of
# the inputs are read for each region again, rather so large that there are few regions. On a GPU large enough for one
# launch to fill it. By device, and whether the workflow streams.
REGION_BYTES = {("cpu", False): 2**25, ("cpu", True): 2**26, ("gpu", False): 2**28, ("gpu", True): 2**28}

# A task takes several regions, up to so many bytes of the output: what Dask does for a task keeps the threads of its
# process from Python for milliseconds.
TASK_BYTES = 2**29
# Tasks that each thread gets at least, so that all end at about the same time; of those that keep a GPU busy few, for
# it waits between them.
TASKS = {"cpu": 8, "gpu": 3}

# What a task holds at most, copies that it makes included, as a multiple of its inputs and output.
COPIES = 4


@dataclass(frozen=True)
class ArrayResult:
    """The array that a job wrote.

    Attributes
    ----------
    path
        Of the file.
    spec
        Shape and dtype.
    notes
        How it was computed, by name.
    """

    path: str
    spec: Spec
    notes: dict[str, str]

    @property
    def array(self) -> NDArray[Any]:
        """It, mapped from the file: nothing is read before it is looked at."""
        if self.path.endswith(".npy"):
            return np.asarray(np.load(self.path, mmap_mode="r" if self.spec.size else None, allow_pickle=False))
        if not self.spec.size:
            return np.empty(self.spec.shape, self.spec.dtype.newbyteorder("<"))
        return np.memmap(self.path, self.spec.dtype.newbyteorder("<"), "r", shape=self.spec.shape)

    def to_json(self) -> dict[str, Any]:
        """Path, dtype, shape and bytes, and how it was computed."""
        spec = self.spec
        plain = {"path": self.path, "dtype": spec.dtype.name, "shape": list(spec.shape), "bytes": spec.nbytes}
        return plain | {"notes": self.notes}

    def lines(self) -> list[tuple[str, str]]:
        """What was written, how large it is, and how it was computed."""
        return [("output", f"{self.path} ({self.spec})"), ("bytes", f"{self.spec.nbytes:,}"), *self.notes.items()]


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
        One for each input array.
    path
        Of the output: `.npy`, or raw under any other suffix. It appears when the verdict is good, whole.

    Raises
    ------
    VerificationError
        If a check finds a wrong element; nothing is left under the name of the output.
    PipelineError
        If the run fails otherwise; UsageError if it was asked for the impossible.
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
    nbytes = sum(array.spec.nbytes for array in inputs) + spec.nbytes
    mode = settings.mode(nbytes)
    began = perf_counter()
    seed = secrets.randbits(32)
    with output_file(path, spec) as ready, open_workers(settings.placement, nbytes) as workers:
        settings.on_start(workers)
        here = workers.addresses and list(workers.addresses)
        limit = settings.device_memory_limit
        planned = OutputFile(path, 0, spec, mappable=False)
        job = ArrayPlan(workflow, options, inputs, planned, mode, seed, settings.traced, limit)
        region_bytes = settings.chunk_bytes or REGION_BYTES[workers.device, workflow.streams]
        regions = _regions(job, region_bytes, _most_bytes(workers, settings))
        if workers.device == "gpu" and regions:
            # What goes wrong here does so again when it is told of which region.
            workers.client.run(warm_up, job, regions[0], workers=here, on_error="ignore")
        job = replace(job, output=ready())
        started = perf_counter()
        stages = Stages(lanes=_lanes(workers), start_up=started - began, nbytes=nbytes)
        try:
            checked, escape, counts = _all_regions(job, regions, workers, stages, settings.progress)
        finally:
            if workers.device == "gpu":  # the next job of this process has a limit of its own, or none
                workers.client.run(finish, job.output.path, limit is not None, workers=here, on_error="ignore")
        stages.wall = perf_counter() - started
    verdict = Verdict(mode, spec.size, checked, len(regions), seed, escape)
    notes = workflow.notes(specs, options) if workflow.notes else {}
    result = ArrayResult(path, spec, notes | {name: f"{count:,} of {spec.size:,}" for name, count in counts.items()})
    return Outcome(workflow, options, inputs, result, verdict, stages, workers.description)


def _most_bytes(workers: Workers, settings: Settings) -> float:
    """Bytes that the inputs and output of a task may have."""
    shares = [math.inf]
    if settings.memory_limit is not None:
        processes = len(workers.client.scheduler_info(n_workers=-1)["workers"])
        shares.append(settings.memory_limit / (-(-workers.threads // processes) * COPIES))
    if settings.device_memory_limit is not None and workers.device == "gpu":
        shares.append(settings.device_memory_limit / (LANES * COPIES))
    return min(shares)


def _regions(job: ArrayPlan, nbytes: int, most: float) -> list[Bounds]:
    """Regions of the output, each of which takes about so many bytes with what it needs of the inputs."""
    spec, specs = job.output.spec, job.native()
    if not spec.size:
        return []
    nbytes = int(min(nbytes, most))
    elements = max(1, nbytes // (spec.dtype.itemsize + sum(array.dtype.itemsize for array in specs)))
    while True:
        regions = list(job.workflow.regions(specs, spec, job.options, elements))
        taken = max(_taken(job, region) for region in {regions[0], regions[len(regions) // 2], regions[-1]})
        if taken <= min(2 * nbytes, most) or (elements == 1 and most == math.inf):
            return regions
        if elements == 1:
            raise UsageError(f"{job.workflow.name}: expected tasks that take at most {int(most)} bytes each, as the "
                             f"limit of memory says, got one that takes {taken}; raise the limit")  # fmt: skip
        elements = max(1, elements // 2)


def _taken(job: ArrayPlan, region: Bounds) -> int:
    read = sum(nbytes_of(array.spec, bounds) for array, bounds in needs(job, region))
    return nbytes_of(job.output.spec, region) + read


def _lanes(workers: Workers) -> dict[str, int]:
    """How many threads run each stage at a time."""
    stages = ("read", "read+copy", "to device", "kernel", "write")
    return dict.fromkeys(stages, _computing(workers)) | {"verify": workers.threads}


def _computing(workers: Workers) -> int:
    """Tasks that compute at a time."""
    return workers.computing * (LANES if workers.device == "gpu" else 1)


def _all_regions(
    job: ArrayPlan, regions: list[Bounds], workers: Workers, stages: Stages, progress: Progress
) -> tuple[int, float, Mapping[str, int]]:
    """Compute and check every region.

    Returns
    -------
    Elements checked; the probability that a wrong one of them is not noticed; how many were computed in which way.
    """
    client = workers.client
    here = {"pure": False, "workers": workers.addresses and list(workers.addresses)}
    resources = {name: amount / LANES for name, amount in workers.resources.items()}

    def submit(batch: Sequence[Bounds]) -> Iterator[Any]:
        computed = client.submit(compute_regions, job, batch, workers.device, resources=resources, priority=1, **here)
        yield computed
        # A check of all that was computed takes longer than to compute it: for all threads to have some to the end.
        whole = workers.device == "gpu" and (job.verify == "full" or job.workflow.whole)
        for part in [] if job.verify == "off" else [[region] for region in batch] if whole else [batch]:
            yield client.submit(check_regions, job, part, computed, **here)

    total = sum(nbytes_of(job.output.spec, region) for region in regions)
    done = checked = 0
    escape = 0.0
    counts: Counter[str] = Counter()
    most = TASK_BYTES // max(1, nbytes_of(job.output.spec, regions[0])) if regions else 1
    tasks = batches(regions, most, _computing(workers), TASKS[workers.device])
    for index, (batch, computed, *checks) in enumerate(
        results(tasks, submit, workers, lambda batch: f"{job.workflow.name}: {_name(batch)}")
    ):
        for check in checks:
            found: Checked = check.checked
            if found.details:
                raise VerificationError(
                    f"{job.workflow.name}: a number is wrong in {found.details[0]}; nothing was kept"
                )
            checked += found.elements
            escape = max(escape, found.escape)
        timelines = [computed.timeline, *(check.timeline for check in checks)]
        stages.add(index, computed.worker, computed.device, *timelines)
        counts.update(computed.counts)
        done += sum(nbytes_of(job.output.spec, region) for region in batch)
        progress(done, total)
    if (covered := sum(math.prod(b - a for a, b in region) for region in regions)) != job.output.spec.size:
        raise VerificationError(f"{job.workflow.name}: the regions hold {covered} elements of {job.output.spec.size}")
    return checked, escape, counts


def _name(batch: Sequence[Bounds]) -> str:
    return f"region {list(batch[0])}" + (f" to {list(batch[-1])}" if len(batch) > 1 else "")
