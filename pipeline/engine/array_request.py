"""What a request for an array reads and writes, and how the work is cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

from pipeline.cluster.gpu_count import Load
from pipeline.engine.array_plan import DECODED_BYTES, ArrayPlan, nbytes_of, needs
from pipeline.engine.task_memory import streamed, within_limits
from pipeline.errors import UsageError
from pipeline.settings import Settings
from pipeline.storage.array_file import ArrayFile, as_stored, join
from pipeline.storage.check_place import check_place
from pipeline.storage.output_array import OutputFile
from pipeline.storage.output_format import split_output
from pipeline.storage.sources import Source
from pipeline.threads import THREADS, cores
from workflows.array_job import ArrayJob
from workflows.regions import Bounds, Spec

# Bytes per region, inputs and output together, by device and by whether the workflow streams. On a CPU large enough for
# the rows of a tile to be runs of several pages, yet small enough to reuse the memory of the last region; larger if
# every region reads parts of the inputs again. On a GPU large enough for one launch to fill it.
REGION_BYTES = {("cpu", False): 2**25, ("cpu", True): 2**28, ("gpu", False): 2**28, ("gpu", True): 2**28}


class Accepted(NamedTuple):
    """What a request reads and writes.

    Attributes
    ----------
    inputs, moved
        The inputs as they are described, and as they are read.
    specs
        Of the inputs, in native byte order.
    spec, stored
        Of the output, as it is computed and as it is stored.
    rounding
        How far elements may be off, in words; empty if they are exact.
    """

    inputs: tuple[ArrayFile, ...]
    moved: tuple[ArrayFile, ...]
    specs: list[Spec]
    spec: Spec
    stored: Spec
    rounding: str

    @property
    def nbytes(self) -> int:
        """Bytes of inputs and output."""
        return int(sum(array.spec.nbytes for array in self.inputs) + self.spec.nbytes)


def accepted(
    workflow: ArrayJob[Any], options: Any, sources: Sequence[Source], path: str, settings: Settings
) -> Accepted:
    """What is read and written for a request; UsageError if it is impossible."""
    expected = workflow.operands(options) or 1
    if len(sources) != expected:
        raise UsageError(f"{workflow.name}: expected {expected} array{'s'[: expected > 1]}, got {len(sources)}")
    for source in sources:
        check_place(split_output(path)[0], source)
    inputs = tuple(join(source) for source in sources)
    specs = [Spec(array.spec.shape, array.spec.dtype.newbyteorder("=")) for array in inputs]
    try:
        spec = workflow.outline(specs, options)
    except ValueError as error:
        raise UsageError(f"{workflow.name}: {error}") from None
    rounding = workflow.rounding(specs, options)
    if rounding and settings.replay:
        raise UsageError(f"{workflow.name}: expected no --replay of what is {rounding}; leave it out, or ask for exact "
                         "arithmetic")  # fmt: skip
    stored, moved = spec, inputs
    if workflow.verbatim:
        stored, moved = Spec(spec.shape, inputs[0].spec.dtype), tuple(map(as_stored, inputs))
    return Accepted(inputs, moved, specs, spec, stored, rounding)


def plan_array(
    workflow: ArrayJob[Any], options: Any, asked: Accepted, path: str, settings: Settings, seed: int
) -> ArrayPlan:
    """The argument of all tasks, but for the output, which is not there yet."""
    output = OutputFile(path, 0, asked.spec, mappable=False)
    return ArrayPlan(workflow, options, asked.moved, output, settings.verify, seed, settings.traced,
                     settings.device_memory_limit, uuid4().hex, nbytes=settings.chunk_bytes or math.inf)  # fmt: skip


def load_of(plan: ArrayPlan, nbytes: int, settings: Settings) -> Load:
    """What there is to do, if one GPU does it; tasks are counted where they may be small."""
    workflow, tasks = plan.workflow, 0
    if nbytes and (settings.chunk_bytes or settings.memory_limit or settings.device_memory_limit):
        most = within_limits(min(cores(), THREADS["gpu"]), "gpu", settings)
        with suppress(UsageError):  # processes with fewer threads may be within the limit
            tasks = len(cut_regions(plan, region_bytes(workflow, "gpu", most, settings), most)[1])
    if workflow.operations is None:
        return Load("write", nbytes, tasks=tasks)
    return Load("multiply", nbytes, workflow.operations(plan.native(), plan.options), tasks)


def region_bytes(workflow: ArrayJob[Any], device: str, most: float, settings: Settings) -> int:
    """About how many bytes a region takes where so many are within the limits."""
    nbytes = settings.chunk_bytes or REGION_BYTES[device, workflow.streams]
    return int(min(nbytes, streamed(most, device))) if workflow.streams else nbytes


def cut_regions(plan: ArrayPlan, nbytes: int, most: float, elements: int | None = None) -> tuple[int, list[Bounds]]:
    """Regions of the output of about so many bytes each, including their parts of the inputs; or of so many elements.

    Returns
    -------
    Elements that were asked for; regions.
    """
    spec, specs, workflow = plan.output.spec, plan.native(), plan.workflow
    if not spec.size:
        return 0, []
    least = taken_by(plan, next(iter(workflow.regions(specs, spec, plan.options, 1))))
    if least > most:  # known before millions of regions are listed
        raise _too_large(plan, least, most)
    if plan.nbytes == math.inf:  # no size was asked for
        nbytes = max(nbytes, min(DECODED_BYTES, _bytes_of_chunks(plan)))
    nbytes, again = int(min(nbytes, most)), elements
    elements = again or max(1, nbytes // (spec.dtype.itemsize + sum(array.dtype.itemsize for array in specs)))
    while True:
        regions = _regions(plan, elements)
        taken = max(taken_by(plan, region) for region in {regions[0], regions[len(regions) // 2], regions[-1]})
        if taken <= most and (again or taken <= 2 * nbytes or elements == 1):
            return elements, regions
        if elements == 1 or again:
            raise _too_large(plan, taken, most, " or leave --resume out" if again else "")
        elements = max(1, elements // 2)


def _bytes_of_chunks(plan: ArrayPlan) -> int:
    if not plan.decodes:
        return 0
    from pipeline.engine.array_boxes import bytes_of_chunks

    return bytes_of_chunks(plan)


def _regions(plan: ArrayPlan, elements: int) -> list[Bounds]:
    """Regions of about so many elements."""
    if plan.decodes:
        from pipeline.engine.array_boxes import regions_of  # imports decoders, which others do without

        return regions_of(plan, elements)
    return list(plan.workflow.regions(plan.native(), plan.output.spec, plan.options, elements))


def _too_large(plan: ArrayPlan, taken: int, most: float, other: str = "") -> UsageError:
    return UsageError(f"{plan.workflow.name}: expected tasks that take at most {int(most)} bytes each, as the limit of "
                      f"memory says, got one that takes {taken}; raise the limit{other}")  # fmt: skip


def taken_by(plan: ArrayPlan, region: Bounds) -> int:
    read = sum(nbytes_of(array.spec, bounds) for array, bounds in needs(plan, region))
    return nbytes_of(plan.output.spec, region) + read
