"""The argument that all tasks of a job that writes an array share, and the parts of the inputs that a region needs."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Any, BinaryIO, cast

import numpy as np

from pipeline.engine.pickle_once import PickledOnce
from pipeline.engine.task_memory import NO_LIMIT, Seats, seat
from pipeline.errors import PipelineError
from pipeline.storage.array_file import ArrayFile, FilledArray
from pipeline.storage.output_array import OutputFile
from pipeline.timeline import Timeline, stage_range
from workflows import WORKFLOWS
from workflows.array_job import ArrayJob, Counted
from workflows.regions import Bounds, Spec, sizes

# One element in this many of each region is always checked if a check costs as much as computing; in an automatic run
# all of a region of at most so many bytes.
SAMPLED_SHARE = {"auto": 100, "sample": 256}
LEAST_BYTES = {"auto": 2**18, "sample": 0}
# Most bytes of a region, or of a piece of it to check, that is as large as a chunk which has to be decoded for it: the
# task holds the chunk whole in any case, and smaller regions would decode it again and again.
DECODED_BYTES = 2**28


@dataclass(frozen=True)
class ArrayPlan(PickledOnce):
    """A workflow with its options, its input files and its output file."""

    workflow: ArrayJob[Any]
    options: Any
    inputs: tuple[ArrayFile, ...]
    output: OutputFile
    verify: str
    seed: int
    traced: bool = False
    device_memory_limit: int | None = None
    run: str = ""  # of which run it is
    seats: Seats = NO_LIMIT
    nbytes: float = math.inf  # that inputs and output of a task may take: asked for, or left by limits of memory

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Specs of the inputs."""
        return tuple(array.spec for array in self.inputs)

    @property
    def decodes(self) -> bool:
        """Whether chunks of inputs may be decoded whole, along which regions are then cut."""
        return self.workflow.boxes and any(isinstance(array, FilledArray) for array in self.inputs)

    def native(self) -> tuple[Spec, ...]:
        """Specs of the inputs as compute gets them: in native byte order."""
        return tuple(Spec(spec.shape, spec.dtype.newbyteorder("=")) for spec in self.specs)


def host_seat(plan: ArrayPlan) -> AbstractContextManager[None]:
    """The right of a task to hold host memory, if that is limited."""
    return seat(plan.run, "host", plan.seats.host)


def dump(plan: ArrayPlan, regions: Any) -> bytes:
    """A plan and some of its regions for a helper process, which finds the workflow by its name."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return pickle.dumps((values.pop("workflow").name, values, regions))


def load(file: BinaryIO) -> tuple[ArrayPlan, Any]:
    """What `dump` has written."""
    name, values, regions = pickle.load(file)
    return ArrayPlan(cast("ArrayJob[Any]", WORKFLOWS[name]), **values), regions


def needs(plan: ArrayPlan, region: Bounds) -> tuple[tuple[ArrayFile, Bounds], ...]:
    """The inputs that a region needs, with the part of each; PipelineError if the workflow asks for parts outside."""
    parts = plan.workflow.needs(region, plan.native(), plan.options)
    needed = tuple(zip(plan.inputs * (len(parts) // len(plan.inputs)), parts, strict=True))
    for array, bounds in needed:
        within = zip(bounds, array.spec.shape, strict=True)
        if not all(0 <= start <= stop <= length for (start, stop), length in within):
            raise PipelineError(
                f"{plan.workflow.name}: expected regions inside of {array.spec}, got {bounds}; report this"
            )
    return needed


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads blocks of inputs for a check, or for a workflow that streams, which may put the elements into `out`."""

    plan: ArrayPlan
    read: Callable[[ArrayFile, Bounds], Any]
    out: Any = None

    @property
    def nbytes(self) -> float:
        """What blocks and the output may take at a time."""
        return self.plan.nbytes

    def __call__(self, number: int, bounds: Bounds) -> Any:
        return self.read(self.plan.inputs[number], bounds)


def compute_region(
    plan: ArrayPlan, region: Bounds, read: Callable[[ArrayFile, Bounds], Any], timeline: Timeline, out: Any = None
) -> Counted:
    """Compute the elements of a region from blocks that `read` loads to the CPU or the device.

    They may be put into `out`, which is then the elements that are returned.
    """
    began, before = perf_counter(), _reading(timeline)

    streams = plan.workflow.streams
    blocks = Reader(plan, read, out) if streams else [read(array, bounds) for array, bounds in needs(plan, region)]
    with stage_range("kernel"):
        elements = plan.workflow.compute(blocks, region, plan.native(), plan.options)
    waited = _reading(timeline) - before
    timeline.add("kernel", began + waited, perf_counter() - began - waited, nbytes_of(plan.output.spec, region))
    return elements if isinstance(elements, Counted) else Counted(elements, {})


def _reading(timeline: Timeline) -> float:
    return sum(timeline.seconds.get(stage, 0.0) for stage in ("read", "to device", "read+copy"))


def nbytes_of(spec: Spec, bounds: Bounds) -> int:
    """Bytes of a region."""
    return math.prod(sizes(bounds)) * spec.dtype.itemsize


def checked_part(plan: ArrayPlan, region: Bounds) -> Bounds:
    """The part of a region that is checked in any case: all of it, or a random part."""
    nbytes = nbytes_of(plan.output.spec, region)
    if plan.verify == "full" or plan.workflow.whole or nbytes <= LEAST_BYTES[plan.verify]:
        return region
    return part_of(region, random_of(plan, region), SAMPLED_SHARE[plan.verify])


def part_of(region: Bounds, random: np.random.Generator, share: int) -> Bounds:
    """A random part of a region with at least one in `share` of its elements, cut along as few axes as possible."""
    part = []
    for start, stop in region:
        length = max(1, -(-(stop - start) // share)) if stop > start else 0
        share = max(1, share * length // max(1, stop - start))
        first = start + int(random.integers(stop - start - length + 1))
        part.append((first, first + length))
    return tuple(part)


def random_of(plan: ArrayPlan, region: Bounds) -> np.random.Generator:
    """The random generator of a region's check, always the same."""
    return np.random.default_rng([plan.seed, *(start for start, _ in region)])


def pieces_of(plan: ArrayPlan, region: Bounds, nbytes: int) -> Iterator[Bounds]:
    """Pieces of a region to check one at a time, of about so many bytes each, including their inputs."""
    if plan.workflow.pieces is None:
        yield region
        return
    elements = max(1, nbytes // (plan.output.spec.dtype.itemsize + sum(spec.dtype.itemsize for spec in plan.specs)))
    for piece in plan.workflow.pieces(Spec(sizes(region), plan.output.spec.dtype), plan.options, elements):
        yield tuple((start + first, start + stop) for (start, _), (first, stop) in zip(region, piece, strict=True))
