"""What the tasks of a job that writes an array have in common: the job, and what its regions need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.engine.pickle_once import PickledOnce
from pipeline.errors import PipelineError
from pipeline.storage.array_file import ArrayFile
from pipeline.storage.output_array import OutputFile
from pipeline.timeline import Timeline
from workflows.array_job import ArrayJob, Counted
from workflows.regions import Bounds, Spec, sizes

# `--verify sample` checks a part of each region, this share of it, where a check costs as much as computing.
SAMPLED_SHARE = 256


@dataclass(frozen=True)
class ArrayPlan(PickledOnce):
    """A workflow with its options, where its inputs are, and the file that its output goes to."""

    workflow: ArrayJob[Any]
    options: Any
    inputs: tuple[ArrayFile, ...]
    output: OutputFile
    verify: str
    seed: int
    traced: bool = False
    device_memory_limit: int | None = None

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Specs of the inputs."""
        return tuple(array.spec for array in self.inputs)

    def native(self) -> tuple[Spec, ...]:
        """Specs of the inputs as compute sees them: in native byte order."""
        return tuple(Spec(spec.shape, spec.dtype.newbyteorder("=")) for spec in self.specs)


def needs(job: ArrayPlan, region: Bounds) -> tuple[tuple[ArrayFile, Bounds], ...]:
    """What a region needs, of which input; a workflow that asks for what is not there is a bug to be told of."""
    found = job.workflow.needs(region, job.native(), job.options)
    read = tuple(zip(job.inputs * (len(found) // len(job.inputs)), found, strict=True))
    for array, bounds in read:
        within = zip(bounds, array.spec.shape, strict=True)
        if not all(0 <= start <= stop <= length for (start, stop), length in within):
            raise PipelineError(
                f"{job.workflow.name}: expected regions inside of {array.spec}, got {bounds}; report this"
            )
    return read


def computed(job: ArrayPlan, region: Bounds, read: Callable[[ArrayFile, Bounds], Any], timeline: Timeline) -> Counted:
    """The elements of a region, from what `read` brings to where they are computed."""
    began, before = perf_counter(), _reading(timeline)

    def read_input(number: int, bounds: Bounds) -> Any:
        return read(job.inputs[number], bounds)

    streams = job.workflow.streams
    blocks = read_input if streams else [read(array, bounds) for array, bounds in needs(job, region)]
    found = job.workflow.compute(blocks, region, job.native(), job.options)
    waited = _reading(timeline) - before
    timeline.add("kernel", began + waited, perf_counter() - began - waited, nbytes_of(job.output.spec, region))
    return found if isinstance(found, Counted) else Counted(found, {})


def _reading(timeline: Timeline) -> float:
    return sum(timeline.seconds.get(stage, 0.0) for stage in ("read", "to device", "read+copy"))


def nbytes_of(spec: Spec, bounds: Bounds) -> int:
    """Bytes of a region."""
    return math.prod(sizes(bounds)) * spec.dtype.itemsize


def part_of(region: Bounds, random: np.random.Generator) -> Bounds:
    """A random part of a region, of about the sampled share of its elements, cut along as few axes as possible."""
    left = SAMPLED_SHARE
    part = []
    for start, stop in region:
        length = max(1, -(-(stop - start) // left)) if stop > start else 0
        left = max(1, left * length // max(1, stop - start))
        first = start + int(random.integers(stop - start - length + 1))
        part.append((first, first + length))
    return tuple(part)


def pieces_of(job: ArrayPlan, region: Bounds, nbytes: int) -> Iterator[Bounds]:
    """Pieces of a region that are checked by themselves, each of which takes about so many bytes with its inputs."""
    if job.workflow.pieces is None:
        yield region
        return
    elements = max(1, nbytes // (job.output.spec.dtype.itemsize + sum(spec.dtype.itemsize for spec in job.specs)))
    for piece in job.workflow.pieces(Spec(sizes(region), job.output.spec.dtype), job.options, elements):
        yield tuple((start + first, start + stop) for (start, _), (first, stop) in zip(region, piece, strict=True))
