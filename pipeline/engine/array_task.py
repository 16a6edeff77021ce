"""What runs on a worker for a job that writes an array: regions computed and written, regions checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster.worker import device_name, exit_on_lost_context, worker_address
from pipeline.engine.array_plan import ArrayPlan, computed, nbytes_of, part_of, pieces_of
from pipeline.storage.array_file import ArrayFile, read_region
from pipeline.storage.planned_file import Opened, kept_open
from pipeline.storage.scratch import Allocate, scratch
from pipeline.timeline import Timeline
from workflows.array_job import Checked
from workflows.regions import Bounds

# What a check holds at a time, of inputs and output together, where it can be done in pieces: large enough for the rows
# of a tile to be read in runs of several pages. With a quarter of it the check of a transpose takes a third longer.
CHECKED_BYTES = 2**26


@dataclass(frozen=True)
class RegionsResult:
    """Who computed some regions, on what, how many elements in which way, and what each stage took."""

    worker: str
    device: str
    counts: Mapping[str, int]
    timeline: Timeline


@dataclass(frozen=True)
class RegionsCheck:
    """What the check of some regions says, and what it took."""

    checked: Checked
    timeline: Timeline


def compute_regions(job: ArrayPlan, regions: Sequence[Bounds], device: str) -> RegionsResult:
    """Of each region: read what it needs, compute it, and write it to its place in the output."""
    timeline = Timeline(job.traced)
    counts: Counter[str] = Counter()
    try:
        for region in regions:
            if device == "gpu":
                from pipeline.engine.array_gpu import compute_on_device

                counts.update(compute_on_device(job, region, timeline))
            else:
                counts.update(_compute_on_cpu(job, region, timeline))
    except Exception as error:
        exit_on_lost_context(error)
        raise
    return RegionsResult(worker_address(), device_name(device), counts, timeline)


def _compute_on_cpu(job: ArrayPlan, region: Bounds, timeline: Timeline) -> Mapping[str, int]:
    with _memory(job) as allocate:

        def read(array: ArrayFile, bounds: Bounds) -> NDArray[Any]:
            with timeline.measure("read", nbytes_of(array.spec, bounds)):
                return read_region(array, bounds, allocate)

        found = computed(job, region, read, timeline)
        with timeline.measure("write", found.elements.nbytes):
            job.output.write(region, found.elements)
    return found.counts


def _memory(job: ArrayPlan) -> AbstractContextManager[Allocate]:
    """To read to: of the thread, but where part after part is read, each of which is gone when the next one comes."""
    return nullcontext(np.empty) if job.workflow.streams else scratch()


def check_regions(job: ArrayPlan, regions: Sequence[Bounds], result: RegionsResult) -> RegionsCheck:
    """Compare what now lies in the output with its inputs, both read anew, until something is wrong."""
    timeline = Timeline(job.traced)
    checked = _together(_check(job, region, timeline, result) for region in regions)
    return RegionsCheck(checked, timeline)


def _together(checks: Iterable[Checked]) -> Checked:
    """What checks find, up to one that finds something wrong."""
    elements, escape = 0, 0.0
    for checked in checks:
        elements += checked.elements
        escape = max(escape, checked.escape)
        if checked.details:
            return Checked(checked.details, elements, escape)
    return Checked((), elements, escape)


def _check(job: ArrayPlan, region: Bounds, timeline: Timeline, result: RegionsResult) -> Checked:
    """Check a region or a part of it, piece by piece."""
    random = np.random.default_rng([job.seed, *(start for start, _ in region)])
    part = region if job.verify == "full" or job.workflow.whole else part_of(region, random)
    with timeline.measure("verify", nbytes_of(job.output.spec, part)), kept_open() as opened:
        checked = _together(_check_piece(job, piece, random, opened) for piece in pieces_of(job, part, CHECKED_BYTES))
    if checked.details:
        where = f"region {list(region)} on worker {result.worker} ({result.device})"
        return Checked((f"{where}: {'; '.join(checked.details)}",), checked.elements)
    return checked


def _check_piece(job: ArrayPlan, piece: Bounds, random: np.random.Generator, opened: Opened) -> Checked:
    with _memory(job) as allocate:

        def read(number: int, bounds: Bounds) -> NDArray[Any]:
            return read_region(job.inputs[number], bounds, allocate, opened)

        found = job.output.read(piece, allocate, opened)
        return job.workflow.check(read, found, piece, job.native(), job.options, random)
