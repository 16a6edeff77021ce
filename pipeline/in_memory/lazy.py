"""Jobs that write an array, over dask arrays: a lazy dask array with a task for each block of the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from pipeline.errors import PipelineError, UsageError
from pipeline.in_memory.arrays import Outlined, check, elements, needs, part_to_check, reads, slices
from pipeline.in_memory.blocks import adopted, as_said, check_workers
from pipeline.in_memory.device import on_device_of
from pipeline.in_memory.kinds import NAME
from workflows.regions import Bounds, all_of, sizes


def lazy_output(job: Outlined, arrays: Sequence[Any]) -> Any:
    """The output as a dask array; nothing is computed yet.

    Raises
    ------
    UsageError
        If chunk sizes are unknown, or the job reads inputs in an order that it does not say.
    """
    import dask.array

    if any(math.isnan(length) for array in arrays for length in array.shape):
        raise UsageError(f"{NAME}: expected known chunk sizes, got a dask array of unknown shape; call its "
                         "compute_chunk_sizes() first")  # fmt: skip
    if job.workflow.streams and job.workflow.reads is None:
        raise UsageError(f"{job.workflow.name}: expected arrays in memory or files, got a dask array, which jobs that "
                         "stream take only if they have `reads`; compute it first")  # fmt: skip
    stored = arrays[0].dtype if job.workflow.verbatim else job.spec.dtype
    meta = dask.array.utils.meta_from_array(arrays[0]._meta, len(job.spec.shape), stored)
    if not job.spec.size:
        return dask.array.zeros(job.spec.shape, stored, meta=meta)
    check_workers()
    arrays = [as_said(array) for array in arrays]
    ends = [_ends(job, arrays, axis) for axis in range(len(job.spec.shape))]
    blocks = np.empty(tuple(map(len, ends)), object)
    for place in np.ndindex(blocks.shape):
        region = tuple(ends[axis][at] for axis, at in enumerate(place))
        blocks[place] = _block(job, arrays, region, stored, meta)
    output = dask.array.block(blocks.tolist())
    # Joining blocks says that the byte order is the machine's; blocks whose elements were only moved keep their own.
    return output if output.dtype.isnative == stored.isnative else output.map_blocks(_same, dtype=stored, meta=meta)


def _same(block: Any) -> Any:
    return block


def _ends(job: Outlined, arrays: Sequence[Any], axis: int) -> list[tuple[int, int]]:
    """Where an axis of the output is cut: where the blocks of the input axis end that its elements come from."""
    length = job.spec.shape[axis]
    half = tuple((0, -(-n // 2)) if at == axis else (0, n) for at, n in enumerate(job.spec.shape))
    whole, part = needs(job, all_of(job.spec)), needs(job, half)
    for number, array in enumerate(arrays):
        for inner in range(array.ndim):
            of_whole, of_part = (
                [bounds[inner] for other, bounds in parts if other == number] for parts in (whole, part)
            )
            if of_whole != of_part:
                cuts = sorted({0, length, *(end for end in accumulate(array.chunks[inner]) if end < length)})
                return list(pairwise(cuts))
    return [(0, length)]


def _block(job: Outlined, arrays: Sequence[Any], region: Bounds, stored: np.dtype[Any], meta: Any) -> Any:
    """A block of the output, from the parts of the inputs that it needs, each brought together in one block."""
    import dask.array

    parts = reads(job, region)
    blocks = [arrays[number][slices(bounds)].rechunk(-1) for number, bounds in parts]
    task = dask.delayed(partial(compute_block, job, region, parts, [array.dtype for array in arrays]), pure=False)
    made = task(*(block.to_delayed(optimize_graph=False).item() for block in blocks))
    return dask.array.from_delayed(made, sizes(region), stored, meta=meta)


def compute_block(
    job: Outlined, region: Bounds, parts: Sequence[tuple[int, Bounds]], dtypes: Sequence[np.dtype[Any]], *blocks: Any
) -> Any:
    """Task: the elements of a region, once a part of them is checked.

    Parameters
    ----------
    job, region
    parts
        Number of the input, and region of it, of each block.
    dtypes
        Of the inputs, as dask says.
    blocks : NumPy or CuPy arrays

    Raises
    ------
    VerificationError
        If an element is wrong.
    """
    arrays = [
        adopted(block, dtypes[number], sizes(bounds)) for (number, bounds), block in zip(parts, blocks, strict=True)
    ]
    stored = arrays[0].dtype
    if job.workflow.verbatim:
        arrays = [array.view(array.dtype.newbyteorder("=")) for array in arrays]

    def read(number: int, bounds: Bounds) -> Any:
        for (other, within), array in zip(parts, arrays, strict=True):
            if other == number and all(low <= start and stop <= high for (start, stop), (low, high)
                                       in zip(bounds, within, strict=True)):  # fmt: skip
                block = array[slices(_within(bounds, within))]
                return block.astype(block.dtype.newbyteorder("="), order="C", copy=False)
        raise PipelineError(f"{job.workflow.name}: expected reads within {parts}, got {bounds} of input {number}; "
                            "report this")  # fmt: skip

    def read_to_host(number: int, bounds: Bounds) -> Any:
        block = read(number, bounds)
        return block if isinstance(block, np.ndarray) else block.get()

    def compute(where: str) -> Any:
        output = elements(job, read, region).elements.reshape(sizes(region))
        if job.verify != "off":
            part = part_to_check(job, region, on_gpu=where != "cpu")
            check(job, read_to_host, output[slices(_within(part, region))], part, region, where)
        return output.view(stored) if job.workflow.verbatim else output

    if isinstance(arrays[0], np.ndarray):
        return compute("cpu")
    return on_device_of(arrays[0], compute, f"GPU {arrays[0].device.id}")


def _within(part: Bounds, region: Bounds) -> Bounds:
    """A part of a region, counted from where the region begins."""
    return tuple((start - low, stop - low) for (start, stop), (low, _) in zip(part, region, strict=True))
