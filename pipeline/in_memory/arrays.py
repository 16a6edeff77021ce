"""Jobs that write an array, over arrays in memory: the output is an array of the same kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.engine.array_plan import SAMPLED_SHARE, part_of
from pipeline.engine.pickle_once import PickledOnce
from pipeline.errors import UsageError, VerificationError
from pipeline.in_memory.aggregate import on_threads
from pipeline.in_memory.device import SAMPLED_SHARE as DEVICE_SHARE
from pipeline.in_memory.device import on_device_of
from pipeline.in_memory.kinds import NAME
from workflows.array_job import ArrayJob, Checked, Counted, Read
from workflows.regions import Bounds, Spec, all_of, sizes

# Bytes of a region, inputs and output together, on a CPU, by whether the job streams; as for files.
REGION_BYTES = {False: 2**25, True: 2**27}
COPIES = 4  # most device memory that a region takes, as a multiple of its inputs and output
LEAST_BYTES = 2**28  # of regions on a GPU: asking for its free memory takes longer than computing less
CHECKED_BYTES = 2**26  # inputs and output, of a piece of a full check
LEAST_CHECKED, MOST_CHECKED = 2**10, 2**18  # elements of a sample of a GPU's output
MOST_READ = 2**21  # bytes of inputs that such a sample needs: an element of a product needs a row and a column


# The output, elements by the path that computed them, what was checked, number of regions.
Computed = tuple[Any, Mapping[str, int], Checked, int]


@dataclass(frozen=True)
class Outlined(PickledOnce):
    """A job with the specs of its inputs and output, in native byte order."""

    workflow: ArrayJob[Any]
    options: Any
    specs: tuple[Spec, ...]
    spec: Spec
    verify: str
    seed: int


def outlined(workflow: ArrayJob[Any], options: Any, arrays: Sequence[Any], verify: str, seed: int) -> Outlined:
    """The job, once its inputs are known to fit each other; UsageError if they do not."""
    specs = tuple(Spec(tuple(array.shape), array.dtype.newbyteorder("=")) for array in arrays)
    try:
        return Outlined(workflow, options, specs, workflow.outline(specs, options), verify, seed)
    except ValueError as error:
        raise UsageError(f"{workflow.name}: {error}") from None


def compute(job: Outlined, arrays: Sequence[Any], part_bytes: int | None = None) -> Computed:
    """The output of NumPy or CuPy arrays.

    Raises
    ------
    VerificationError
        If a check finds a wrong element.
    """
    stored = arrays[0].dtype
    if job.workflow.verbatim and not stored.isnative:  # elements are moved as they are
        moved = compute(job, [array.view(array.dtype.newbyteorder("=")) for array in arrays], part_bytes)
        return moved[0].view(stored), *moved[1:]
    if isinstance(arrays[0], np.ndarray):
        return _on_cpu(job, arrays, part_bytes)
    return on_device_of(arrays[0], _on_gpu, job, arrays, part_bytes)


def _on_cpu(job: Outlined, arrays: Sequence[NDArray[Any]], part_bytes: int | None) -> Computed:
    """Regions on all threads, each checked as it is computed; all at once if the check reads less that way."""
    output = np.empty(job.spec.shape, job.spec.dtype)
    regions = _regions(job, part_bytes or REGION_BYTES[job.workflow.streams])
    read = _reader(arrays)
    together = job.workflow.whole and job.workflow.pieces is None
    lock, computing, checking = Lock(), 0.0, 0.0

    def one(region: Bounds) -> Counted:
        nonlocal computing, checking
        began = perf_counter()
        counted = elements(job, read, region)
        output[slices(region)] = counted.elements
        computed = perf_counter()
        checked = Checked((), 0)
        if job.verify != "off" and not together:
            in_time = job.verify == "auto" and checking <= computing
            part = region if in_time else part_to_check(job, region, on_gpu=False)
            checked = check(job, read, output[slices(part)], part, region, "cpu")
        with lock:
            computing, checking = computing + computed - began, checking + perf_counter() - computed
        return Counted(checked, counted.counts)

    counts: Counter[str] = Counter()
    total = Checked((), 0)
    for done in on_threads(one, regions, None) if regions else ():
        counts.update(done.counts)
        total += done.elements
    if together and regions and job.verify != "off":
        everything = all_of(job.spec)
        total = check(job, read, output, everything, everything, "cpu")
    return output, counts, total, len(regions)


def _on_gpu(job: Outlined, arrays: Sequence[Any], part_bytes: int | None) -> Computed:
    """One region if it fits into free memory; a sample is copied to the host and checked, or everything, if asked."""
    import cupy

    itemsizes = job.spec.dtype.itemsize + sum(spec.dtype.itemsize for spec in job.specs)
    if part_bytes is None:
        part_bytes = itemsizes * job.spec.size
        if part_bytes > LEAST_BYTES:
            free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
            part_bytes = min(part_bytes, max(LEAST_BYTES, (free - job.spec.nbytes) // COPIES))
    regions, read = _regions(job, part_bytes), _reader(arrays)
    counts: Counter[str] = Counter()
    output: Any = None if len(regions) == 1 else cupy.empty(job.spec.shape, job.spec.dtype)
    for region in regions:
        counted = elements(job, read, region)
        counts.update(counted.counts)
        if output is None:
            output = counted.elements.reshape(job.spec.shape)
            if any(output.data.ptr == array.data.ptr for array in arrays):  # a transposed row is its own memory
                output = output.copy()
        else:
            output[slices(region)] = counted.elements
    total = Checked((), 0)
    if job.verify != "off":
        where, read = f"GPU {arrays[0].device.id}", _reader(arrays, to_host=True)
        for region in regions:
            for part in _pieces(job, part_to_check(job, region, on_gpu=True)):
                total += check(job, read, output[slices(part)], part, region, where)
    return output, counts, total, len(regions)


def _regions(job: Outlined, nbytes: int) -> list[Bounds]:
    if not job.spec.size:
        return []
    return list(job.workflow.regions(job.specs, job.spec, job.options, _elements_of(job, nbytes)))


def _elements_of(job: Outlined, nbytes: int) -> int:
    """Elements of the output that so many bytes hold, inputs included."""
    return max(1, nbytes // (job.spec.dtype.itemsize + sum(spec.dtype.itemsize for spec in job.specs)))


def slices(region: Bounds) -> tuple[Any, ...]:
    return (*(slice(*bounds) for bounds in region), ...)


def _reader(arrays: Sequence[Any], to_host: bool = False) -> Read:
    """(number of the input, region) -> its elements in native byte order and C order; views where they lie so."""

    def read(number: int, bounds: Bounds) -> Any:
        block = arrays[number][slices(bounds)]
        if isinstance(block, np.ndarray):
            return np.ascontiguousarray(block, block.dtype.newbyteorder("=")).reshape(block.shape)
        if not block.flags.c_contiguous:
            block = block.copy()
        return block.get() if to_host else block

    return read


def elements(job: Outlined, read: Read, region: Bounds) -> Counted:
    workflow = job.workflow
    if workflow.streams:
        computed = workflow.compute(read, region, job.specs, job.options)
    else:
        blocks = [read(number, bounds) for number, bounds in needs(job, region)]
        computed = workflow.compute(blocks, region, job.specs, job.options)
    return computed if isinstance(computed, Counted) else Counted(computed, {})


def needs(job: Outlined, region: Bounds) -> list[tuple[int, Bounds]]:
    """The parts of the inputs that a region needs, each with the number of its input."""
    parts = job.workflow.needs(region, job.specs, job.options)
    return [(number % len(job.specs), bounds) for number, bounds in enumerate(parts)]


def reads(job: Outlined, region: Bounds) -> list[tuple[int, Bounds]]:
    """All that is read of the inputs for a region; as `needs`, unless the job streams."""
    if job.workflow.reads is None:
        return needs(job, region)
    return list(enumerate(job.workflow.reads(region, job.specs, job.options)))


def _random(job: Outlined, region: Bounds) -> np.random.Generator:
    return np.random.default_rng([job.seed, *(start for start, _ in region)])


def check(job: Outlined, read: Read, elements: Any, part: Bounds, region: Bounds, where: str) -> Checked:
    """Check the elements of a part of a region; VerificationError if one is wrong."""
    if not isinstance(elements, np.ndarray):
        elements = (elements if elements.flags.c_contiguous else elements.copy()).get()
    elements = np.ascontiguousarray(elements).reshape(sizes(part))
    checked = job.workflow.check(read, elements, part, job.specs, job.options, _random(job, region))
    if checked.details:
        raise VerificationError(f"{job.workflow.name}: a number is wrong in region {list(part)} of {NAME} ({where}): "
                                f"{'; '.join(checked.details)}; nothing was returned")  # fmt: skip
    return checked


def part_to_check(job: Outlined, region: Bounds, on_gpu: bool) -> Bounds:
    """The part of a region that is checked in any case."""
    if job.verify == "full" or (job.workflow.whole and not on_gpu):
        return region
    return _sample(job, region) if on_gpu else part_of(region, _random(job, region), SAMPLED_SHARE[job.verify])


def _pieces(job: Outlined, part: Bounds) -> Iterator[Bounds]:
    """Pieces of a part, if they can be checked one at a time, so that the host holds little of it."""
    if job.workflow.pieces is None:
        yield part
        return
    for piece in job.workflow.pieces(Spec(sizes(part), job.spec.dtype), job.options, _elements_of(job, CHECKED_BYTES)):
        yield tuple((start + first, start + stop) for (start, _), (first, stop) in zip(part, piece, strict=True))


def _sample(job: Outlined, region: Bounds) -> Bounds:
    """A random part of a region that is checked: of the shapes tried, the one that needs the fewest bytes of inputs."""
    random, shape = _random(job, region), sizes(region)
    elements = min(max(prod(shape) // DEVICE_SHARE[job.verify], LEAST_CHECKED), MOST_CHECKED)

    def needed(part: Bounds) -> int:
        return sum(prod(sizes(bounds)) * job.specs[number].dtype.itemsize for number, bounds in reads(job, part))

    def placed(lengths: Sequence[int]) -> Bounds:
        return tuple(
            (first := start + int(random.integers(stop - start - length + 1)), first + length)
            for (start, stop), length in zip(region, lengths, strict=True)
        )

    while True:
        part = min((placed(lengths) for lengths in _shapes(shape, elements)), key=needed)
        if elements == 1 or needed(part) <= MOST_READ:
            return part
        elements //= 2


def _shapes(shape: tuple[int, ...], elements: int) -> Iterator[list[int]]:
    """Shapes of about so many elements: long along the last axes, long along the first, square in the last two."""
    axes = range(len(shape))
    for order in (axes[::-1], axes):
        lengths, left = [1] * len(shape), elements
        for axis in order:
            lengths[axis] = max(1, min(shape[axis], left))
            left //= lengths[axis]
        yield lengths
    if len(shape) > 1:
        side = max(1, min(isqrt(elements), *shape[-2:]))
        yield [*[1] * (len(shape) - 2), side, side]
