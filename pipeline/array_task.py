"""What runs on a worker for a job that writes an array: one region computed and written, one region checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.array_job import ArrayJob, computed, nbytes_of, part_of
from pipeline.arrays import ArrayFile, read_region
from pipeline.task import device_name, leave_if_broken, worker_address
from pipeline.timeline import Timeline
from workflows.array_workflow import Bounds, Checked


@dataclass(frozen=True)
class RegionResult:
    """Who computed a region, on what, and what each stage took."""

    worker: str
    device: str
    timeline: Timeline


@dataclass(frozen=True)
class RegionCheck:
    """What the check of a region says, and what it took."""

    checked: Checked
    timeline: Timeline


def compute_region(job: ArrayJob, region: Bounds, device: str) -> RegionResult:
    """Read what a region needs, compute it, and write it to its place in the output."""
    timeline = Timeline(job.traced)
    try:
        if device == "gpu":
            from pipeline.array_device import compute_on_device

            compute_on_device(job, region, timeline)
        else:
            _compute_on_cpu(job, region, timeline)
    except Exception as error:
        leave_if_broken(error)
        raise
    return RegionResult(worker_address(), device_name(device), timeline)


def _compute_on_cpu(job: ArrayJob, region: Bounds, timeline: Timeline) -> None:
    def read(array: ArrayFile, bounds: Bounds) -> NDArray[Any]:
        with timeline.measure("read", nbytes_of(array.spec, bounds)):
            return read_region(array, bounds)

    block = computed(job, region, read, timeline)
    with timeline.measure("write", block.nbytes):
        job.output.write(region, block)


def check_region(job: ArrayJob, region: Bounds, result: RegionResult) -> RegionCheck:
    """Compare what now lies in the output with its inputs, both read anew."""
    timeline = Timeline(job.traced)
    if job.verify == "off":
        return RegionCheck(Checked((), 0), timeline)
    random = np.random.default_rng([job.seed, *(start for start, _ in region)])
    if job.verify == "sample" and not job.workflow.whole:
        region = part_of(region, random)
    output = job.output.readable()

    def read(number: int, bounds: Bounds) -> NDArray[Any]:
        return read_region(job.inputs[number], bounds)

    with timeline.measure("verify", nbytes_of(output.spec, region)):
        found = read_region(output, region)
        checked = job.workflow.check(read, found, region, job.native(), job.options, random)
    if checked.details:
        where = f"region {list(region)} on worker {result.worker} ({result.device})"
        return RegionCheck(Checked((f"{where}: {'; '.join(checked.details)}",), checked.elements), timeline)
    return RegionCheck(checked, timeline)
