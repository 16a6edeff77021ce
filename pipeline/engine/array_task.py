"""Tasks of a job that writes an array: compute and write regions; check them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster.worker import device_name, unit_name, worker_address
from pipeline.engine.array_check_ahead import PreparedChecks, ReadRegion, read_on_all_cores, whole_region
from pipeline.engine.array_first_process import begun
from pipeline.engine.array_plan import (
    DECODED_BYTES,
    ArrayPlan,
    Reader,
    checked_part,
    compute_region,
    host_seat,
    nbytes_of,
    pieces_of,
    random_of,
)
from pipeline.engine.task_memory import seat
from pipeline.storage.array_file import ArrayFile, is_plain, read_region
from pipeline.storage.planned_file import Opened, kept_open
from pipeline.storage.scratch import Allocate, aligned_empty, scratch
from pipeline.timeline import Timeline
from workflows.array_job import Checked
from workflows.regions import Bounds

# Bytes of inputs and output that a check holds at a time if it can be done in pieces: large enough for the rows of a
# tile to be runs of several pages. With a quarter of this the check of a transpose takes a third longer.
CHECKED_BYTES = 2**26


@dataclass(frozen=True)
class RegionsResult:
    """Regions computed: the worker, its device and which one it is, elements by path, and the time of each stage."""

    worker: str
    device: str
    unit: str
    counts: Mapping[str, int]
    timeline: Timeline


@dataclass(frozen=True)
class RegionsCheck:
    """Result and time of the check of some regions."""

    checked: Checked
    timeline: Timeline


def compute_regions(plan: ArrayPlan, regions: Sequence[Bounds], device: str) -> RegionsResult:
    """Task: for each region, read what it needs, compute it, and write it to its place in the output."""
    timeline = Timeline(plan.traced)
    counts: Counter[str] = Counter()
    for region in regions:
        if device == "gpu":
            from pipeline.engine.array_gpu import compute_on_device

            with seat(plan.run, "device", plan.seats.device), host_seat(plan):
                counts.update(compute_on_device(plan, region, timeline))
        else:
            with host_seat(plan):
                counts.update(_compute_on_cpu(plan, region, timeline))
    return RegionsResult(worker_address(), device_name(device), unit_name(device), counts, timeline)


def _compute_on_cpu(plan: ArrayPlan, region: Bounds, timeline: Timeline) -> Mapping[str, int]:
    done = begun(plan, region, timeline)
    return compute_and_write(plan, region, timeline) if done is None else done


def compute_and_write(
    plan: ArrayPlan, region: Bounds, timeline: Timeline, mapped: ReadRegion | None = None
) -> Mapping[str, int]:  # fmt: skip
    """Compute the elements of a region, in their file if that is possible, on a CPU; elements by path.

    `mapped` reads in place of `read_region`, in a process that may die.
    """
    place_of = plan.output.view(region) if plan.workflow.streams else nullcontext()
    with _memory(plan) as allocate, place_of as place:

        def read(array: ArrayFile, bounds: Bounds) -> NDArray[Any]:
            with timeline.measure("read", nbytes_of(array.spec, bounds)), kept_open() as opened:
                if mapped:
                    return mapped(array, bounds, allocate, opened)
                if plan.workflow.streams and is_plain(array):
                    return read_on_all_cores(partial(read_region, array), array.spec.dtype, bounds, opened)
                return read_region(array, bounds, allocate, opened)

        block = compute_region(plan, region, read, timeline, place)
        if block.elements is not place:
            with timeline.measure("write", block.elements.nbytes):
                plan.output.write(region, block.elements)
    return block.counts


def _memory(plan: ArrayPlan) -> AbstractContextManager[Allocate]:
    """Memory to read into: reused by the thread or, for a workflow that streams, freed after each part."""
    return nullcontext(aligned_empty) if plan.workflow.streams else scratch()


def check_regions(
    plan: ArrayPlan, regions: Sequence[Bounds], result: RegionsResult, whole: bool = False,
    ahead: PreparedChecks | None = None,
) -> RegionsCheck:  # fmt: skip
    """Task: compare the output with its inputs, both read again from their files, up to the first error.

    Of each region `checked_part` is compared, or all of it. `ahead` may have prepared that.
    """
    timeline = Timeline(plan.traced)
    parts = [(region, region if whole else checked_part(plan, region)) for region in regions]
    checked = _together(_check(plan, region, part, timeline, result, ahead) for region, part in parts)
    return RegionsCheck(checked, timeline)


def _together(checks: Iterable[Checked]) -> Checked:
    """Sum of checks, up to the first with a wrong element."""
    total = Checked((), 0)
    for checked in checks:
        total += checked
        if checked.details:
            break
    return total


def _check(
    plan: ArrayPlan,
    region: Bounds,
    part: Bounds,
    timeline: Timeline,
    result: RegionsResult,
    ahead: PreparedChecks | None,
) -> Checked:
    """Check a part of a region, piece by piece."""
    random = random_of(plan, region)
    with host_seat(plan), timeline.measure("verify", nbytes_of(plan.output.spec, part)), kept_open() as opened:
        if ahead:
            checked = ahead.check(plan.output, part, opened, timeline)
        else:
            pieces = pieces_of(plan, part, DECODED_BYTES if plan.decodes else CHECKED_BYTES)
            checked = _together(_check_piece(plan, piece, random, opened) for piece in pieces)
    if checked.details:
        where = f"region {list(region)} on worker {result.worker} ({result.device})"
        return Checked((f"{where}: {'; '.join(checked.details)}",), checked.elements)
    return checked


def _check_piece(plan: ArrayPlan, piece: Bounds, random: np.random.Generator, opened: Opened) -> Checked:
    with _memory(plan) as allocate:

        def read(array: ArrayFile, bounds: Bounds) -> NDArray[Any]:
            return read_region(array, bounds, allocate, opened)

        with (
            whole_region(plan.output, piece, opened)
            if plan.workflow.pieces is None
            else nullcontext(plan.output.read(piece, allocate, opened)) as elements
        ):
            return plan.workflow.check(Reader(plan, read), elements, piece, plan.native(), plan.options, random)
